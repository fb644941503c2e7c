import { Button, Group, Stack, Text, TextInput } from "@mantine/core";
import { type ReactNode, useState } from "react";
import { Loading, Skeleton } from "../../components/Skeleton.tsx";
import { useConnection } from "../../lib/wallet/connection.ts";
import { signerOf } from "../../lib/session.ts";
import type { Session } from "../../lib/wire.ts";
import { useNetwork } from "../info.ts";
import { WalletPicker } from "../wallet/WalletPicker.tsx";
import { PasskeySignIn } from "./PasskeySignIn.tsx";
import { SignStep } from "./SignStep.tsx";
import type { SecondOf } from "./use-sign-in.ts";

/** With a passkey; or connect a wallet, then sign. Used as a screen, and in the dialog for a new sign-in. */
export function SignIn({
  ended,
}: {
  /** The session that just ended, if there was one. */ ended?: Session;
}): ReactNode {
  const connection = useConnection();
  const network = useNetwork();
  const [secondOf, setSecondOf] = useState<SecondOf>(() =>
    ended && ended.second !== null ? ended.address : undefined,
  );
  if (!network)
    return (
      <Loading label="networks">
        <Skeleton shape="row" count={2} />
      </Loading>
    );
  return (
    <Stack>
      {secondOf === undefined && (
        <>
          <PasskeySignIn isRenewal={ended !== undefined} />
          <Text c="dimmed" size="sm">
            Or with a wallet
          </Text>
        </>
      )}
      {secondOf !== undefined && (
        <TextInput
          label="The owner's address"
          description="The wallet, or the account number of an owner with passkeys, whose recovery wallet you use."
          placeholder="0x…"
          value={secondOf}
          onChange={(event) => {
            setSecondOf(event.currentTarget.value);
          }}
        />
      )}
      {connection && connection.wallet.kind !== "passkey" ? (
        <SignStep
          connection={connection}
          network={network}
          expected={ended && signerOf(ended)}
          secondOf={secondOf}
        />
      ) : (
        <WalletPicker withoutPasskey />
      )}
      <Group>
        <Button
          variant="subtle"
          size="xs"
          onClick={() => {
            setSecondOf(secondOf === undefined ? "" : undefined);
          }}
        >
          {secondOf === undefined ? "Use a recovery wallet" : "Sign in with my own account"}
        </Button>
      </Group>
    </Stack>
  );
}
