import type { ReactNode } from "react";
import styles from "./CodeBlock.module.css";
import { CopyButton } from "./CopyButton.tsx";

export function CodeBlock({
  code,
  label,
  shown,
}: {
  code: string;
  label: string;
  /** The code with secrets masked; the copy button copies `code`. */ shown?: string;
}): ReactNode {
  return (
    <figure className={styles.root}>
      <figcaption className={styles.caption}>
        <span>{label}</span>
        <CopyButton value={code} what={label} className={styles.copy} />
      </figcaption>
      {/* Scrolls sideways, so it must be reachable by keyboard. */}
      <pre className={styles.code} tabIndex={0} aria-label={label} role="region">
        <code>{shown ?? code}</code>
      </pre>
    </figure>
  );
}
