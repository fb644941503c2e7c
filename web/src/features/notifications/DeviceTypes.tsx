import { Button, Checkbox, Group, Stack, Text } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { useMutation } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { ConfirmDialog } from "../../components/ConfirmDialog.tsx";
import { PendingButton } from "../../components/PendingButton.tsx";
import { toastFailure } from "../../components/toast.ts";
import { invalidate } from "../../lib/query-keys.ts";
import type { PushDevice } from "../../lib/wire.ts";
import { chooseEvents } from "./api.ts";
import { DEVICE_GROUPS, silencedBy } from "./device-groups.ts";
import styles from "./Notifications.module.css";
import { TypeChoice } from "./TypeChoice.tsx";
import { typeLabel, URGENT_NAMES } from "./words.ts";

interface DeviceTypesProps {
  device: PushDevice;
  others: readonly PushDevice[];
  onDone: () => void;
}

/** Which events a device gets: by groups, or one by one. */
export function DeviceTypes({ device, others, onDone }: DeviceTypesProps): ReactNode {
  const [chosen, setChosen] = useState<readonly string[]>(device.types);
  const [isAsking, setAsking] = useState(false);
  const silenced = silencedBy(device.types, chosen, others);
  const save = useMutation({
    mutationFn: () => chooseEvents(device.id, chosen),
    onSuccess: () => {
      notifications.show({ message: "This device gets the chosen events from now on." });
      onDone();
    },
    onError: toastFailure("The events were not changed"),
    onSettled: invalidate.afterPush,
  });
  return (
    <div role="group" aria-label={`Events for ${device.label}`} className={styles.events}>
      <EventGroup label="Everything" names={URGENT_NAMES} chosen={chosen} onChange={setChosen} />
      {DEVICE_GROUPS.map((group) => (
        <EventGroup key={group.label} {...group} chosen={chosen} onChange={setChosen} />
      ))}
      <details>
        <summary>Choose one by one</summary>
        <TypeChoice
          label="Single events"
          names={URGENT_NAMES}
          chosen={chosen}
          onChange={setChosen}
        />
      </details>
      <Group>
        <PendingButton
          variant="filled"
          size="xs"
          disabled={chosen.length === 0}
          pending={save.isPending && "Saving…"}
          onClick={() => {
            if (silenced.length > 0) setAsking(true);
            else save.mutate();
          }}
        >
          Save events
        </PendingButton>
        <Button size="xs" onClick={onDone}>
          Cancel
        </Button>
        {chosen.length === 0 && (
          <Text size="sm" c="dimmed" role="status">
            Choose at least one event, or remove the device.
          </Text>
        )}
      </Group>
      <ConfirmDialog
        opened={isAsking}
        title="No device would show these"
        confirm="Save anyway"
        onCancel={() => {
          setAsking(false);
        }}
        onConfirm={() => {
          setAsking(false);
          save.mutate();
        }}
      >
        This is the last device that gets:{" "}
        {silenced.map((type) => typeLabel(type).label).join(", ")}. Afterwards you see them in the
        app, and by e-mail or webhook if you set one up.
      </ConfirmDialog>
    </div>
  );
}

interface EventGroupProps {
  label: string;
  hint?: string;
  names: readonly string[];
  chosen: readonly string[];
  onChange: (chosen: string[]) => void;
}

function EventGroup({ label, hint, names, chosen, onChange }: EventGroupProps): ReactNode {
  const count = names.filter((name) => chosen.includes(name)).length;
  const isAll = count === names.length;
  return (
    <Stack gap={0}>
      <Checkbox
        label={label}
        checked={isAll}
        indeterminate={count > 0 && !isAll}
        onChange={() => {
          const rest = chosen.filter((name) => !names.includes(name));
          onChange(isAll ? rest : [...rest, ...names]);
        }}
      />
      {hint !== undefined && (
        <Text c="dimmed" size="sm" className={styles.hint}>
          {hint}
        </Text>
      )}
    </Stack>
  );
}
