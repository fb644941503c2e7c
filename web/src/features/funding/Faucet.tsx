import { useMutation, useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Button } from "../../components/Button.tsx";
import { ErrorNotice } from "../../components/ErrorNotice.tsx";
import { Note, Stack } from "../../components/Layout.tsx";
import { Money } from "../../components/Money.tsx";
import { invalidate } from "../../lib/query-keys.ts";
import type { Agent } from "../../lib/wire.ts";
import { localInfoQuery } from "../../shared/info.ts";
import { askFaucet } from "./fund.ts";

/** Test money on the local chain. */
export function Faucet({ agent }: { agent: Agent }): ReactNode {
  const { data: local } = useQuery(localInfoQuery);
  const ask = useMutation({
    mutationFn: () => askFaucet(agent.walletAddress),
    onSettled: invalidate.afterPayment,
  });
  return (
    <Stack gap={4}>
      <p>This is a local test chain. Its faucet gives test USDC as often as you like.</p>
      {ask.error && <ErrorNotice title="The faucet failed" error={ask.error} />}
      {ask.isSuccess && (
        <Note tone="ok">
          <span role="status">
            <Money amount={ask.data.amount} /> arrived.
          </span>
        </Note>
      )}
      <Button
        variant="primary"
        pending={ask.isPending && "Sending…"}
        onClick={() => {
          ask.mutate();
        }}
      >
        Get {local ? <Money amount={local.faucetAmount} /> : "USDC"}
      </Button>
    </Stack>
  );
}
