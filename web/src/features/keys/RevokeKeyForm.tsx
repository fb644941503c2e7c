import { notifications } from "@mantine/notifications";
import type { ReactNode } from "react";
import { Button } from "../../components/Button.tsx";
import { ErrorNotice } from "../../components/ErrorNotice.tsx";
import { Row, Stack } from "../../components/Layout.tsx";
import type { ApiKey } from "../../lib/wire.ts";
import { revokeKey } from "./api.ts";
import { useKeyChange } from "./use-key-change.ts";

interface RevokeKeyFormProps {
  agentId: string;
  apiKey: ApiKey;
  onDone: () => void;
}

export function RevokeKeyForm({ agentId, apiKey, onDone }: RevokeKeyFormProps): ReactNode {
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
        The key{" "}
        <code>
          {apiKey.prefix}…{apiKey.last4}
        </code>{" "}
        stops working immediately. This cannot be undone.
      </p>
      {revoke.error && <ErrorNotice title="The key was not revoked" error={revoke.error} />}
      <Row end>
        <Button onClick={onDone}>Cancel</Button>
        <Button
          variant="danger"
          pending={revoke.isPending && "Revoking…"}
          onClick={() => {
            revoke.mutate();
          }}
        >
          Revoke key
        </Button>
      </Row>
    </Stack>
  );
}
