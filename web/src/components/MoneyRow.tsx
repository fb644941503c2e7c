import type { ReactNode } from "react";
import { ChevronIcon } from "./icons.tsx";
import { Money } from "./Money.tsx";
import styles from "./MoneyRow.module.css";
import { TimeAgo } from "./RelativeTime.tsx";

interface MoneyRowProps {
  title: string;
  meta: ReactNode;
  badge: ReactNode;
  at: string;
  amount: string;
  sign?: "+";
  /** The amount was not paid. */
  isVoid?: boolean;
  onOpen: () => void;
}

/** A row of payments, settlements or approvals. The whole row opens the drawer. */
export const MoneyRow = (row: MoneyRowProps): ReactNode => (
  <li className={`list-row ${styles.row}`}>
    <div className={styles.what}>
      <button
        type="button"
        className={`row-link ${styles.open}`}
        onClick={row.onOpen}
        aria-haspopup="dialog"
      >
        {row.title}
      </button>
      <span className={styles.meta}>{row.meta}</span>
    </div>
    <span className={styles.status}>{row.badge}</span>
    <span className={`${styles.meta} ${styles.time}`}>
      <TimeAgo iso={row.at} />
    </span>
    <span className={styles.amount} data-void={row.isVoid === true || undefined}>
      {row.sign}
      <Money amount={row.amount} />
    </span>
    <span className={styles.opens}>
      <ChevronIcon size={16} />
    </span>
  </li>
);
