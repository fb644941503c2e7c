import type { ReactNode } from "react";
import { CopyButton } from "./CopyButton.tsx";
import styles from "./CopyText.module.css";

/** A value that people take elsewhere, its copy button beside it and never below it. */
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
