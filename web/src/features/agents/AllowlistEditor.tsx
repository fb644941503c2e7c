import { type ReactNode, useState } from "react";
import { Address } from "../../components/Address.tsx";
import { Button } from "../../components/Button.tsx";
import { TrashIcon } from "../../components/icons.tsx";
import { Row } from "../../components/Layout.tsx";
import { isSameAddress } from "../../lib/address.ts";
import { AddPayee } from "./AddPayee.tsx";
import styles from "./AllowlistEditor.module.css";
import type { AllowlistDraft } from "./api.ts";
import { PasteMany } from "./PasteMany.tsx";

interface AllowlistEditorProps {
  value: AllowlistDraft[];
  onChange: (value: AllowlistDraft[]) => void;
  /** A way to choose payees from elsewhere, such as the marketplace. */
  picker?: (
    add: (entries: AllowlistDraft[]) => void,
    has: (address: string) => boolean,
  ) => ReactNode;
}

export function AllowlistEditor({ value, onChange, picker }: AllowlistEditorProps): ReactNode {
  const [isPasting, setPasting] = useState(false);
  const has = (candidate: string): boolean =>
    value.some((entry) => isSameAddress(entry.address, candidate));
  const add = (entries: AllowlistDraft[]): void => {
    onChange([...value, ...entries.filter((entry) => !has(entry.address))]);
  };
  return (
    <div className={styles.root}>
      {value.length > 0 && (
        <ul className={styles.list} aria-label="Allowed payees">
          {value.map((entry) => (
            <PayeeRow
              key={entry.address}
              entry={entry}
              onRename={(label) => {
                onChange(value.map((other) => (other === entry ? { ...entry, label } : other)));
              }}
              onRemove={() => {
                onChange(value.filter((other) => other !== entry));
              }}
            />
          ))}
        </ul>
      )}
      <AddPayee
        has={has}
        onAdd={(entry) => {
          add([entry]);
        }}
      />
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
        onAdd={add}
      />
    </div>
  );
}

interface PayeeRowProps {
  entry: AllowlistDraft;
  onRename: (label: string) => void;
  onRemove: () => void;
}

function PayeeRow({ entry, onRename, onRemove }: PayeeRowProps): ReactNode {
  return (
    <li className={styles.entry}>
      <input
        className={styles.label}
        aria-label={`Label of ${entry.address}`}
        placeholder="No label"
        maxLength={80}
        value={entry.label}
        onChange={(event) => {
          onRename(event.currentTarget.value);
        }}
      />
      <Address value={entry.address} copy={false} />
      <Button
        variant="icon"
        size="small"
        aria-label={`Remove ${entry.label || entry.address}`}
        onClick={onRemove}
      >
        <TrashIcon size={16} />
      </Button>
    </li>
  );
}
