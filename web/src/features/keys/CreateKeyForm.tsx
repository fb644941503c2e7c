import { NativeSelect, Text, TextInput } from "@mantine/core";
import { useInputState } from "@mantine/hooks";
import type { ReactNode } from "react";
import { RequestForm } from "../../components/RequestForm.tsx";
import { serverNowMs } from "../../lib/clock.ts";
import type { Agent, CreatedKey } from "../../lib/wire.ts";
import { createKey } from "./api.ts";
import { useKeyChange } from "./use-key-change.ts";

const DAY_MS = 86_400_000;
const LIFETIMES = [
  { value: "", label: "Never" },
  { value: "7", label: "In 7 days" },
  { value: "30", label: "In 30 days" },
  { value: "90", label: "In 90 days" },
  { value: "365", label: "In a year" },
];

export interface NewKeyProps {
  agent: Agent;
  onCreated: (created: CreatedKey) => void;
  onCancel: () => void;
}

export function CreateKeyForm({ agent, onCreated, onCancel }: NewKeyProps): ReactNode {
  const [label, setLabel] = useInputState("");
  const [days, setDays] = useInputState("");
  const create = useKeyChange(
    () =>
      createKey(
        agent,
        label.trim(),
        days === "" ? null : new Date(serverNowMs() + Number(days) * DAY_MS).toISOString(),
      ),
    onCreated,
  );
  return (
    <RequestForm
      mutation={create}
      failed="The key was not created"
      confirm="Create key"
      pending="Creating…"
      onCancel={onCancel}
    >
      <TextInput
        label="Label"
        description="Where you will use this key"
        placeholder="production"
        maxLength={80}
        data-autofocus
        value={label}
        onChange={setLabel}
      />
      <NativeSelect label="Expires" value={days} onChange={setDays} data={LIFETIMES} />
      <Text c="dimmed" size="sm">
        You sign the new key.
      </Text>
    </RequestForm>
  );
}
