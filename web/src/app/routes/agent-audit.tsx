import { Stack } from "@mantine/core";
import type { ReactNode } from "react";
import { Audit } from "../../features/audit/Audit.tsx";
import { AuditChain } from "../../features/audit/AuditChain.tsx";
import { useAgent } from "./agent.tsx";

export default function AgentAuditScreen(): ReactNode {
  return (
    <Stack gap="lg">
      <Audit agent={useAgent()} />
      <AuditChain />
    </Stack>
  );
}
