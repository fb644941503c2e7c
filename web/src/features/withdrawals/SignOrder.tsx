import { Button, Group, Stack } from "@mantine/core";
import type { ReactNode } from "react";
import { Address } from "../../components/Address.tsx";
import { ErrorNotice } from "../../components/ErrorNotice.tsx";
import { Note } from "../../components/Layout.tsx";
import { PendingButton } from "../../components/PendingButton.tsx";
import { useConnection } from "../../lib/wallet/connection.ts";
import type { NetworkInfo } from "../../lib/wire.ts";
import { useOwner, walletOf } from "../../shared/session/session-context.ts";
import { ChainHelp } from "../../shared/wallet/ChainHelp.tsx";
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
  const signer = walletOf(useOwner());
  const back = (
    <Button disabled={state.step === "signing"} onClick={withdrawal.reset}>
      Back
    </Button>
  );
  if (!connection) {
    return (
      <Stack gap="sm">
        <p>
          Connect the wallet you signed in with, <Address value={signer} copy={false} />, to sign
          this order.
        </p>
        <WalletPicker expected={signer} />
        <Group>{back}</Group>
      </Stack>
    );
  }
  if (network && connection.chainId !== network.chainId)
    return (
      <ChainHelp connection={connection} network={network}>
        {back}
      </ChainHelp>
    );
  return (
    <Stack gap="sm">
      {state.step === "review" && state.declined === true && (
        <Note>You declined in your wallet. Nothing was signed and no money moved.</Note>
      )}
      {state.step === "review" && state.error !== undefined && (
        <ErrorNotice title="The withdrawal failed" error={state.error} />
      )}
      <Group>
        <PendingButton
          variant="filled"
          pending={state.step === "signing" && "Compare the fields in your wallet, then sign…"}
          onClick={() => void withdrawal.sign(connection, state.prepared)}
        >
          Sign and withdraw
        </PendingButton>
        {back}
      </Group>
    </Stack>
  );
}
