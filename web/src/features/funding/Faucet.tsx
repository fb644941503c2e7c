import { Group, Stack } from "@mantine/core";
import { useMutation, useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { ErrorNotice } from "../../components/ErrorNotice.tsx";
import { Note } from "../../components/Layout.tsx";
import { Money } from "../../components/Money.tsx";
import { MutationButton } from "../../components/PendingButton.tsx";
import { invalidate } from "../../lib/query-keys.ts";
import type { Agent } from "../../lib/wire.ts";
import { localInfoQuery } from "../../shared/info.ts";
import { requestFaucet } from "./fund.ts";

/** Test money on the local chain. */
export const Faucet = ({ agent }: { agent: Agent }): ReactNode => (
  <Stack>
    <p>This is a local test chain. Its faucet gives test USDC as often as you like.</p>
    <FaucetButton agent={agent} />
  </Stack>
);

/** One press funds the agent. */
export function FaucetButton({ agent }: { agent: Agent }): ReactNode {
  const { data: local } = useQuery(localInfoQuery);
  const request = useMutation({
    mutationFn: () => requestFaucet(agent.walletAddress),
    onSettled: invalidate.afterPayment,
  });
  return (
    <Stack>
      {request.error && <ErrorNotice title="The faucet failed" error={request.error} />}
      {request.isSuccess && (
        <Note color="green">
          <span role="status">
            <Money amount={request.data.amount} /> arrived.
          </span>
        </Note>
      )}
      <Group>
        <MutationButton variant="filled" mutation={request} pending="Sending…">
          Get {local ? <Money amount={local.faucetAmount} /> : "USDC"}
        </MutationButton>
      </Group>
    </Stack>
  );
}
