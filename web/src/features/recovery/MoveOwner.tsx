import { Group, Stack } from "@mantine/core";
import type { ReactNode } from "react";
import { ErrorNotice } from "../../components/ErrorNotice.tsx";
import { MutationButton } from "../../components/PendingButton.tsx";
import { hasWallet, useOwner } from "../../shared/session/session-context.ts";
import { useMove } from "./use-recovery.ts";

/** Both wallets sign, one after the other; nothing changes before the second signature. */
export function MoveOwner({ owner, second }: { owner: string; second: string }): ReactNode {
  const move = useMove(owner, second);
  const isWalletOwner = hasWallet(useOwner());
  return (
    <Stack gap="sm">
      <h3>Make the recovery wallet the owner</h3>
      <p>
        All agents move to the recovery wallet and are paused. Each can pay again when that wallet
        has signed its limits. Their money does not move. Purser sends a last mail to the current
        e-mail address; set a new one with the recovery wallet.
      </p>
      {move.isError && <ErrorNotice title="The agents were not moved" error={move.error} />}
      <Group>
        <MutationButton
          variant="filled"
          color="red"
          mutation={move}
          pending="Waiting for both signatures…"
        >
          {isWalletOwner
            ? "Sign with both wallets and move"
            : "Sign with passkey and wallet, and move"}
        </MutationButton>
      </Group>
    </Stack>
  );
}
