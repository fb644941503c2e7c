import { Button, Group, Stack } from "@mantine/core";
import type { ReactNode } from "react";
import { TxHash } from "../../components/Address.tsx";
import { ErrorNotice } from "../../components/ErrorNotice.tsx";
import { Note } from "../../components/Layout.tsx";
import type { Agent } from "../../lib/wire.ts";
import { useExplorer, useNetworkOfChain } from "../../shared/info.ts";
import { SignOrder } from "./SignOrder.tsx";
import type { Withdrawal, WithdrawalState } from "./use-withdrawal.ts";

export type ReviewState = Exclude<WithdrawalState, { step: "form" | "preparing" }>;

export interface ReviewProps {
  agent: Agent;
  owner: string;
  withdrawal: Withdrawal;
  state: ReviewState;
}

/** The next step for the order: sign it, wait, retry, or nothing more. */
export function NextStep({ withdrawal, state }: ReviewProps): ReactNode {
  const network = useNetworkOfChain(state.prepared.typedData.domain.chainId);
  const explorer = useExplorer(network?.id);
  switch (state.step) {
    case "review":
    case "signing":
      return <SignOrder network={network} withdrawal={withdrawal} state={state} />;
    case "sending":
      return <p role="status">The transfer was sent. This page shows its progress.</p>;
    case "open":
      return (
        <Note color="yellow">
          <Stack gap="sm">
            <p role="status">
              The outcome is not known yet. The signed order works only once, so checking again is
              safe.
            </p>
            <ErrorNotice error={state.error} />
            <Group>
              <Button
                variant="filled"
                size="xs"
                onClick={() => void withdrawal.sendAgain(state.signed)}
              >
                Check again
              </Button>
            </Group>
          </Stack>
        </Note>
      );
    case "waiting":
      return (
        <Stack gap="sm">
          <ErrorNotice error={state.error} />
          <Group>
            <Button size="xs" onClick={withdrawal.reset}>
              Done
            </Button>
          </Group>
        </Stack>
      );
    default:
      return (
        <Note color="green">
          <Stack gap="sm">
            <p role="status">
              <strong>Confirmed on chain.</strong>
            </p>
            <TxHash value={state.answer.txHash} explorerUrl={explorer} />
            <Group>
              <Button size="xs" onClick={withdrawal.reset}>
                Done
              </Button>
            </Group>
          </Stack>
        </Note>
      );
  }
}
