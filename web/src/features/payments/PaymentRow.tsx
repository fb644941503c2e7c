import type { ReactNode } from "react";
import { Badge } from "../../components/Badge.tsx";
import { Money } from "../../components/Money.tsx";
import { TimeAgo } from "../../components/RelativeTime.tsx";
import rows from "../../components/Rows.module.css";
import type { Payment } from "../../lib/wire.ts";
import styles from "./Activity.module.css";
import { KINDS, statusOf, titleOf } from "./status.ts";

interface PaymentRowProps {
  payment: Payment;
  labelOf: (address: string) => string | undefined;
  onOpen: () => void;
}

export function PaymentRow({ payment, labelOf, onOpen }: PaymentRowProps): ReactNode {
  const status = statusOf(payment);
  return (
    <li className={styles.row}>
      <div className={rows.what}>
        <button type="button" className={rows.open} onClick={onOpen} aria-haspopup="dialog">
          {titleOf(payment, labelOf)}
        </button>
        <span className={rows.meta}>
          {KINDS[payment.kind] ?? payment.kind}
          {payment.denial && ` · ${reasonOf(payment.denial.code)}`}
          {payment.memo !== null && payment.memo !== "" && ` · ${payment.memo}`}
        </span>
      </div>
      <span className={styles.status}>
        <Badge tone={status.tone}>
          {status.label}
          {payment.repeats > 0 && ` ×${payment.repeats + 1}`}
        </Badge>
      </span>
      <span className={`${rows.meta} ${styles.time}`}>
        <TimeAgo iso={payment.createdAt} />
      </span>
      <span
        className={
          payment.status === "blocked" || payment.status === "voided"
            ? styles.struck
            : styles.amount
        }
      >
        {payment.kind === "incoming" && "+"}
        <Money amount={payment.amount} />
      </span>
    </li>
  );
}

export const reasonOf = (code: string): string => code.replaceAll("_", " ");
