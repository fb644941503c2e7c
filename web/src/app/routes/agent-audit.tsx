import type { ReactNode } from "react";
import { Stack } from "../../components/Layout.tsx";
import { Audit } from "../../features/audit/Audit.tsx";
import { AuditChain } from "../../features/audit/AuditChain.tsx";
import { useAgent } from "./agent.tsx";

export default function AgentAuditScreen(): ReactNode {
  return (
    <Stack gap={5}>
      <Audit agent={useAgent()} />
      <AuditChain />
    </Stack>
  );
}
