import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Link, Outlet, useOutletContext, useParams } from "react-router";
import { ErrorNotice } from "../../components/ErrorNotice.tsx";
import { Muted, Note, PageHeader, Row, Stack } from "../../components/Layout.tsx";
import { Loading, Skeleton } from "../../components/Skeleton.tsx";
import { Tabs } from "../../components/Tabs.tsx";
import { AgentStatus } from "../../features/agents/AgentStatus.tsx";
import { AgentSummary } from "../../features/agents/AgentSummary.tsx";
import { agentQuery } from "../../features/agents/api.ts";
import { PauseButton } from "../../features/agents/PauseButton.tsx";
import { useNetwork } from "../../shared/info/use-info.ts";
import { ApiError } from "../../lib/api.ts";
import type { Agent } from "../../lib/wire.ts";

export const useAgent = (): Agent => useOutletContext<Agent>();

export default function AgentScreen(): ReactNode {
  const { agentId = "" } = useParams();
  const { data: agent, error, refetch } = useQuery(agentQuery(agentId));
  const network = useNetwork(agent?.network);
  const above = (
    <Muted>
      <Link to="/agents">Agents</Link>
    </Muted>
  );
  if (!agent) {
    if (error instanceof ApiError && error.status === 404) {
      return (
        <PageHeader
          above={above}
          title="No such agent"
          lead="It does not exist, or it belongs to another account."
        />
      );
    }
    if (error)
      return (
        <ErrorNotice
          title="The agent could not be loaded"
          error={error}
          onRetry={() => void refetch()}
        />
      );
    return (
      <Loading label="the agent">
        <Skeleton shape="title" />
        <Skeleton shape="block" count={2} />
      </Loading>
    );
  }
  const base = `/agents/${agent.id}`;
  return (
    <>
      <PageHeader
        above={above}
        title={agent.name}
        lead={
          <Row>
            <AgentStatus agent={agent} />
            <Muted>{network?.name}</Muted>
          </Row>
        }
        actions={<PauseButton agent={agent} />}
      />
      <Stack gap={5}>
        {error && (
          <ErrorNotice
            title="This may be out of date"
            error={error}
            onRetry={() => void refetch()}
          />
        )}
        {agent.status === "paused" && (
          <Note tone="warn">Paused: this agent pays nobody. Withdrawing works all the same.</Note>
        )}
        <AgentSummary agent={agent} />
        <Tabs
          label="Agent"
          items={[
            { to: base, label: "Activity", end: true },
            { to: `${base}/rules`, label: "Rules" },
            { to: `${base}/keys`, label: "Keys" },
            { to: `${base}/withdraw`, label: "Withdraw" },
            { to: `${base}/audit`, label: "Audit" },
          ]}
        />
        <Outlet context={agent} />
      </Stack>
    </>
  );
}
