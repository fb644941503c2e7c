import { type ReactNode, useState } from "react";
import { Address } from "../../components/Address.tsx";
import { Button } from "../../components/Button.tsx";
import { ErrorNotice } from "../../components/ErrorNotice.tsx";
import { Note, Row, Stack } from "../../components/Layout.tsx";
import { Loading, Skeleton } from "../../components/Skeleton.tsx";
import { isSameAddress, shortAddress } from "../../lib/address.ts";
import { type Connection, disconnect, useConnection } from "../../lib/wallet/connection.ts";
import type { NetworkInfo } from "../../lib/wire.ts";
import { useNetwork } from "../../shared/info/use-info.ts";
import { ChainHelp } from "../../shared/wallet/ChainHelp.tsx";
import { WalletPicker } from "../../shared/wallet/WalletPicker.tsx";
import styles from "./SignIn.module.css";
import { SignInPreview } from "./SignInPreview.tsx";
import { type SignInState, useSignIn } from "./use-sign-in.ts";

const BUTTON: Record<SignInState["step"], string | false> = {
  idle: false,
  declined: false,
  failed: false,
  preparing: "Preparing…",
  signing: "Sign in your wallet…",
  verifying: "Checking…",
};

/** Connect, then sign. Used as a screen, and in the dialog that asks to sign in again. */
export function SignIn({
  expected,
}: {
  /** Whose session just ended, if one did. */ expected?: string;
}): ReactNode {
  const connection = useConnection();
  const network = useNetwork();
  if (!network)
    return (
      <Loading label="networks">
        <Skeleton shape="row" count={2} />
      </Loading>
    );
  return (
    <Stack gap={4}>
      {connection ? (
        <SignStep connection={connection} network={network} expected={expected} />
      ) : (
        <WalletPicker />
      )}
    </Stack>
  );
}

function SignStep({
  connection,
  network,
  expected,
}: {
  connection: Connection;
  network: NetworkInfo;
  expected?: string;
}): ReactNode {
  const { state, signIn } = useSignIn();
  const [isChainIgnored, setChainIgnored] = useState(false);
  const isWrongChain = connection.chainId !== network.chainId && !isChainIgnored;
  return (
    <>
      <div className={styles.account}>
        <div>
          <p className={styles.wallet}>{connection.wallet.name}</p>
          <Address value={connection.address} copy={false} />
        </div>
        <Button size="small" onClick={disconnect}>
          Other wallet
        </Button>
      </div>
      {expected !== undefined && !isSameAddress(expected, connection.address) && (
        <Note tone="warn">
          This is another account than before ({shortAddress(expected)}). Signing in with it leaves
          the open screen and shows this account&rsquo;s agents.
        </Note>
      )}
      {isWrongChain ? (
        <ChainHelp connection={connection} network={network}>
          <Button
            size="small"
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
            <Note>You declined in your wallet. Nothing was signed, and nothing was sent.</Note>
          )}
          {state.step === "failed" && (
            <ErrorNotice title="Signing in did not work" error={state.error} />
          )}
          <Row>
            <Button
              variant="primary"
              size="large"
              block
              pending={BUTTON[state.step]}
              onClick={() => void signIn(connection, network.chainId)}
            >
              {state.step === "declined" || state.step === "failed" ? "Try again" : "Sign in"}
            </Button>
          </Row>
        </>
      )}
    </>
  );
}
