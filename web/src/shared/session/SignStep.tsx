import { type ReactNode, useState } from "react";
import { Address } from "../../components/Address.tsx";
import { Button } from "../../components/Button.tsx";
import { ErrorNotice } from "../../components/ErrorNotice.tsx";
import { Note, Row } from "../../components/Layout.tsx";
import { isSameAddress, shortAddress } from "../../lib/address.ts";
import { type Connection, disconnect } from "../../lib/wallet/connection.ts";
import type { NetworkInfo } from "../../lib/wire.ts";
import { ChainHelp } from "../wallet/ChainHelp.tsx";
import styles from "./SignIn.module.css";
import { SignInPreview } from "./SignInPreview.tsx";
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
          This is a different account from the one you used before ({shortAddress(expected)}).
          Signing in with it leaves the open screen and shows this account&rsquo;s agents.
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
            <Note>You declined in your wallet. Nothing was signed or sent.</Note>
          )}
          {state.step === "failed" && <ErrorNotice title="Signing in failed" error={state.error} />}
          <Row>
            <Button
              variant="primary"
              size="large"
              block
              pending={BUTTON[state.step]}
              onClick={() => void signIn(connection, network.chainId, secondOf)}
            >
              {state.step === "declined" || state.step === "failed" ? "Try again" : "Sign in"}
            </Button>
          </Row>
        </>
      )}
    </>
  );
}
