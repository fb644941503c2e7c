import type { ReactNode } from "react";
import type { Change } from "../lib/orders/terms.ts";
import styles from "./Changes.module.css";
import { ArrowIcon } from "./icons.tsx";

/** Lists changes line by line, with the value before and after. */
export function Changes({ changes }: { changes: Change[] }): ReactNode {
  return (
    <ul className={styles.changes} aria-label="Changes" tabIndex={0}>
      {changes.map((change) => (
        <li key={`${change.what}${change.before}${change.after}`}>
          <span className={styles.what}>{change.what}</span>
          <span className={styles.values}>
            {change.before !== "" && <del>{change.before}</del>}
            {change.before !== "" && change.after !== "" && <ArrowIcon size={14} />}
            {change.after !== "" && <ins>{change.after}</ins>}
          </span>
        </li>
      ))}
    </ul>
  );
}
