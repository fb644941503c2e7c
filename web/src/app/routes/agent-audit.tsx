import type { ReactNode } from "react";
import { Audit } from "../../features/audit/Audit.tsx";
import { useAgent } from "./agent.tsx";

export default function AgentAuditScreen(): ReactNode {
  return <Audit agent={useAgent()} />;
}
