import { type ReactNode, useState } from "react";
import { Button } from "../../components/Button.tsx";
import { ErrorNotice } from "../../components/ErrorNotice.tsx";
import { Muted, Row, Stack } from "../../components/Layout.tsx";
import { Select } from "../../components/Select.tsx";
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
  const [grace, setGrace] = useState("3600");
  const rotate = useKeyChange(() => rotateKey(agent, apiKey, Number(grace)), onCreated);
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        if (!rotate.isPending) rotate.mutate();
      }}
    >
      <Stack gap={4}>
        <p>
          A new key replaces{" "}
          <code>
            {apiKey.prefix}…{apiKey.last4}
          </code>
          . Both keys work until the old one ends.
        </p>
        <Select label="The old key ends" value={grace} onChange={setGrace} options={GRACES} />
        {rotate.error && <ErrorNotice title="The key was not rotated" error={rotate.error} />}
        <Muted>Your wallet signs the rotation.</Muted>
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
