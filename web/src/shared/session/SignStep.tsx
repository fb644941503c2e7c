import { Button, Group, Paper, Text } from "@mantine/core";
import { type ReactNode, useState } from "react";
import { Address } from "../../components/Address.tsx";
import { ErrorNotice } from "../../components/ErrorNotice.tsx";
import { Note } from "../../components/Layout.tsx";
import { PendingButton } from "../../components/PendingButton.tsx";
import { isSameAddress, shortAddress } from "../../lib/address.ts";
import { serverNowMs } from "../../lib/clock.ts";
import { type Connection, disconnect } from "../../lib/wallet/connection.ts";
import { siweMessage } from "../../lib/wallet/siwe.ts";
import type { NetworkInfo } from "../../lib/wire.ts";
import styles from "./SignIn.module.css";
import { ChainHelp } from "../wallet/ChainHelp.tsx";
import { type SecondOf, type SignInState, useSignIn } from "./use-sign-in.ts";

const BUTTON: Record<SignInState["step"], string | false> = {
  idle: false,
  declined: false,
  failed: false,
  preparing: "Preparing…",
  signing: "Sign in your wallet…",
  verifying: "Checking…",
};

interface SignStepProps {
  connection: Connection;
  network: NetworkInfo;
  expected?: string;
  secondOf: SecondOf;
}

/** The connected account, the text that it will sign, and the button that starts it. */
export function SignStep({ connection, network, expected, secondOf }: SignStepProps): ReactNode {
  const { state, signIn } = useSignIn();
  const [isChainIgnored, setChainIgnored] = useState(false);
  const isWrongChain = connection.chainId !== network.chainId && !isChainIgnored;
  return (
    <>
      <Paper radius="md" px="md" py="sm" bg="var(--sunken)">
        <Group justify="space-between" wrap="nowrap" gap="sm">
          <div>
            <Text fw={600}>{connection.wallet.name}</Text>
            <Address value={connection.address} copy={false} />
          </div>
          <Button size="xs" onClick={disconnect}>
            Other wallet
          </Button>
        </Group>
      </Paper>
      {expected !== undefined && !isSameAddress(expected, connection.address) && (
        <Note color="yellow">
          This is a different account from the one you used before ({shortAddress(expected)}).
          Signing in with it leaves the open screen and shows this account&rsquo;s agents.
        </Note>
      )}
      {isWrongChain ? (
        <ChainHelp connection={connection} network={network}>
          <Button
            size="xs"
            onClick={() => {
              setChainIgnored(true);
            }}
          >
            Sign in anyway
          </Button>
        </ChainHelp>
      ) : (
        <>
          <SignInPreview connection={connection} network={network} />
          {state.step === "declined" && (
            <Note>You declined in your wallet. Nothing was signed or sent.</Note>
          )}
          {state.step === "failed" && <ErrorNotice title="Signing in failed" error={state.error} />}
          <Group>
            <PendingButton
              variant="filled"
              size="lg"
              fullWidth
              pending={BUTTON[state.step]}
              onClick={() => void signIn(connection, network.chainId, secondOf)}
            >
              {state.step === "declined" || state.step === "failed" ? "Try again" : "Sign in"}
            </PendingButton>
          </Group>
        </>
      )}
    </>
  );
}

/** The text that the wallet will show, for comparison. */
function SignInPreview({
  connection,
  network,
}: Pick<SignStepProps, "connection" | "network">): ReactNode {
  const [openedAtMs] = useState(() => serverNowMs());
  const message = siweMessage({
    host: globalThis.location.host,
    origin: globalThis.location.origin,
    address: connection.address,
    chainId: network.chainId,
    nonce: "(a fresh one-time number)",
    nowMs: openedAtMs,
  });
  return (
    <details className={styles.preview}>
      <summary>What you will sign</summary>
      <p>
        The message proves that the account is yours. It moves no money, costs nothing, and expires
        after ten minutes.
      </p>
      <pre tabIndex={0} role="region" aria-label="Sign-in message">
        {message}
      </pre>
    </details>
  );
}
