import { Group, Stack } from "@mantine/core";
import type { ReactNode } from "react";
import { Address } from "../../components/Address.tsx";
import { ErrorNotice } from "../../components/ErrorNotice.tsx";
import { PendingButton } from "../../components/PendingButton.tsx";
import type { Connection } from "../../lib/wallet/connection.ts";
import { useMove, useSignMove } from "./use-recovery.ts";

/** One press in each of the two wallets; nothing changes before the second. */
export function MoveOwner({
  connection,
  owner,
  second,
}: {
  connection: Connection;
  owner: string;
  second: string;
}): ReactNode {
  const sign = useSignMove(owner, second);
  const move = useMove(second);
  return (
    <Stack gap="sm">
      <h3>Make the recovery wallet the owner</h3>
      <p>
        All agents move to the recovery wallet and are paused. Each can pay again when that wallet
        has signed its limits. Their money does not move. Purser sends a last mail to the current
        e-mail address; set a new one with the recovery wallet.
      </p>
      {sign.data && (
        <p>
          Signed with the current wallet. Now choose <Address value={second} copy={false} /> in your
          wallet and sign the same order.
        </p>
      )}
      {sign.isError && <ErrorNotice title="The order was not signed" error={sign.error} />}
      {move.isError && <ErrorNotice title="The agents were not moved" error={move.error} />}
      <Group>
        {sign.data ? (
          <PendingButton
            variant="filled"
            color="red"
            pending={move.isPending && "Waiting for your wallet…"}
            onClick={() => {
              move.mutate({ connection, half: sign.data });
            }}
          >
            Sign with the recovery wallet and move
          </PendingButton>
        ) : (
          <PendingButton
            variant="filled"
            color="red"
            pending={sign.isPending && "Waiting for your wallet…"}
            onClick={() => {
              sign.mutate(connection);
            }}
          >
            Sign with the current wallet
          </PendingButton>
        )}
      </Group>
    </Stack>
  );
}
