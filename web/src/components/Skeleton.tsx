import type { ReactNode } from "react";
import styles from "./Skeleton.module.css";

type Shape = "text" | "title" | "figure" | "row" | "block" | "chart";

/** Holds the place of what is loading, in its size, so that nothing jumps when it arrives. */
export function Skeleton({
  shape = "text",
  count = 1,
}: {
  shape?: Shape;
  count?: number;
}): ReactNode {
  return Array.from({ length: count }, (_, index) => (
    <span key={index} className={`${styles.bone} ${styles[shape]}`} aria-hidden="true" />
  ));
}

/** Wraps skeletons of one region; the screen reader hears a single word. */
export function Loading({ label, children }: { label: string; children: ReactNode }): ReactNode {
  return (
    <div className={styles.loading} role="status" aria-label={`Loading ${label}`}>
      {children}
    </div>
  );
}
