import { type ReactNode, useId } from "react";
import styles from "./Select.module.css";

interface SelectProps<T extends string> {
  label: string;
  isLabelHidden?: boolean;
  description?: string;
  value: T;
  onChange: (value: T) => void;
  options: readonly { value: T; label: string }[];
}

/** The platform's native select: works well on phones and by keyboard. */
export function Select<T extends string>({
  label,
  isLabelHidden,
  description,
  value,
  onChange,
  options,
}: SelectProps<T>): ReactNode {
  const id = useId();
  return (
    <div className={styles.root}>
      <label htmlFor={id} className={isLabelHidden === true ? "sr-only" : styles.label}>
        {label}
      </label>
      {description !== undefined && (
        <p id={`${id}-description`} className={styles.description}>
          {description}
        </p>
      )}
      <select
        id={id}
        aria-describedby={description === undefined ? undefined : `${id}-description`}
        className={styles.select}
        value={value}
        onChange={(event) => {
          onChange(event.currentTarget.value as T);
        }}
      >
        {options.map((option) => (
          <option key={option.value} value={option.value}>
            {option.label}
          </option>
        ))}
      </select>
    </div>
  );
}
