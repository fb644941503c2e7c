import { Stack } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Note } from "../../components/Layout.tsx";
import { QueryStatus } from "../../components/QueryStatus.tsx";
import { Skeleton } from "../../components/Skeleton.tsx";
import { PayoutAddress } from "../../features/passkeys/PayoutAddress.tsx";
import { ArchiveAgent } from "../../features/agents/ArchiveAgent.tsx";
import { InChannels } from "../../features/channels/InChannels.tsx";
import { Withdraw } from "../../features/withdrawals/Withdraw.tsx";
import { payoutQuery } from "../../shared/session/api.ts";
import { hasWallet, useOwner } from "../../shared/session/session-context.ts";
import { OwnerOnly, useRights } from "../../shared/session/OwnerOnly.tsx";
import { useAgent } from "./agent.tsx";

export default function AgentWithdrawScreen(): ReactNode {
  const agent = useAgent();
  const session = useOwner();
  const payout = useQuery({ ...payoutQuery, enabled: !hasWallet(session) });
  const rights = useRights();
  // Only admins of a team sign withdrawals; a recovery wallet may sign its own.
  const mayWithdraw = !session.member || rights === "all";
  const home = hasWallet(session) ? session.address : (payout.data?.address ?? undefined);
  return (
    <Stack gap="lg">
      {agent.status === "archived" && (
        <Note>
          This agent is archived. You can still withdraw USDC that arrives at its address.
        </Note>
      )}
      {!hasWallet(session) && (
        <QueryStatus
          query={payout}
          what="your payout address"
          failed="Your payout address could not be loaded"
        >
          <Skeleton shape="row" count={2} />
        </QueryStatus>
      )}
      {!mayWithdraw && <OwnerOnly isScreen>{null}</OwnerOnly>}
      {mayWithdraw && payout.data?.address === null && <PayoutAddress />}
      {mayWithdraw && home !== undefined && (
        <Withdraw
          key={agent.id + home}
          agent={agent}
          owner={home}
          elsewhere={<InChannels agentId={agent.id} />}
        />
      )}
      <ArchiveAgent agent={agent} />
    </Stack>
  );
}
