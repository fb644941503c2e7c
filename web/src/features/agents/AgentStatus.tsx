import { Badge } from "@mantine/core";
import type { ReactNode } from "react";
import { PauseIcon } from "../../components/icons.tsx";
import type { Agent } from "../../lib/wire.ts";

type Shown = Pick<Agent, "status" | "expired"> & { pausedBy?: string | null };

export function AgentStatus({ agent }: { agent: Shown }): ReactNode {
  if (agent.status === "archived") return <Badge>Archived</Badge>;
  if (agent.status === "paused") {
    return (
      <Badge color="yellow" leftSection={<PauseIcon size={12} />}>
        {isPausedByRule(agent) ? "Paused by a rule" : "Paused"}
      </Badge>
    );
  }
  if (agent.expired) return <Badge color="red">Expired</Badge>;
  return <Badge color="green">Active</Badge>;
}

const isPausedByRule = ({ pausedBy }: Shown): boolean => pausedBy != null && pausedBy !== "stop";
