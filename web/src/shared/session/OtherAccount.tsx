import type { ReactNode } from "react";
import { Address } from "../../components/Address.tsx";
import { Button } from "../../components/Button.tsx";
import { Stack } from "../../components/Layout.tsx";
import { useDocumentTitle, useTitleFocus } from "../../components/PageHeader.tsx";
import { disconnect } from "../../lib/wallet/connection.ts";
import type { Session } from "../../lib/wire.ts";
import { walletOf } from "./session-context.ts";
import { SignIn } from "./SignIn.tsx";
import styles from "./SignIn.module.css";
import { useLeave } from "./use-leave.ts";

interface OtherAccountProps {
  session: Session;
  /** The address the wallet shows now. */
  connected: string;
}

/** Shown when the wallet switched to another account: the first account's data disappears at once. */
export function OtherAccount({ session, connected }: OtherAccountProps): ReactNode {
  const leave = useLeave();
  useDocumentTitle("Account changed");
  useTitleFocus();
  return (
    <div className={styles.page}>
      <div className={styles.intro}>
        <h1 id="page-title" tabIndex={-1}>
          The account in your wallet changed
        </h1>
        <p>
          You are signed in with one account, and your wallet now uses another. Choose which one to
          use.
        </p>
      </div>
      <div className={styles.card}>
        <Stack gap={4}>
          <div>
            <p>
              Signed in: <Address value={walletOf(session)} copy={false} />
            </p>
            <p>
              In the wallet: <Address value={connected} copy={false} />
            </p>
          </div>
          <SignIn />
          <Button block onClick={disconnect}>
            Stay signed in as before
          </Button>
          <Button block onClick={() => void leave()}>
            Sign out
          </Button>
        </Stack>
      </div>
    </div>
  );
}
