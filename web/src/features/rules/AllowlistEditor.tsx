import { Button, Group, Stack, Text } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import type { ReactNode } from "react";
import { isSamePayee } from "../../lib/orders/terms.ts";
import { OwnerOnly } from "../../shared/session/OwnerOnly.tsx";
import { AddPayee } from "./AddPayee.tsx";
import styles from "./AllowlistEditor.module.css";
import { PasteMany } from "./PasteMany.tsx";
import { PayeeRow } from "./PayeeRow.tsx";
import type { AllowlistDraft } from "./rules.ts";
import { SuggestedPayees } from "./SuggestedPayees.tsx";
import type { SuggestedPayee } from "./templates.ts";

interface AllowlistEditorProps {
  value: AllowlistDraft[];
  onChange: (value: AllowlistDraft[]) => void;
  picker?: PayeePicker;
  suggested?: readonly SuggestedPayee[];
  /** None while it is created. */
  agentId?: string;
}

/** Lets the user choose payees from elsewhere, such as the marketplace. */
export type PayeePicker = (
  add: (entry: AllowlistDraft) => void,
  has: (address: string) => boolean,
) => ReactNode;

export function AllowlistEditor(props: AllowlistEditorProps): ReactNode {
  const { value, onChange, picker, suggested = [], agentId } = props;
  const [isPasting, pasting] = useDisclosure();
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
    <Stack>
      {value.length === 0 ? (
        <Text c="dimmed" size="sm">
          Add at least one payee, or the agent cannot pay.
        </Text>
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
      <OwnerOnly>
        <SuggestedPayees suggested={suggested} value={value} onChange={onChange} />
        <AddPayee agentId={agentId} has={has} onAdd={add} />
        <Group>
          <Button size="xs" onClick={pasting.open}>
            Paste many
          </Button>
          {picker?.(add, has)}
        </Group>
      </OwnerOnly>
      <PasteMany opened={isPasting} onClose={pasting.close} known={value} onAdd={addMany} />
    </Stack>
  );
}
