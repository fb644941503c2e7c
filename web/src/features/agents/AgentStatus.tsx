import { Badge } from "@mantine/core";
import type { ReactNode } from "react";
import { PauseIcon } from "../../components/icons.tsx";
import type { Agent } from "../../lib/wire.ts";

export function AgentStatus({ agent }: { agent: Pick<Agent, "status" | "expired"> }): ReactNode {
  if (agent.status === "archived") return <Badge>Archived</Badge>;
  if (agent.status === "paused") {
    return (
      <Badge color="yellow" leftSection={<PauseIcon size={12} />}>
        Paused
      </Badge>
    );
  }
  if (agent.expired) return <Badge color="red">Expired</Badge>;
  return <Badge color="green">Active</Badge>;
}
