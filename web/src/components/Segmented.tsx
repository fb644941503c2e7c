import { type ReactNode, useId } from "react";
import styles from "./Segmented.module.css";

interface SegmentedProps<T extends string> {
  label: string;
  value: T;
  onChange: (value: T) => void;
  options: readonly { value: T; label: ReactNode; spoken?: string }[];
}

/** Radio buttons styled as one control; the browser handles the arrow keys. */
export function Segmented<T extends string>({
  label,
  value,
  onChange,
  options,
}: SegmentedProps<T>): ReactNode {
  const name = useId();
  return (
    <fieldset className={styles.root}>
      <legend className="sr-only">{label}</legend>
      {options.map((option) => (
        <label key={option.value} className={styles.option}>
          <input
            type="radio"
            name={name}
            value={option.value}
            checked={option.value === value}
            aria-label={option.spoken}
            onChange={() => {
              onChange(option.value);
            }}
          />
          <span>{option.label}</span>
        </label>
      ))}
    </fieldset>
  );
}
