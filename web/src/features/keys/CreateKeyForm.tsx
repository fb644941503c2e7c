import { TextInput } from "@mantine/core";
import { type ReactNode, useState } from "react";
import { Button } from "../../components/Button.tsx";
import { ErrorNotice } from "../../components/ErrorNotice.tsx";
import { Muted, Row, Stack } from "../../components/Layout.tsx";
import { Select } from "../../components/Select.tsx";
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
  const [label, setLabel] = useState("");
  const [days, setDays] = useState("");
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
    <form
      onSubmit={(event) => {
        event.preventDefault();
        if (!create.isPending) create.mutate();
      }}
    >
      <Stack gap={4}>
        <TextInput
          label="Label"
          description="Where you will use this key"
          placeholder="production"
          maxLength={80}
          autoComplete="off"
          data-autofocus
          value={label}
          onChange={(event) => {
            setLabel(event.currentTarget.value);
          }}
        />
        <Select label="Expires" value={days} onChange={setDays} options={LIFETIMES} />
        {create.error && <ErrorNotice title="The key was not created" error={create.error} />}
        <Muted>Your wallet signs the new key.</Muted>
        <Row end>
          <Button onClick={onCancel}>Cancel</Button>
          <Button type="submit" variant="primary" pending={create.isPending && "Creating…"}>
            Create key
          </Button>
        </Row>
      </Stack>
    </form>
  );
}
