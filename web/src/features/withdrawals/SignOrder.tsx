import { Button, Group, Stack } from "@mantine/core";
import { type ReactNode, useEffect } from "react";
import { Address } from "../../components/Address.tsx";
import { ErrorNotice } from "../../components/ErrorNotice.tsx";
import { Note } from "../../components/Layout.tsx";
import { PendingButton } from "../../components/PendingButton.tsx";
import { isSameAddress } from "../../lib/address.ts";
import {
  connect,
  disconnect,
  isOnChain,
  reconnect,
  useConnection,
} from "../../lib/wallet/connection.ts";
import { signerOf } from "../../lib/session.ts";
import type { NetworkInfo } from "../../lib/wire.ts";
import { hasWallet, signsByWallet, useOwner } from "../../shared/session/session-context.ts";
import { ChainHelp } from "../../shared/wallet/ChainHelp.tsx";
import { useOwnPasskey } from "../../shared/wallet/use-wallets.ts";
import { WalletPicker } from "../../shared/wallet/WalletPicker.tsx";
import type { Withdrawal, WithdrawalState } from "./use-withdrawal.ts";

interface SignOrderProps {
  /** The order's network. */
  network: NetworkInfo | undefined;
  withdrawal: Withdrawal;
  state: WithdrawalState & { step: "review" | "signing" };
}

/** The owner's wallet signs the shown order on its chain. */
export function SignOrder({ network, withdrawal, state }: SignOrderProps): ReactNode {
  const connection = useConnection();
  const owner = useOwner();
  const signer = signerOf(owner);
  const isWithPasskey = owner.signedInWith === "passkey";
  // The signature is needed in any case, so there is nothing to choose.
  useEffect(() => {
    if (isWithPasskey) void reconnect(signer);
  }, [isWithPasskey, signer]);
  const { to } = state.prepared.order;
  // Custody refuses a passkey's signature for any other target.
  const withoutPasskey = hasWallet(owner) && !isSameAddress(to, owner.address);
  const passkey = useOwnPasskey(!withoutPasskey);
  const back = (
    <Button disabled={state.step === "signing"} onClick={withdrawal.reset}>
      Back
    </Button>
  );
  const isPasskey = connection?.wallet.kind === "passkey";
  if (!connection || (isPasskey && withoutPasskey)) {
    return (
      <Stack gap="sm">
        <p>
          {signsByWallet(owner) ? (
            <>
              Connect the wallet you signed in with, <Address value={signer} copy={false} />, to
              sign this order.
            </>
          ) : (
            "Sign this order with your passkey."
          )}
        </p>
        <WalletPicker expected={signer} withoutPasskey={withoutPasskey} />
        <Group>{back}</Group>
      </Stack>
    );
  }
  if (network && !isOnChain(connection, network.chainId))
    return (
      <ChainHelp connection={connection} network={network}>
        {back}
      </ChainHelp>
    );
  return (
    <Stack gap="sm">
      {state.step === "review" && state.declined === true && (
        <Note>
          {isPasskey
            ? "You canceled, or this device does not have your passkey."
            : "You declined in your wallet."}{" "}
          Nothing was signed and no money moved.
        </Note>
      )}
      {state.step === "review" && state.error !== undefined && (
        <ErrorNotice title="The withdrawal failed" error={state.error} />
      )}
      <Group>
        <PendingButton
          variant="filled"
          pending={
            state.step === "signing" &&
            (isPasskey
              ? "Confirm on your device…"
              : "Compare the fields in your wallet, then sign…")
          }
          onClick={() => void withdrawal.sign(connection, state.prepared)}
        >
          Sign and withdraw
        </PendingButton>
        {back}
        {isPasskey && hasWallet(owner) && (
          <Button variant="subtle" disabled={state.step === "signing"} onClick={disconnect}>
            Use the wallet instead
          </Button>
        )}
        {!isPasskey && passkey && (
          <Button
            variant="subtle"
            disabled={state.step === "signing"}
            onClick={() =>
              void connect(passkey, signer).then((by) => withdrawal.sign(by, state.prepared))
            }
          >
            Use a passkey instead
          </Button>
        )}
      </Group>
    </Stack>
  );
}
