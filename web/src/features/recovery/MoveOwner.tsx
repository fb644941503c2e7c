import type { ReactNode } from "react";
import { Address } from "../../components/Address.tsx";
import { Button } from "../../components/Button.tsx";
import { ErrorNotice } from "../../components/ErrorNotice.tsx";
import { Row, Stack } from "../../components/Layout.tsx";
import type { Connection } from "../../lib/wallet/connection.ts";
import { useMove, useSignMove } from "./use-recovery.ts";

/** Two presses, one in each wallet; nothing happens before the second. */
export function MoveOwner({
  connection,
  owner,
  second,
}: {
  connection: Connection;
  owner: string;
  second: string;
}): ReactNode {
  const sign = useSignMove(owner);
  const move = useMove(second);
  return (
    <Stack gap={3}>
      <h3>Make it the owner</h3>
      <p>
        All agents move to the second wallet, paused; each pays again when that wallet has signed
        its limits. Their money stays where it is. Mails to the first wallet&apos;s address end, and
        it is told so; name one for the second wallet.
      </p>
      {sign.data && (
        <p>
          Signed with the first wallet. Now choose <Address value={second} copy={false} /> in your
          wallet, and sign the same order with it.
        </p>
      )}
      {sign.isError && <ErrorNotice title="The order was not signed" error={sign.error} />}
      {move.isError && <ErrorNotice title="Nothing was moved" error={move.error} />}
      <Row>
        {sign.data ? (
          <Button
            variant="danger"
            pending={move.isPending && "Look at your wallet…"}
            onClick={() => {
              move.mutate({ connection, half: sign.data });
            }}
          >
            Sign with the second wallet and move
          </Button>
        ) : (
          <Button
            variant="danger"
            pending={sign.isPending && "Look at your wallet…"}
            onClick={() => {
              sign.mutate(connection);
            }}
          >
            Sign with the first wallet
          </Button>
        )}
      </Row>
    </Stack>
  );
}
