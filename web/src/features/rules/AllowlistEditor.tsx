import { type ReactNode, useState } from "react";
import { Button } from "../../components/Button.tsx";
import { Row } from "../../components/Layout.tsx";
import { isSamePayee } from "../../lib/orders/terms.ts";
import { AddPayee } from "./AddPayee.tsx";
import styles from "./AllowlistEditor.module.css";
import type { AllowlistDraft } from "./rules.ts";
import { PasteMany } from "./PasteMany.tsx";
import { PayeeRow } from "./PayeeRow.tsx";

interface AllowlistEditorProps {
  value: AllowlistDraft[];
  onChange: (value: AllowlistDraft[]) => void;
  picker?: PayeePicker;
}

/** Lets the user choose payees from elsewhere, such as the marketplace. */
export type PayeePicker = (
  add: (entry: AllowlistDraft) => void,
  has: (address: string) => boolean,
) => ReactNode;

export function AllowlistEditor({ value, onChange, picker }: AllowlistEditorProps): ReactNode {
  const [isPasting, setPasting] = useState(false);
  const isListed = (wanted: { address: string; site?: string }): boolean =>
    value.some((entry) => isSamePayee(entry, wanted));
  const has = (address: string): boolean => isListed({ address });
  const addMany = (entries: AllowlistDraft[]): void => {
    onChange([...value, ...entries.filter((entry) => !isListed(entry))]);
  };
  const add = (entry: AllowlistDraft): void => {
    addMany([entry]);
  };
  return (
    <div className={styles.root}>
      {value.length === 0 ? (
        <p className={styles.empty}>Add at least one payee, or the agent cannot pay.</p>
      ) : (
        <ul className={styles.list} aria-label="Allowed payees">
          {value.map((entry) => (
            <PayeeRow
              key={`${entry.address} ${entry.site ?? ""}`}
              entry={entry}
              onChange={(change) => {
                onChange(value.map((other) => (other === entry ? { ...entry, ...change } : other)));
              }}
              onRemove={() => {
                onChange(value.filter((other) => other !== entry));
              }}
            />
          ))}
        </ul>
      )}
      <AddPayee has={has} onAdd={add} />
      <Row>
        <Button
          size="small"
          onClick={() => {
            setPasting(true);
          }}
        >
          Paste many
        </Button>
        {picker?.(add, has)}
      </Row>
      <PasteMany
        opened={isPasting}
        onClose={() => {
          setPasting(false);
        }}
        known={value}
        onAdd={addMany}
      />
    </div>
  );
}
