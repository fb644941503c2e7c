import { TextInput } from "@mantine/core";
import { type ReactNode, useRef, useState } from "react";
import { Address } from "../../components/Address.tsx";
import { Button } from "../../components/Button.tsx";
import { TrashIcon } from "../../components/icons.tsx";
import { Row } from "../../components/Layout.tsx";
import { checkAddress, isSameAddress } from "../../lib/address.ts";
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
  const [address, setAddress] = useState("");
  const [label, setLabel] = useState("");
  const [error, setError] = useState<string>();
  const [isPasting, setPasting] = useState(false);
  const field = useRef<HTMLInputElement>(null);

  const has = (candidate: string): boolean =>
    value.some((entry) => isSameAddress(entry.address, candidate));
  const add = (entries: AllowlistDraft[]): void => {
    onChange([...value, ...entries.filter((entry) => !has(entry.address))]);
  };

  const onAdd = async (): Promise<void> => {
    const check = await checkAddress(address);
    if (!check.ok) {
      setError(check.reason);
      return;
    }
    if (has(check.address)) {
      setError("This address is on the list already.");
      return;
    }
    add([{ address: check.address, label: label.trim() }]);
    setAddress("");
    setLabel("");
    setError(undefined);
    field.current?.focus();
  };
  const onEnter = (event: React.KeyboardEvent): void => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    void onAdd();
  };

  return (
    <div className={styles.root}>
      {value.length > 0 && (
        <ul className={styles.list} aria-label="Allowed payees">
          {value.map((entry) => (
            <li key={entry.address} className={styles.entry}>
              <input
                className={styles.label}
                aria-label={`Label of ${entry.address}`}
                placeholder="No label"
                maxLength={80}
                value={entry.label}
                onChange={(event) => {
                  const next = event.currentTarget.value;
                  onChange(
                    value.map((other) => (other === entry ? { ...entry, label: next } : other)),
                  );
                }}
              />
              <Address value={entry.address} copy={false} />
              <Button
                variant="icon"
                size="small"
                aria-label={`Remove ${entry.label || entry.address}`}
                onClick={() => {
                  onChange(value.filter((other) => other !== entry));
                }}
              >
                <TrashIcon size={16} />
              </Button>
            </li>
          ))}
        </ul>
      )}
      <div className={styles.add}>
        <TextInput
          ref={field}
          className={styles.address}
          label="Address"
          placeholder="0x…"
          spellCheck={false}
          autoComplete="off"
          value={address}
          error={error}
          onKeyDown={onEnter}
          onChange={(event) => {
            setAddress(event.currentTarget.value);
            setError(undefined);
          }}
        />
        <TextInput
          label="Label"
          placeholder="Weather API"
          maxLength={80}
          autoComplete="off"
          value={label}
          onKeyDown={onEnter}
          onChange={(event) => {
            setLabel(event.currentTarget.value);
          }}
        />
        <Button className={styles.button} onClick={() => void onAdd()}>
          Add
        </Button>
      </div>
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
