import { TextInput } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { useMutation } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { Button } from "../../components/Button.tsx";
import { ErrorNotice } from "../../components/ErrorNotice.tsx";
import { Row, Stack } from "../../components/Layout.tsx";
import { Select } from "../../components/Select.tsx";
import { serverNowMs } from "../../lib/clock.ts";
import { invalidate } from "../../lib/query-keys.ts";
import type { ApiKey, CreatedKey } from "../../lib/wire.ts";
import { createKey, revokeKey, rotateKey } from "./api.ts";

const DAY_MS = 86_400_000;
const LIFETIMES = [
  { value: "", label: "Never" },
  { value: "7", label: "In 7 days" },
  { value: "30", label: "In 30 days" },
  { value: "90", label: "In 90 days" },
  { value: "365", label: "In a year" },
];
const GRACES = [
  { value: "0", label: "At once" },
  { value: "300", label: "After 5 minutes" },
  { value: "3600", label: "After 1 hour" },
  { value: "86400", label: "After 24 hours" },
  { value: "604800", label: "After 7 days" },
];

function useKeyChange<I, O>(mutationFn: (input: I) => Promise<O>, onSuccess: (output: O) => void) {
  return useMutation({
    mutationFn,
    onSuccess,
    onSettled: invalidate.afterApiKeys,
    // The answer may hold a key; it must not outlive the dialog.
    gcTime: 0,
  });
}

interface CreateProps {
  agentId: string;
  onCreated: (created: CreatedKey) => void;
  onCancel: () => void;
}

export function CreateKeyForm({ agentId, onCreated, onCancel }: CreateProps): ReactNode {
  const [label, setLabel] = useState("");
  const [days, setDays] = useState("");
  const create = useKeyChange(
    () =>
      createKey(
        agentId,
        label.trim(),
        days === "" ? undefined : new Date(serverNowMs() + Number(days) * DAY_MS).toISOString(),
      ),
    onCreated,
  );
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        if (!create.isPending) create.mutate(undefined);
      }}
    >
      <Stack gap={4}>
        <TextInput
          label="Label"
          description="Where this key is going to live"
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

export function RotateKeyForm({
  agentId,
  apiKey,
  onCreated,
  onCancel,
}: CreateProps & { apiKey: ApiKey }): ReactNode {
  const [grace, setGrace] = useState("3600");
  const rotate = useKeyChange(() => rotateKey(agentId, apiKey.id, Number(grace)), onCreated);
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        if (!rotate.isPending) rotate.mutate(undefined);
      }}
    >
      <Stack gap={4}>
        <p>
          A new key takes the place of{" "}
          <code>
            {apiKey.prefix}…{apiKey.last4}
          </code>
          . Until the old one ends, both work.
        </p>
        <Select label="The old key ends" value={grace} onChange={setGrace} options={GRACES} />
        {rotate.error && <ErrorNotice title="The key was not rotated" error={rotate.error} />}
        <Row end>
          <Button onClick={onCancel}>Cancel</Button>
          <Button type="submit" variant="primary" pending={rotate.isPending && "Rotating…"}>
            Rotate key
          </Button>
        </Row>
      </Stack>
    </form>
  );
}

export function RevokeKeyForm({
  agentId,
  apiKey,
  onDone,
}: {
  agentId: string;
  apiKey: ApiKey;
  onDone: () => void;
}): ReactNode {
  const revoke = useKeyChange(
    () => revokeKey(agentId, apiKey.id),
    () => {
      notifications.show({ message: "The key is revoked." });
      onDone();
    },
  );
  return (
    <Stack gap={4}>
      <p>
        Whoever uses{" "}
        <code>
          {apiKey.prefix}…{apiKey.last4}
        </code>{" "}
        is refused from now on. This cannot be undone.
      </p>
      {revoke.error && <ErrorNotice title="The key was not revoked" error={revoke.error} />}
      <Row end>
        <Button onClick={onDone}>Cancel</Button>
        <Button
          variant="danger"
          pending={revoke.isPending && "Revoking…"}
          onClick={() => {
            revoke.mutate(undefined);
          }}
        >
          Revoke key
        </Button>
      </Row>
    </Stack>
  );
}
