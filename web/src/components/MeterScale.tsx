import type { ReactNode } from "react";
import styles from "./Meter.module.css";

interface MeterScaleProps {
  /** The description for screen readers. */
  sentence: string;
  /** Per mille of the limit. */
  spentShare: number;
  usedShare: number;
  compact: boolean;
}

export function MeterScale({
  sentence,
  spentShare,
  usedShare,
  compact,
}: MeterScaleProps): ReactNode {
  const isHigh = usedShare >= 850;
  return (
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
      {usedShare > spentShare && (
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
  );
}
