import type { ReactNode } from "react";
import { atomic, formatUsdc, perMille } from "../lib/money.ts";
import type { Limits } from "../lib/wire.ts";
import styles from "./Meter.module.css";

/**
 * The load line: what is spent, what is reserved, and the mark no payment passes. The numbers stand
 * beside it in text, and reserved is hatched, so that nothing rests on colour alone.
 */
export function Meter({
  limits,
  compact = false,
}: {
  limits: Limits;
  compact?: boolean;
}): ReactNode {
  const limit = atomic(limits.limit);
  const spent = atomic(limits.spent);
  const reserved = atomic(limits.reserved);
  const used = spent + reserved;
  const spentShare = perMille(spent, limit);
  const usedShare = perMille(used, limit);
  const isFull = used >= limit;
  const isHigh = usedShare >= 850;
  const sentence =
    `${formatUsdc(spent)} spent` +
    (reserved > 0n ? ` + ${formatUsdc(reserved)} reserved` : "") +
    ` of ${formatUsdc(limit)} USDC in 24 h`;
  return (
    <div className={compact ? styles.compact : styles.root}>
      <svg
        className={styles.scale}
        role="img"
        aria-label={sentence}
        height={compact ? 10 : 22}
        width="100%"
      >
        <rect
          className={styles.track}
          x="0"
          y={compact ? 2 : 7}
          width="100%"
          height={compact ? 6 : 8}
          rx="2"
        />
        {reserved > 0n && (
          <rect
            className={styles.reserved}
            x={`${spentShare / 10}%`}
            y={compact ? 2 : 7}
            width={`${(usedShare - spentShare) / 10}%`}
            height={compact ? 6 : 8}
          />
        )}
        <rect
          className={isHigh ? styles.high : styles.spent}
          x="0"
          y={compact ? 2 : 7}
          width={`${spentShare / 10}%`}
          height={compact ? 6 : 8}
          rx="2"
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
      <p className={styles.text} aria-hidden="true">
        <span>
          <strong>{formatUsdc(spent)}</strong> of {formatUsdc(limit)}
          {!compact && " USDC in the last 24 h"}
        </span>
        {reserved > 0n && (
          <span className={styles.pendingText}>+ {formatUsdc(reserved)} reserved</span>
        )}
        {isFull && limit > 0n && <span className={styles.fullText}>at the limit</span>}
        {limit === 0n && <span className={styles.fullText}>spends nothing</span>}
      </p>
    </div>
  );
}
