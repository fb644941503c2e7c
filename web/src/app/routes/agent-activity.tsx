import type { ReactNode } from "react";
import { Stack } from "../../components/Layout.tsx";
import { AgentCharts } from "../../features/agents/AgentCharts.tsx";
import { Activity } from "../../features/payments/Activity.tsx";
import { DenialFixes } from "../../features/rules/DenialFixes.tsx";
import { useAgent } from "./agent.tsx";

export default function AgentActivityScreen(): ReactNode {
  const agent = useAgent();
  return (
    <Stack gap={5}>
      <AgentCharts agentId={agent.id} />
      <Activity
        agent={agent}
        fixes={(payment) => <DenialFixes agent={agent} payment={payment} />}
      />
    </Stack>
  );
}
