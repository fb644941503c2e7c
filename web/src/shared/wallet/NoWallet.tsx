import type { ReactNode } from "react";
import { Note, Stack } from "../../components/Layout.tsx";

export function NoWallet(): ReactNode {
  return (
    <Note>
      <Stack gap={2}>
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
