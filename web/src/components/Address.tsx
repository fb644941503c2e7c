import type { ReactNode } from "react";
import { shortAddress } from "../lib/address.ts";
import styles from "./Address.module.css";
import { CopyButton } from "./CopyButton.tsx";
import { ExternalIcon } from "./icons.tsx";

interface AddressProps {
  value: string;
  label?: string;
  /** Show all 42 characters where there is room. */
  full?: boolean;
  copy?: boolean;
  explorerUrl?: string;
}

/** A checksummed address. The middle is hidden visually only; copying and screen readers get all of it. */
export function Address({ value, label, full, copy = true, explorerUrl }: AddressProps): ReactNode {
  return (
    <span className={styles.root}>
      {label !== undefined && label !== "" && <span className={styles.label}>{label}</span>}
      <span className={full === true ? styles.full : styles.short} title={value}>
        {full === true ? (
          value
        ) : (
          <>
            <span aria-hidden="true">{shortAddress(value)}</span>
            <span className="sr-only">{value}</span>
          </>
        )}
      </span>
      {copy && <CopyButton value={value} what="address" />}
      {explorerUrl !== undefined && (
        <ExplorerLink href={`${explorerUrl}/address/${value}`} what="address" />
      )}
    </span>
  );
}

export function ExplorerLink({ href, what }: { href: string; what: string }): ReactNode {
  return (
    <a
      className={styles.explorer}
      href={href}
      target="_blank"
      rel="noreferrer"
      aria-label={`Open ${what} in the block explorer`}
      title="Block explorer"
    >
      <ExternalIcon size={16} />
    </a>
  );
}

export function TxHash({ value, explorerUrl }: { value: string; explorerUrl?: string }): ReactNode {
  return (
    <span className={styles.root}>
      <span className={styles.short} title={value}>
        {`${value.slice(0, 10)}…${value.slice(-6)}`}
      </span>
      <CopyButton value={value} what="transaction hash" />
      {explorerUrl !== undefined && (
        <ExplorerLink href={`${explorerUrl}/tx/${value}`} what="transaction" />
      )}
    </span>
  );
}
