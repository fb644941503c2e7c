import { Stack } from "@mantine/core";
import type { ReactNode } from "react";
import { AgentCharts } from "../../features/agents/AgentCharts.tsx";
import { NeverPayAgain } from "../../features/denied-payees/NeverPayAgain.tsx";
import { Activity } from "../../features/payments/Activity.tsx";
import { DenialFixes } from "../../features/rules/DenialFixes.tsx";
import { useAgent } from "./agent.tsx";

export default function AgentActivityScreen(): ReactNode {
  const agent = useAgent();
  return (
    <Stack gap="lg">
      <AgentCharts agentId={agent.id} />
      <Activity
        agent={agent}
        fixes={(payment) => <DenialFixes agent={agent} payment={payment} />}
        actions={(payment) => <NeverPayAgain payment={payment} />}
      />
    </Stack>
  );
}
