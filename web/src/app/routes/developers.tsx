import { Button, Group, Stack } from "@mantine/core";
import type { ReactNode } from "react";
import { Link } from "react-router";
import { CodeBlock } from "../../components/CodeBlock.tsx";
import { Note, Section } from "../../components/Layout.tsx";
import { PageHeader } from "../../components/PageHeader.tsx";
import { Loading, Skeleton } from "../../components/Skeleton.tsx";
import { PointYourApi } from "../../features/facilitator/PointYourApi.tsx";
import { agentSteps, mcpConfig } from "../../lib/snippets.ts";
import { useInfo } from "../../shared/info.ts";

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
      <Stack gap="lg">
        <Group>
          {DOCUMENTS.map(({ href, label }) => (
            <Button component="a" key={href} href={href}>
              {label}
            </Button>
          ))}
          <Button component={Link} to="/developers/errors">
            Error catalogue
          </Button>
        </Group>
        <Section title="For agents" hint="Create an agent and put its key into AGENT_API_KEY.">
          <Stack gap="sm">
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
          <Stack gap="sm">
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
