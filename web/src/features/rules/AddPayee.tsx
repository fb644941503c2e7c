import { TextInput } from "@mantine/core";
import { type ReactNode, useRef, useState } from "react";
import { Button } from "../../components/Button.tsx";
import { checkAddress } from "../../lib/address.ts";
import styles from "./AllowlistEditor.module.css";
import type { AllowlistDraft } from "./rules.ts";

interface AddPayeeProps {
  has: (address: string) => boolean;
  onAdd: (entry: AllowlistDraft) => void;
}

/**
 * A field for one address, with its checksum checked. Enter adds it, and does not submit the form around it.
 */
export function AddPayee({ has, onAdd }: AddPayeeProps): ReactNode {
  const [address, setAddress] = useState("");
  const [label, setLabel] = useState("");
  const [error, setError] = useState<string>();
  const field = useRef<HTMLInputElement>(null);

  const add = async (): Promise<void> => {
    const check = await checkAddress(address);
    if (!check.ok) return setError(check.reason);
    if (has(check.address)) return setError("This address is already on the list.");
    onAdd({ address: check.address, label: label.trim() });
    setAddress("");
    setLabel("");
    field.current?.focus();
  };
  const onEnter = (event: React.KeyboardEvent): void => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    void add();
  };

  return (
    <div className={styles.add}>
      <TextInput
        ref={field}
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
      <Button className={styles.button} onClick={() => void add()}>
        Add
      </Button>
    </div>
  );
}
