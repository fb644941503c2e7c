import type { ReactNode } from "react";
import styles from "./Skeleton.module.css";

type Shape = "text" | "title" | "figure" | "row" | "block" | "chart";

/** A placeholder in the size of the loading content, so that the layout does not move. */
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

/** Wraps the skeletons of one region, so that a screen reader announces them once. */
export function Loading({ label, children }: { label: string; children: ReactNode }): ReactNode {
  return (
    <div className={styles.loading} role="status" aria-label={`Loading ${label}`}>
      {children}
    </div>
  );
}
