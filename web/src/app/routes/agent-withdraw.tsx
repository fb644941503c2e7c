import { Stack } from "@mantine/core";
import type { ReactNode } from "react";
import { Note } from "../../components/Layout.tsx";
import { ArchiveAgent } from "../../features/agents/ArchiveAgent.tsx";
import { InChannels } from "../../features/channels/InChannels.tsx";
import { Withdraw } from "../../features/withdrawals/Withdraw.tsx";
import { useOwner } from "../../shared/session/session-context.ts";
import { useAgent } from "./agent.tsx";

export default function AgentWithdrawScreen(): ReactNode {
  const agent = useAgent();
  const { address } = useOwner();
  return (
    <Stack gap="lg">
      {agent.status === "archived" && (
        <Note>
          This agent is archived. You can still withdraw USDC that arrives at its address.
        </Note>
      )}
      <Withdraw
        key={agent.id}
        agent={agent}
        owner={address}
        elsewhere={<InChannels agentId={agent.id} />}
      />
      <ArchiveAgent agent={agent} />
    </Stack>
  );
}
