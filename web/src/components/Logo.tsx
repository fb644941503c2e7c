import type { ReactNode } from "react";
import styles from "./Logo.module.css";

/** A ship's load line: it marks the most that may be loaded. */
export function Mark({ size = 28 }: { size?: number }): ReactNode {
  return (
    <svg width={size} height={size} viewBox="0 0 32 32" aria-hidden="true" focusable="false">
      <path d="M8 16a8 8 0 0 0 16 0z" fill="var(--lead)" />
      <circle cx="16" cy="16" r="8.2" fill="none" stroke="currentColor" strokeWidth="2.6" />
      <path d="M2.5 16h27" stroke="currentColor" strokeWidth="2.6" />
    </svg>
  );
}

export function Logo(): ReactNode {
  return (
    <span className={styles.logo}>
      <Mark />
      <span>Purser</span>
    </span>
  );
}
