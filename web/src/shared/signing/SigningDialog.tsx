import type { ReactNode } from "react";
import { Address } from "../../components/Address.tsx";
import { Button } from "../../components/Button.tsx";
import { Changes } from "../../components/Changes.tsx";
import { Dialog } from "../../components/Dialog.tsx";
import { ErrorNotice } from "../../components/ErrorNotice.tsx";
import { Muted, Note, Row, Stack } from "../../components/Layout.tsx";
import { isSameAddress, shortAddress } from "../../lib/address.ts";
import type { Notice, Signing } from "../../lib/orders/signing.ts";
import { useConnection } from "../../lib/wallet/connection.ts";
import { useNetworkOfChain } from "../info.ts";
import { ChainHelp } from "../wallet/ChainHelp.tsx";
import { WalletPicker } from "../wallet/WalletPicker.tsx";

/** Shows what the wallet is asked to sign, during the request and after a failed one. */
export default function SigningDialog({ signing }: { signing: Signing }): ReactNode {
  const { request, changes, step, cancel } = signing;
  return (
    <Dialog opened onClose={cancel} closable={step !== "sending"} title={request.title}>
      <Stack gap={4}>
        <NoticeText notice={signing.notice} owner={signing.owner} />
        {changes.length > 0 ? <Changes changes={changes} /> : <p>The rules do not change.</p>}
        <NextStep signing={signing} />
      </Stack>
    </Dialog>
  );
}

function NextStep({ signing }: { signing: Signing }): ReactNode {
  const { request, owner, step, notice, awaitPress, cancel } = signing;
  const connection = useConnection();
  const network = useNetworkOfChain(request.chainId);
  const back = <Button onClick={cancel}>Cancel</Button>;
  if (step === "sending") return <p role="status">Signed. Saving the change…</p>;
  if (step === "wallet")
    return (
      <Stack gap={3}>
        <p role="status">
          <strong>Compare the details in your wallet, then sign.</strong>{" "}
          <Muted>{request.effect ?? "Signing is free and moves no money."}</Muted>
        </p>
        <Row end>{back}</Row>
      </Stack>
    );
  if (notice === "lost")
    return (
      <Row end>
        {back}
        <Button variant="primary" onClick={awaitPress}>
          Send it again
        </Button>
      </Row>
    );
  if (!connection)
    return (
      <Stack gap={3}>
        <p>
          Connect the wallet you signed in with, <Address value={owner} copy={false} />, to sign
          this.
        </p>
        <WalletPicker expected={owner} />
        <Row end>{back}</Row>
      </Stack>
    );
  if (!isSameAddress(connection.address, owner))
    return (
      <Stack gap={3}>
        <Note tone="warn">
          <p role="status">
            Your wallet uses the account {shortAddress(connection.address)}. Choose{" "}
            {shortAddress(owner)} in your wallet, the account you are signed in with.
          </p>
        </Note>
        <Row end>{back}</Row>
      </Stack>
    );
  if (network && connection.chainId !== network.chainId)
    return (
      <ChainHelp connection={connection} network={network}>
        <Button size="small" onClick={cancel}>
          Cancel
        </Button>
      </ChainHelp>
    );
  return (
    <Row end>
      {back}
      <Button variant="primary" data-autofocus onClick={awaitPress}>
        {notice === undefined ? "Sign" : "Sign again"}
      </Button>
    </Row>
  );
}

function NoticeText({ notice, owner }: { notice: Notice; owner: string }): ReactNode {
  switch (notice) {
    case undefined:
      return null;
    case "declined":
      return (
        <Note>
          <p role="status">You declined in your wallet. Nothing was signed or changed.</p>
        </Note>
      );
    case "changed":
      return (
        <Note tone="warn">
          <p role="status">
            The rules changed in the meantime. Check the new result below and sign again if you
            agree.
          </p>
        </Note>
      );
    case "expired":
      return (
        <Note tone="warn">
          <p role="status">The order expired after 15 minutes. Sign the new one below.</p>
        </Note>
      );
    case "other-account":
      return (
        <Note tone="warn">
          <p role="status">
            The signature is not from {shortAddress(owner)}, the account you are signed in with.
            Choose that account in your wallet and sign again. Nothing changed.
          </p>
        </Note>
      );
    case "lost":
      return (
        <Note tone="warn">
          <p role="status">
            You signed, but the response was lost. You can safely send the same order again: it
            works only once.
          </p>
        </Note>
      );
    default:
      return <ErrorNotice title="Your wallet did not sign" error={notice.error} />;
  }
}
