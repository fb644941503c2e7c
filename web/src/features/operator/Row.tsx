import { Text } from "@mantine/core";
import type { ReactNode } from "react";
import styles from "./Operator.module.css";

interface RowProps {
  title: ReactNode;
  detail?: ReactNode;
  /** At the end of the row: a state, a number or a button. */
  children?: ReactNode;
}

export const Row = ({ title, detail, children }: RowProps): ReactNode => (
  <li className={`list-row ${styles.row}`}>
    <div className={styles.what}>
      <div className={styles.title}>{title}</div>
      {detail !== undefined && <div className={styles.detail}>{detail}</div>}
    </div>
    <div className={styles.end}>{children}</div>
  </li>
);

/** In place of an empty list. */
export const Nothing = ({ children }: { children: ReactNode }): ReactNode => (
  <Text c="dimmed">{children}</Text>
);
