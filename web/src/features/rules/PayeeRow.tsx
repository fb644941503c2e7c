import { ActionIcon } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import type { ReactNode } from "react";
import { PAYEE_FIELDS, type PayeeFieldName } from "../../../../packages/rules/src/fields.ts";
import { Address } from "../../components/Address.tsx";
import { SettingsIcon, TrashIcon } from "../../components/icons.tsx";
import { Fields } from "../../components/Layout.tsx";
import styles from "./AllowlistEditor.module.css";
import { type AllowlistDraft, checkPayee, conditionsOf } from "./rules.ts";
import { SettingField } from "./SettingField.tsx";

interface PayeeRowProps {
  entry: AllowlistDraft;
  onChange: (change: Partial<AllowlistDraft>) => void;
  onRemove: () => void;
}

export function PayeeRow({ entry, onChange, onRemove }: PayeeRowProps): ReactNode {
  const [isOpen, { toggle }] = useDisclosure();
  const name = entry.label || entry.address;
  const errors = checkPayee(entry);
  const conditions = Object.keys(errors).length > 0 ? "Correct its limits." : conditionsOf(entry);
  return (
    <li className={styles.entry}>
      <input
        className={styles.label}
        aria-label={`Label of ${entry.address}`}
        placeholder="No label"
        maxLength={80}
        value={entry.label}
        onChange={(event) => {
          onChange({ label: event.currentTarget.value });
        }}
      />
      <Address value={entry.address} copy={false} />
      <ActionIcon
        size="sm"
        aria-label={`Limits of ${name}`}
        title="Limits of this payee"
        aria-expanded={isOpen}
        onClick={toggle}
      >
        <SettingsIcon size={16} />
      </ActionIcon>
      <ActionIcon size="sm" aria-label={`Remove ${name}`} onClick={onRemove}>
        <TrashIcon size={16} />
      </ActionIcon>
      {conditions !== "" && <p className={styles.conditions}>{conditions}</p>}
      {isOpen && (
        <div className={styles.terms} role="group" aria-label={`Limits of ${name}`}>
          <Fields>
            {PAYEE_FIELDS.map((field) => {
              const name = field.name as PayeeFieldName;
              return (
                <SettingField
                  key={name}
                  field={field}
                  value={entry[name] ?? ""}
                  error={errors[name]}
                  onChange={(value) => {
                    onChange({ [name]: value });
                  }}
                />
              );
            })}
          </Fields>
        </div>
      )}
    </li>
  );
}
