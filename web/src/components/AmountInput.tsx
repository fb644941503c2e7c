import { TextInput } from "@mantine/core";
import type { ReactNode } from "react";
import styles from "./AmountInput.module.css";

interface AmountInputProps {
  label: string;
  description?: ReactNode;
  value: string;
  onChange: (value: string) => void;
  error?: string;
  placeholder?: string;
  required?: boolean;
  rightSection?: ReactNode;
}

/**
 * A text field, because number fields round, change on scrolling and use floats. A decimal comma becomes a
 * point.
 */
export function AmountInput({
  label,
  description,
  value,
  onChange,
  error,
  placeholder,
  required,
  rightSection,
}: AmountInputProps): ReactNode {
  return (
    <TextInput
      label={label}
      description={description}
      value={value}
      onChange={(event) => {
        onChange(event.currentTarget.value.replace(",", ".").replaceAll(/[^\d.]/g, ""));
      }}
      error={error}
      placeholder={placeholder}
      required={required}
      inputMode="decimal"
      autoComplete="off"
      classNames={{ input: styles.input }}
      rightSection={rightSection ?? <span className={styles.unit}>USDC</span>}
      rightSectionWidth={rightSection === undefined ? 58 : 64}
      rightSectionPointerEvents={rightSection === undefined ? "none" : "all"}
    />
  );
}
