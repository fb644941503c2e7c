import { NativeSelect, Text } from "@mantine/core";
import { useInputState } from "@mantine/hooks";
import type { ReactNode } from "react";
import { RequestForm } from "../../components/RequestForm.tsx";
import type { ApiKey } from "../../lib/wire.ts";
import { rotateKey } from "./api.ts";
import type { NewKeyProps } from "./CreateKeyForm.tsx";
import { useKeyChange } from "./use-key-change.ts";

const GRACES = [
  { value: "0", label: "Immediately" },
  { value: "300", label: "After 5 minutes" },
  { value: "3600", label: "After 1 hour" },
  { value: "86400", label: "After 24 hours" },
  { value: "604800", label: "After 7 days" },
];

export function RotateKeyForm({
  agent,
  apiKey,
  onCreated,
  onCancel,
}: NewKeyProps & { apiKey: ApiKey }): ReactNode {
  const [grace, setGrace] = useInputState("3600");
  const rotate = useKeyChange(() => rotateKey(agent, apiKey, Number(grace)), onCreated);
  return (
    <RequestForm
      mutation={rotate}
      failed="The key was not rotated"
      confirm="Rotate key"
      pending="Rotating…"
      onCancel={onCancel}
    >
      <p>
        A new key replaces{" "}
        <code>
          {apiKey.prefix}…{apiKey.last4}
        </code>
        . Both keys work until the old one ends.
      </p>
      <NativeSelect label="The old key ends" value={grace} onChange={setGrace} data={GRACES} />
      <Text c="dimmed" size="sm">
        You sign the rotation.
      </Text>
    </RequestForm>
  );
}
