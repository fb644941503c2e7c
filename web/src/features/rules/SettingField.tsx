import { NativeSelect, TextInput } from "@mantine/core";
import type { ReactNode } from "react";
import type { Field } from "../../../../packages/rules/src/fields.ts";
import { AmountInput } from "../../components/AmountInput.tsx";
import { SHOW } from "../../lib/orders/terms.ts";
import { ExpiryField } from "./ExpiryField.tsx";

interface SettingFieldProps {
  field: Field;
  /** As typed; empty means that it is not set. */
  value: string;
  error?: string;
  onChange: (value: string) => void;
}

/** The control of a setting, by its kind. */
export function SettingField({ field, value, error, onChange }: SettingFieldProps): ReactNode {
  const { kind, label, help, required } = field;
  const placeholder = required === true ? "5.00" : capitalized(kind.text(kind.unset, SHOW));
  if (kind.offers) {
    // A value that is not offered is one that a request set.
    const values = [...new Set([...kind.offers.map(String), value])];
    const data = values.map((offer) => {
      const read = kind.readWire(kind.readTyped(offer));
      return { value: offer, label: read.ok ? capitalized(kind.text(read.value, SHOW)) : offer };
    });
    return (
      <NativeSelect
        label={label}
        description={help}
        value={value}
        error={error}
        onChange={(event) => {
          onChange(event.currentTarget.value);
        }}
        data={data}
      />
    );
  }
  switch (kind.name) {
    case "amount":
    case "held":
      return (
        <AmountInput
          label={label}
          description={help}
          placeholder={placeholder}
          required={required}
          value={value}
          error={error}
          onChange={onChange}
        />
      );
    case "time":
      return <ExpiryField label={label} value={value} error={error} onChange={onChange} />;
    default: {
      const isCount = kind.name === "count";
      return (
        <TextInput
          label={label}
          description={help}
          placeholder={placeholder}
          inputMode={isCount ? "numeric" : undefined}
          value={value}
          error={error}
          onChange={(event) => {
            const typed = event.currentTarget.value;
            onChange(isCount ? typed.replaceAll(/\D/g, "") : typed);
          }}
        />
      );
    }
  }
}

const capitalized = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1);
