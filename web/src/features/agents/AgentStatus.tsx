import type { ReactNode } from "react";
import { Badge } from "../../components/Badge.tsx";
import { PauseIcon } from "../../components/icons.tsx";
import type { Agent } from "../../lib/wire.ts";

export function AgentStatus({ agent }: { agent: Pick<Agent, "status" | "expired"> }): ReactNode {
  if (agent.status === "archived") return <Badge>Archived</Badge>;
  if (agent.status === "paused") {
    return (
      <Badge tone="warn" icon={<PauseIcon size={12} />}>
        Paused
      </Badge>
    );
  }
  if (agent.expired) return <Badge tone="bad">Expired</Badge>;
  return <Badge tone="ok">Active</Badge>;
}
