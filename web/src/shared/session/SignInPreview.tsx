import { type ReactNode, useState } from "react";
import { serverNowMs } from "../../lib/clock.ts";
import type { Connection } from "../../lib/wallet/connection.ts";
import { siweMessage } from "../../lib/wallet/siwe.ts";
import type { NetworkInfo } from "../../lib/wire.ts";
import styles from "./SignIn.module.css";

interface SignInPreviewProps {
  connection: Connection;
  network: NetworkInfo;
}

/** The text that the wallet will show, for comparison. */
export function SignInPreview({ connection, network }: SignInPreviewProps): ReactNode {
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
