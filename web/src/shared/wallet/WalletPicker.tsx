import { Stack } from "@mantine/core";
import { type ReactNode, useRef, useState } from "react";
import { ErrorNotice } from "../../components/ErrorNotice.tsx";
import { ChevronIcon, KeyIcon, WalletIcon } from "../../components/icons.tsx";
import { Note } from "../../components/Layout.tsx";
import { Mark } from "../../components/Logo.tsx";
import { connect, OtherAccountError } from "../../lib/wallet/connection.ts";
import { isRejection, type Wallet, walletError } from "../../lib/wallet/provider.ts";
import { useWallets } from "./use-wallets.ts";
import styles from "./WalletPicker.module.css";

const NOTES = {
  demo: "Built in, for local testing only",
  announced: "Browser extension",
  injected: "Found in this browser",
  passkey: "Signs for your account",
} as const;

const PICTURES: Partial<Record<Wallet["kind"], ReactNode>> = {
  demo: <Mark size={24} />,
  passkey: <KeyIcon size={20} />,
};

interface WalletPickerProps {
  onConnected?: () => void;
  /** The only accepted account. */
  expected?: string;
  /** Only wallets with an account on the chain, which have money and sign messages. */
  withoutPasskey?: boolean;
}

export function WalletPicker({
  onConnected,
  expected,
  withoutPasskey = false,
}: WalletPickerProps): ReactNode {
  const wallets = useWallets({ withoutPasskey });
  const root = useRef<HTMLDivElement>(null);
  const [pendingId, setPendingId] = useState<string>();
  const [problem, setProblem] = useState<{ declined: true } | { error: Error }>();

  const choose = async (wallet: Wallet): Promise<void> => {
    setPendingId(wallet.id);
    setProblem(undefined);
    const place = root.current?.closest("[role=dialog], section, main");
    try {
      await connect(wallet, expected);
      onConnected?.();
      // The next step takes the place of this list, so the keyboard goes on at the heading above both.
      const heading = place?.querySelector<HTMLElement>("h1, h2");
      heading?.setAttribute("tabindex", "-1");
      heading?.focus();
    } catch (error) {
      if (isRejection(error)) setProblem({ declined: true });
      else setProblem({ error: error instanceof OtherAccountError ? error : walletError(error) });
    } finally {
      setPendingId(undefined);
    }
  };

  return (
    <Stack gap="sm" ref={root}>
      {wallets.length === 0 ? (
        <NoWallet />
      ) : (
        <ul className={styles.list}>
          {wallets.map((wallet) => (
            <li key={wallet.id}>
              <button
                type="button"
                className={styles.wallet}
                aria-busy={pendingId === wallet.id}
                disabled={pendingId !== undefined && pendingId !== wallet.id}
                onClick={() => void choose(wallet)}
              >
                <WalletPicture wallet={wallet} />
                <span className={styles.text}>
                  <span className={styles.name}>{wallet.name}</span>
                  <span className={styles.note}>
                    {pendingId === wallet.id && wallet.kind !== "passkey"
                      ? "Open your wallet and allow the connection"
                      : NOTES[wallet.kind]}
                  </span>
                </span>
                <ChevronIcon size={16} />
              </button>
            </li>
          ))}
        </ul>
      )}
      <div aria-live="polite">
        {problem &&
          ("declined" in problem ? (
            <Note>You declined to connect. Choose a wallet to try again.</Note>
          ) : (
            <ErrorNotice error={problem.error} />
          ))}
      </div>
    </Stack>
  );
}

function WalletPicture({ wallet }: { wallet: Wallet }): ReactNode {
  if (wallet.icon !== undefined)
    return <img className={styles.picture} src={wallet.icon} alt="" width="36" height="36" />;
  return (
    <span className={styles.picture}>{PICTURES[wallet.kind] ?? <WalletIcon size={20} />}</span>
  );
}

function NoWallet(): ReactNode {
  return (
    <Note>
      <Stack gap="xs">
        <strong>No wallet was found in this browser.</strong>
        <span>
          You sign in to Purser with a wallet, not a password. Install a wallet extension such as{" "}
          <a href="https://metamask.io/download" target="_blank" rel="noreferrer">
            MetaMask
          </a>{" "}
          or{" "}
          <a href="https://rabby.io" target="_blank" rel="noreferrer">
            Rabby
          </a>
          , then reload this page. On a phone, open this page in your wallet app&rsquo;s own
          browser.
        </span>
      </Stack>
    </Note>
  );
}
