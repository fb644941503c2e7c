import { Button, Group, Stack, Text } from "@mantine/core";
import { type ReactNode, useEffect } from "react";
import { Address } from "../../components/Address.tsx";
import { Changes } from "../../components/Changes.tsx";
import { Dialog } from "../../components/Dialog.tsx";
import { ErrorNotice } from "../../components/ErrorNotice.tsx";
import { Note } from "../../components/Layout.tsx";
import { isSameAddress, shortAddress } from "../../lib/address.ts";
import type { Notice, Signer, Signing } from "../../lib/orders/signing.ts";
import { signerOf } from "../../lib/session.ts";
import { connect, disconnect, isOnChain, useConnection } from "../../lib/wallet/connection.ts";
import { useNetworkOfChain } from "../info.ts";
import { hasWallet, useSession } from "../session/session-context.ts";
import { ChainHelp } from "../wallet/ChainHelp.tsx";
import { useOwnPasskey } from "../wallet/use-wallets.ts";
import { WalletPicker } from "../wallet/WalletPicker.tsx";
import { ToSign } from "./ToSign.tsx";

/** Shows what the wallet is asked to sign, during the request and after a failed one. */
export default function SigningDialog({ signing }: { signing: Signing }): ReactNode {
  const { request, changes, step, cancel, onShown } = signing;
  useEffect(onShown, [onShown]);
  return (
    <Dialog opened onClose={cancel} closable={step !== "sending"} title={request.title}>
      <Stack>
        <NoticeText
          notice={signing.notice}
          signer={signing.signer}
          isOneOfTwo={signing.request.signers !== undefined}
        />
        {changes.length > 0 ? <Changes changes={changes} /> : <p>The rules do not change.</p>}
        {step !== "sending" && <ToSign isScrolled typedData={signing.typedData} />}
        <NextStep signing={signing} />
      </Stack>
    </Dialog>
  );
}

function NextStep({ signing }: { signing: Signing }): ReactNode {
  const { request, signer, step, notice, awaitPress, cancel } = signing;
  const connection = useConnection();
  const network = useNetworkOfChain(request.chainId);
  const { session } = useSession();
  const isOwnPasskey =
    session?.signedInWith === "passkey" && isSameAddress(signer.address, signerOf(session));
  const back = <Button onClick={cancel}>Cancel</Button>;
  if (step === "sending") return <p role="status">Signed. Saving the change…</p>;
  if (step === "wallet")
    return (
      <Stack gap="sm">
        <p role="status">
          <strong>Compare the details in your wallet, then sign.</strong>{" "}
          <Text span c="dimmed" size="sm">
            {request.effect ?? "Signing is free and moves no money."}
          </Text>
        </p>
        <Group justify="flex-end">
          <PasskeyButton signing={signing} />
          {back}
        </Group>
      </Stack>
    );
  if (notice === "lost")
    return (
      <Group justify="flex-end">
        {back}
        <Button variant="filled" onClick={awaitPress}>
          Send it again
        </Button>
      </Group>
    );
  if (!connection)
    return (
      <Stack gap="sm">
        <p>
          {isOwnPasskey && "Sign this with your passkey"}
          {isOwnPasskey && hasWallet(session) && ", or connect your wallet, "}
          {!isOwnPasskey &&
            `Connect ${request.signers ? signer.description : "the wallet you signed in with"}, `}
          {(!isOwnPasskey || hasWallet(session)) && <Address value={signer.address} copy={false} />}
          {isOwnPasskey ? "." : ", to sign this."}
        </p>
        <WalletPicker expected={signer.address} />
        <Group justify="flex-end">{back}</Group>
      </Stack>
    );
  if (!isSameAddress(connection.address, signer.address))
    return (
      <Stack gap="sm">
        <Note color="yellow">
          <p role="status">
            {isOwnPasskey || connection.wallet.kind === "passkey"
              ? `Next signs ${isOwnPasskey ? "your passkey" : `${signer.description}, ${shortAddress(signer.address)}`}.`
              : `Your wallet uses the account ${shortAddress(connection.address)}. Choose ${shortAddress(signer.address)} in your wallet, ${signer.description}.`}
          </p>
        </Note>
        <Group justify="flex-end">
          {back}
          {!(isOwnPasskey && !hasWallet(session)) && (
            <Button onClick={disconnect}>Other wallet</Button>
          )}
          <PasskeyButton signing={signing} isMain={isOwnPasskey} />
        </Group>
      </Stack>
    );
  if (network && !isOnChain(connection, network.chainId))
    return (
      <ChainHelp connection={connection} network={network}>
        <Button size="xs" onClick={cancel}>
          Cancel
        </Button>
        <PasskeyButton signing={signing} />
      </ChainHelp>
    );
  return (
    <Group justify="flex-end">
      {connection.wallet.kind === "passkey" && session && hasWallet(session) && (
        <Button variant="subtle" onClick={disconnect}>
          Use the wallet instead
        </Button>
      )}
      <PasskeyButton signing={signing} />
      {back}
      <Button variant="filled" data-autofocus onClick={awaitPress}>
        {notice === undefined ? "Sign" : "Sign again"}
      </Button>
    </Group>
  );
}

/** Signs with a passkey of this account, in place of the connected wallet. */
function PasskeyButton({
  signing: { signer, awaitPress },
  isMain = false,
}: {
  signing: Signing;
  isMain?: boolean;
}): ReactNode {
  const { session } = useSession();
  const connection = useConnection();
  const passkey = useOwnPasskey();
  const isOwner = session && isSameAddress(signer.address, signerOf(session));
  if (!passkey || !isOwner || connection?.wallet.kind === "passkey") return null;
  const sign = async (): Promise<void> => {
    await connect(passkey, signer.address);
    awaitPress();
  };
  return (
    <Button variant={isMain ? "filled" : "subtle"} onClick={() => void sign()}>
      {isMain ? "Sign with your passkey" : "Use a passkey instead"}
    </Button>
  );
}

interface NoticeTextProps {
  notice: Notice;
  signer: Signer;
  isOneOfTwo: boolean;
}

function NoticeText({ notice, signer, isOneOfTwo }: NoticeTextProps): ReactNode {
  const isPasskey = useConnection()?.wallet.kind === "passkey";
  switch (notice) {
    case undefined:
      return null;
    case "declined":
      return (
        <Note>
          <p role="status">
            {isPasskey
              ? "You canceled, or this device does not have your passkey."
              : "You declined in your wallet."}{" "}
            Nothing was signed or changed.
          </p>
        </Note>
      );
    case "changed":
      return (
        <Note color="yellow">
          <p role="status">
            The rules changed in the meantime. Check the new result below and sign again if you
            agree.
          </p>
        </Note>
      );
    case "expired":
      return (
        <Note color="yellow">
          <p role="status">The order expired. Sign the new one below.</p>
        </Note>
      );
    case "other-account":
      return (
        <Note color="yellow">
          <p role="status">
            {isOneOfTwo
              ? "One of the two signatures is not from its wallet. Sign again with both."
              : `The signature is not from ${shortAddress(signer.address)}, ${signer.description}. Choose that account in your wallet and sign again.`}{" "}
            Nothing changed.
          </p>
        </Note>
      );
    case "lost":
      return (
        <Note color="yellow">
          <p role="status">
            You signed, but the response was lost. You can safely send the same order again: it
            works only once.
          </p>
        </Note>
      );
    default:
      return (
        <ErrorNotice
          title={isPasskey ? "Your passkey did not sign" : "Your wallet did not sign"}
          error={notice.error}
        />
      );
  }
}
