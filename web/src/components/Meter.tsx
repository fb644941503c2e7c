import type { ReactNode } from "react";
import { atomic, formatUsdc, perMille } from "../lib/money.ts";
import type { Limits } from "../lib/wire.ts";
import styles from "./Meter.module.css";

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
      <Scale
        sentence={sentence}
        spentShare={perMille(spent, limit)}
        usedShare={perMille(used, limit)}
        compact={compact}
      />
      <p className={styles.text} aria-hidden="true">
        <span>
          <strong>{formatUsdc(spent)}</strong> of {formatUsdc(limit)}
          {compact ? " USDC" : ` USDC in the last ${period}`}
        </span>
        {reserved > 0n && (
          <span className={styles.pendingText}>+ {formatUsdc(reserved)} USDC reserved</span>
        )}
        {isFull && limit > 0n && <span className={styles.fullText}>at the limit</span>}
        {limit === 0n && <span className={styles.fullText}>cannot spend</span>}
      </p>
    </div>
  );
}

/** Shares are per mille of the limit. */
function Scale({
  sentence,
  spentShare,
  usedShare,
  compact,
}: {
  sentence: string;
  spentShare: number;
  usedShare: number;
  compact: boolean;
}): ReactNode {
  const isHigh = usedShare >= 850;
  const bar = { y: compact ? 2 : 7, height: compact ? 6 : 8 };
  return (
    <svg
      className={styles.scale}
      role="img"
      aria-label={sentence}
      height={compact ? 10 : 22}
      width="100%"
    >
      <rect className={styles.track} x="0" width="100%" rx="2" {...bar} />
      {usedShare > spentShare && (
        <rect
          className={styles.reserved}
          x={`${spentShare / 10}%`}
          width={`${(usedShare - spentShare) / 10}%`}
          {...bar}
        />
      )}
      <rect
        className={isHigh ? styles.high : styles.spent}
        x="0"
        width={`${spentShare / 10}%`}
        rx="2"
        {...bar}
      />
      {!compact &&
        [10, 20, 30, 40, 50, 60, 70, 80, 90].map((mark) => (
          <line
            key={mark}
            className={styles.tick}
            x1={`${mark}%`}
            x2={`${mark}%`}
            y1={mark === 50 ? 2 : 4}
            y2="7"
          />
        ))}
      <line className={styles.mark} x1="100%" x2="100%" y1="0" y2="100%" />
    </svg>
  );
}
