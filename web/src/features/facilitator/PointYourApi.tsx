import { type ReactNode, useState } from "react";
import { CodeBlock } from "../../components/CodeBlock.tsx";
import { Note, Section, Stack } from "../../components/Layout.tsx";
import { Segmented } from "../../components/Segmented.tsx";
import type { NetworkInfo, ServiceInfo } from "../../lib/wire.ts";

/** Stock middleware, our URL. The price names the token itself, because not every chain is in its table. */
export function expressSnippet(info: ServiceInfo, network: NetworkInfo): string {
  return `import express from "express";
import { HTTPFacilitatorClient } from "@x402/core/server";
import { registerExactEvmScheme } from "@x402/evm/exact/server";
import { paymentMiddleware, x402ResourceServer } from "@x402/express";

const facilitator = new HTTPFacilitatorClient({ url: "${info.facilitator.url}" });
const server = new x402ResourceServer(facilitator);
registerExactEvmScheme(server);

const app = express();
app.use(
  paymentMiddleware(
    {
      "GET /report": {
        accepts: {
          scheme: "exact",
          network: "${network.id}",
          payTo: process.env.PAY_TO,
          price: {
            amount: "1000", // 0.001 USDC
            asset: "${network.usdc.address}",
            extra: { name: "${network.usdc.name}", version: "${network.usdc.version}" },
          },
        },
      },
    },
    server,
  ),
);
app.get("/report", (_request, response) => response.json({ report: "..." }));
app.listen(4021);`;
}

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
    express: expressSnippet(info, network),
    env: `FACILITATOR_URL=${info.facilitator.url}`,
  }[kind];
  return (
    <Section
      title="Point your API at it"
      hint="Any x402 middleware takes a facilitator URL. This one verifies, settles, and pays the gas."
    >
      <Stack gap={3}>
        <div>
          <Segmented
            label="Snippet"
            value={kind}
            onChange={setKind}
            options={[
              { value: "url", label: "URL" },
              { value: "express", label: "Express" },
              { value: "env", label: ".env" },
            ]}
          />
        </div>
        <CodeBlock label="Facilitator" code={code} />
        {info.facilitator.requiresKey && (
          <Note>
            Verify and settle need a key here: send <code>Authorization: Bearer &lt;key&gt;</code>.
            Ask the operator for one.
          </Note>
        )}
      </Stack>
    </Section>
  );
}
