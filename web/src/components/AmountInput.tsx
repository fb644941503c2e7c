import { Text, TextInput, type TextInputProps } from "@mantine/core";
import type { ReactNode } from "react";

interface AmountInputProps extends Omit<TextInputProps, "onChange"> {
  onChange: (value: string) => void;
}

/**
 * A text field, because number fields round, change on scrolling and use floats. A decimal comma becomes a
 * point.
 */
export const AmountInput = ({ onChange, ...rest }: AmountInputProps): ReactNode => (
  <TextInput
    inputMode="decimal"
    rightSection={
      <Text span c="dimmed" size="sm">
        USDC
      </Text>
    }
    rightSectionWidth={60}
    rightSectionPointerEvents="none"
    {...rest}
    onChange={(event) => {
      onChange(event.currentTarget.value.replace(",", ".").replaceAll(/[^\d.]/g, ""));
    }}
  />
);
