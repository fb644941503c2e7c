import type { ReactNode } from "react";
import styles from "./Badge.module.css";

export type Tone = "neutral" | "ok" | "warn" | "bad" | "accent";

export function Badge({
  tone = "neutral",
  icon,
  children,
}: {
  tone?: Tone;
  icon?: ReactNode;
  children: ReactNode;
}): ReactNode {
  return (
    <span className={`${styles.badge} ${styles[tone]}`}>
      {icon ?? <span className={styles.dot} aria-hidden="true" />}
      {children}
    </span>
  );
}
