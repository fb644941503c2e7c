import { notifications } from "@mantine/notifications";
import type { ReactNode } from "react";
import { RequestForm } from "../../components/RequestForm.tsx";
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
    <RequestForm
      mutation={revoke}
      failed="The key was not revoked"
      confirm="Revoke key"
      pending="Revoking…"
      color="red"
      onCancel={onDone}
    >
      <p>
        The key{" "}
        <code>
          {apiKey.prefix}…{apiKey.last4}
        </code>{" "}
        stops working immediately. This cannot be undone.
      </p>
    </RequestForm>
  );
}
