import { SegmentedControl, Stack } from "@mantine/core";
import { type ReactNode, useState } from "react";
import { Link } from "react-router";
import { CodeBlock } from "../../components/CodeBlock.tsx";
import { Note, Section } from "../../components/Layout.tsx";
import { expressSeller } from "../../lib/snippets.ts";
import type { NetworkInfo, ServiceInfo } from "../../lib/wire.ts";

type Kind = "url" | "express" | "env";

export function PointYourApi({
  info,
  network,
  first = "url",
}: {
  info: ServiceInfo;
  network: NetworkInfo;
  first?: Kind;
}): ReactNode {
  const [kind, setKind] = useState<Kind>(first);
  const code = {
    url: info.facilitator.url,
    express: expressSeller(info, network),
    env: `FACILITATOR_URL=${info.facilitator.url}`,
  }[kind];
  return (
    <Section
      title="Use it for your API"
      hint="Set this facilitator URL in any x402 middleware. Purser verifies and settles the payments and pays the gas."
    >
      <Stack gap="sm">
        <SegmentedControl
          aria-label="Snippet"
          value={kind}
          onChange={setKind}
          data={[
            { value: "url", label: "URL" },
            { value: "express", label: "Express" },
            { value: "env", label: ".env" },
          ]}
        />
        <CodeBlock label="Facilitator" code={code} />
        <p>
          Nobody pays, or nobody finds it? <Link to="/validate">Check your API</Link>.
        </p>
        {info.facilitator.requiresKey && (
          <Note>
            Verify and settle need a key: send <code>Authorization: Bearer &lt;key&gt;</code>. Ask
            the operator for one.
          </Note>
        )}
      </Stack>
    </Section>
  );
}
