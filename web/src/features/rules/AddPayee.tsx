import { Button, TextInput } from "@mantine/core";
import { useInputState } from "@mantine/hooks";
import { type ReactNode, useRef, useState } from "react";
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
  const [address, setAddress] = useInputState("");
  const [label, setLabel] = useInputState("");
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
        value={address}
        error={error}
        onKeyDown={onEnter}
        onChange={(event) => {
          setAddress(event);
          setError(undefined);
        }}
      />
      <TextInput
        label="Label"
        placeholder="Weather API"
        maxLength={80}
        value={label}
        onKeyDown={onEnter}
        onChange={setLabel}
      />
      <Button className={styles.button} onClick={() => void add()}>
        Add
      </Button>
    </div>
  );
}
