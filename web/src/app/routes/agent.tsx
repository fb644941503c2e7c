import { Group, Stack, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Link, Outlet, useOutletContext, useParams } from "react-router";
import { Note } from "../../components/Layout.tsx";
import { PageHeader } from "../../components/PageHeader.tsx";
import { QueryStatus } from "../../components/QueryStatus.tsx";
import { Tabs } from "../../components/Tabs.tsx";
import { AgentStatus } from "../../features/agents/AgentStatus.tsx";
import { agentQuery } from "../../features/agents/api.ts";
import { PauseButton } from "../../features/agents/PauseButton.tsx";
import { Tighten } from "../../features/agents/Tighten.tsx";
import { BalanceCard } from "../../features/funding/BalanceCard.tsx";
import { LimitCard } from "../../features/rules/LimitCard.tsx";
import type { Agent } from "../../lib/wire.ts";
import { useNetwork } from "../../shared/info.ts";
import { Absent } from "../Absent.tsx";
import styles from "./agent.module.css";

export const useAgent = (): Agent => useOutletContext<Agent>();

export default function AgentScreen(): ReactNode {
  const { agentId = "" } = useParams();
  const query = useQuery(agentQuery(agentId));
  const { data: agent } = query;
  const network = useNetwork(agent?.network);
  const above = (
    <Text span c="dimmed" size="sm">
      <Link className="link-alone" to="/agents">
        Agents
      </Link>
    </Text>
  );
  if (!agent)
    return (
      <Absent
        query={query}
        above={above}
        what="the agent"
        failed="The agent could not be loaded"
        missing="Agent not found"
        missingLead="It does not exist, or it belongs to another account."
      />
    );
  const base = `/agents/${agent.id}`;
  return (
    <>
      <PageHeader
        above={above}
        title={agent.name}
        lead={
          <Group>
            <AgentStatus agent={agent} />
            <Text span c="dimmed" size="sm">
              {network?.name}
            </Text>
          </Group>
        }
        actions={<PauseButton agent={agent} />}
      />
      <Stack gap="lg">
        <QueryStatus query={query} what="the agent" failed="This may be out of date" />
        <Tighten agent={agent} />
        {agent.status === "paused" && (
          <Note color="yellow">Paused: this agent cannot pay. You can still withdraw.</Note>
        )}
        <div className={styles.summary}>
          <BalanceCard agent={agent} />
          <LimitCard agent={agent} />
        </div>
        <Tabs
          label="Agent"
          items={[
            { to: base, label: "Activity", end: true },
            { to: `${base}/tasks`, label: "Tasks" },
            { to: `${base}/channels`, label: "Channels" },
            { to: `${base}/rules`, label: "Rules" },
            { to: `${base}/keys`, label: "Keys" },
            { to: `${base}/withdraw`, label: "Withdraw" },
            { to: `${base}/audit`, label: "Audit" },
          ]}
        >
          <Outlet context={agent} />
        </Tabs>
      </Stack>
    </>
  );
}
