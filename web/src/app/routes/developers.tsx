import type { ReactNode } from "react";
import { AnchorButton, LinkButton } from "../../components/Button.tsx";
import { CodeBlock } from "../../components/CodeBlock.tsx";
import { Note, Row, Section, Stack } from "../../components/Layout.tsx";
import { PageHeader } from "../../components/PageHeader.tsx";
import { Loading, Skeleton } from "../../components/Skeleton.tsx";
import { PointYourApi } from "../../features/facilitator/PointYourApi.tsx";
import { useInfo } from "../../shared/info.ts";
import { agentSteps, mcpConfig } from "../../lib/snippets.ts";

const DOCUMENTS = [
  { href: "/docs/", label: "Documentation" },
  { href: "/docs/reference/api", label: "API reference" },
  { href: "/openapi.json", label: "OpenAPI" },
  { href: "/skill.md", label: "Skill file for agents" },
  { href: "/llms.txt", label: "llms.txt" },
] as const;

export default function DevelopersScreen(): ReactNode {
  const info = useInfo();
  const network = info?.networks[0];
  const base = info?.publicUrl ?? globalThis.location.origin;
  const demoUrl = `${base}${network?.demoPath ?? "/api/arc-stats"}`;
  return (
    <>
      <PageHeader
        title="Developers"
        lead="Give your agent a key and call the API, MCP or the command line."
      />
      <Stack gap={5}>
        <Row>
          {DOCUMENTS.map(({ href, label }) => (
            <AnchorButton key={href} href={href}>
              {label}
            </AnchorButton>
          ))}
          <LinkButton to="/developers/errors">Error catalogue</LinkButton>
        </Row>
        <Section title="For agents" hint="Create an agent and put its key into AGENT_API_KEY.">
          <Stack gap={3}>
            {agentSteps(base, "$AGENT_API_KEY", demoUrl).map(({ title, code }) => (
              <CodeBlock key={title} label={title} code={code} />
            ))}
            <Note>
              A refused payment returns 403 with the rule, a suggestion and, for a limit,{" "}
              <code>availableAt</code>: the time at which the amount fits the limit again. Send an{" "}
              <code>Idempotency-Key</code> with every payment: a retry with the same key never pays
              twice.
            </Note>
          </Stack>
        </Section>
        <Section
          title="Connect over MCP"
          hint="The same functions as tools for clients of the Model Context Protocol."
        >
          <Stack gap={3}>
            <CodeBlock label="MCP server, for clients with OAuth" code={`${base}/mcp`} />
            <Note>
              These clients need only the address. They open a page here where you choose the agent;
              you copy no key.
            </Note>
            <CodeBlock label="MCP client with a key" code={mcpConfig(base, "${AGENT_API_KEY}")} />
          </Stack>
        </Section>
        {info && network ? (
          <PointYourApi info={info} network={network} first="express" />
        ) : (
          <Loading label="service facts">
            <Skeleton shape="block" />
          </Loading>
        )}
      </Stack>
    </>
  );
}
