import type { ReactNode } from "react";
import styles from "./AccessRow.module.css";

interface AccessRowProps {
  name: string;
  detail: ReactNode;
  badge: ReactNode;
  times: ReactNode;
  /** The buttons. */
  children?: ReactNode;
}

/** A row of a key or a connected program, which has access to an agent. */
export const AccessRow = ({ name, detail, badge, times, children }: AccessRowProps): ReactNode => (
  <li className={`list-row ${styles.row}`}>
    <div className={styles.what}>
      <strong>{name}</strong> {detail}
    </div>{" "}
    <div>{badge}</div> <div className={styles.times}>{times}</div>
    <div className={styles.actions}>{children}</div>
  </li>
);
