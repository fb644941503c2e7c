import type { ReactNode } from "react";
import { CopyButton } from "./CopyButton.tsx";
import styles from "./CopyText.module.css";

/** A value to copy, with its copy button always beside it. */
export function CopyText({
  value,
  what,
  shown,
}: {
  value: string;
  what: string;
  shown?: string;
}): ReactNode {
  return (
    <span className={styles.root}>
      <code>{shown ?? value}</code>
      <CopyButton value={value} what={what} />
    </span>
  );
}
