import type { ReactNode } from "react";
import { atomic, formatUsdc, perMille } from "../lib/money.ts";
import type { Limits } from "../lib/wire.ts";
import styles from "./Meter.module.css";
import { MeterScale } from "./MeterScale.tsx";

/**
 * A bar with the spent and reserved amounts against the limit. The numbers are beside it as text and the
 * reserved part is hatched, so that nothing depends on colour alone.
 */
export function Meter({
  limits,
  compact = false,
  period = "24 h",
}: {
  limits: Pick<Limits, "limit" | "spent" | "reserved">;
  compact?: boolean;
  period?: string;
}): ReactNode {
  const limit = atomic(limits.limit);
  const spent = atomic(limits.spent);
  const reserved = atomic(limits.reserved);
  const used = spent + reserved;
  const isFull = used >= limit;
  const sentence =
    `${formatUsdc(spent)} spent` +
    (reserved > 0n ? ` + ${formatUsdc(reserved)} reserved` : "") +
    ` of ${formatUsdc(limit)} USDC in ${period}`;
  return (
    <div className={compact ? styles.compact : styles.root}>
      <MeterScale
        sentence={sentence}
        spentShare={perMille(spent, limit)}
        usedShare={perMille(used, limit)}
        compact={compact}
      />
      <p className={styles.text} aria-hidden="true">
        <span>
          <strong>{formatUsdc(spent)}</strong> of {formatUsdc(limit)}
          {!compact && ` USDC in the last ${period}`}
        </span>
        {reserved > 0n && (
          <span className={styles.pendingText}>+ {formatUsdc(reserved)} reserved</span>
        )}
        {isFull && limit > 0n && <span className={styles.fullText}>at the limit</span>}
        {limit === 0n && <span className={styles.fullText}>cannot spend</span>}
      </p>
    </div>
  );
}
