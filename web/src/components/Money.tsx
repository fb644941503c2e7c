import type { ReactNode } from "react";
import { formatUsdc } from "../lib/money.ts";
import styles from "./Money.module.css";

interface MoneyProps {
  /** The API's decimal string, or atomic units. `null`: the chain cannot be read right now. */
  amount: string | bigint | null;
  /** Large figures have a muted fraction. */
  size?: "display" | "large";
  unit?: boolean;
  className?: string;
}

export function Money({ amount, size, unit = true, className }: MoneyProps): ReactNode {
  if (amount === null) {
    return (
      <span
        className={[styles.money, className].filter(Boolean).join(" ")}
        title="The chain cannot be read right now"
      >
        <span aria-hidden="true">–</span>
        <span className="sr-only">unknown</span>
      </span>
    );
  }
  const [whole = "0", fraction = "00"] = formatUsdc(amount).split(".");
  return (
    <span className={[styles.money, size && styles[size], className].filter(Boolean).join(" ")}>
      {whole}
      <span className={styles.fraction}>.{fraction}</span>
      {unit && <span className={styles.unit}> USDC</span>}
    </span>
  );
}
