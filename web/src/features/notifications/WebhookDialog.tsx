import { Checkbox, NativeSelect, Paper, Stack, TextInput } from "@mantine/core";
import { useInputState } from "@mantine/hooks";
import { notifications } from "@mantine/notifications";
import { useMutation } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { ConfirmDialog } from "../../components/ConfirmDialog.tsx";
import { CopyButton } from "../../components/CopyButton.tsx";
import { Dialog } from "../../components/Dialog.tsx";
import { Note } from "../../components/Layout.tsx";
import { RequestForm } from "../../components/RequestForm.tsx";
import { SavedGate } from "../../components/SavedGate.tsx";
import { invalidate } from "../../lib/query-keys.ts";
import type { Webhook, WebhookWithSecret } from "../../lib/wire.ts";
import { changeWebhook, createWebhook, deleteWebhook, rotateSecret } from "./api.ts";
import styles from "./Notifications.module.css";
import { TypeChoice } from "./TypeChoice.tsx";
import { WEBHOOK_NAMES } from "./words.ts";

export type OpenWebhookDialog =
  | { kind: "create" }
  | { kind: "edit" | "rotate" | "delete"; webhook: Webhook }
  | { kind: "reveal"; secret: string }
  | undefined;

const TITLES = {
  create: "New webhook",
  edit: "Edit the webhook",
  rotate: "New secret",
  reveal: "The secret",
  delete: "",
};

interface DialogProps {
  open: OpenWebhookDialog;
  onOpen: (open: OpenWebhookDialog) => void;
}

/** The dialog for all actions on webhooks; a secret is shown only once. */
export function WebhookDialog({ open, onOpen }: DialogProps): ReactNode {
  const close = (): void => {
    onOpen(undefined);
  };
  const reveal = ({ secret }: WebhookWithSecret): void => {
    onOpen({ kind: "reveal", secret });
  };
  const isDeleting = open?.kind === "delete";
  return (
    <>
      <Dialog
        opened={open !== undefined && !isDeleting}
        onClose={close}
        closable={open?.kind !== "reveal"}
        title={open ? TITLES[open.kind] : ""}
        size={open?.kind === "create" || open?.kind === "edit" ? "lg" : "md"}
      >
        {open?.kind === "create" && <WebhookForm onCreated={reveal} onCancel={close} />}
        {open?.kind === "edit" && (
          <WebhookForm webhook={open.webhook} onCreated={reveal} onCancel={close} />
        )}
        {open?.kind === "rotate" && (
          <RotateForm webhook={open.webhook} onRotated={reveal} onCancel={close} />
        )}
        {open?.kind === "reveal" && <Reveal secret={open.secret} onDone={close} />}
      </Dialog>
      <DeleteDialog webhook={isDeleting ? open.webhook : undefined} onDone={close} />
    </>
  );
}

interface FormProps {
  webhook?: Webhook;
  onCreated: (created: WebhookWithSecret) => void;
  onCancel: () => void;
}

function WebhookForm({ webhook, onCreated, onCancel }: FormProps): ReactNode {
  const [url, setUrl] = useInputState(webhook?.url ?? "");
  const [description, setDescription] = useInputState(webhook?.description ?? "");
  const [isAll, setAll] = useInputState(webhook?.types.includes("*") ?? true);
  const [types, setTypes] = useState<string[]>(webhook?.types.filter((one) => one !== "*") ?? []);
  const save = useMutation({
    mutationFn: async () => {
      const draft = {
        url: url.trim(),
        description: description.trim(),
        types: isAll ? ["*"] : types,
      };
      if (!webhook) return createWebhook(draft);
      await changeWebhook(webhook.id, draft);
      return undefined;
    },
    onSuccess: (created) => {
      if (created) onCreated(created);
      else onCancel();
    },
    onSettled: invalidate.afterWebhook,
  });
  return (
    <RequestForm
      mutation={save}
      failed="The webhook was not saved"
      confirm={webhook ? "Save" : "Add webhook"}
      pending="Saving…"
      disabled={url.trim() === "" || (!isAll && types.length === 0)}
      onCancel={onCancel}
    >
      <TextInput
        label="Address"
        description="https, and reachable from the internet. Redirects are not followed."
        type="url"
        placeholder="https://hooks.example.com/purser"
        data-autofocus
        value={url}
        onChange={(event) => {
          setUrl(event);
          save.reset();
        }}
      />
      <TextInput
        label="Description"
        maxLength={200}
        value={description}
        onChange={setDescription}
      />
      <p className={styles.legend}>Events to send</p>
      <Checkbox
        label="All events, including new kinds added later"
        checked={isAll}
        onChange={setAll}
      />
      {!isAll && (
        <TypeChoice
          label="Events to send"
          names={WEBHOOK_NAMES}
          chosen={types}
          onChange={setTypes}
        />
      )}
    </RequestForm>
  );
}

/** The only time that the browser has the secret. */
const Reveal = ({ secret, onDone }: { secret: string; onDone: () => void }): ReactNode => (
  <Stack>
    <Note color="yellow">
      <strong>This secret is shown once.</strong> Your server uses it to check that a message is
      from Purser. Every Standard Webhooks library accepts it unchanged.
    </Note>
    <Paper p="md" radius="md" bg="var(--sunken)">
      <Stack gap="sm" align="flex-start">
        <code data-testid="webhook-secret">{secret}</code>
        <CopyButton value={secret} what="secret" text="Copy secret" variant="filled" />
      </Stack>
    </Paper>
    <SavedGate what="secret" onDone={onDone} />
  </Stack>
);

const GRACES = [
  { value: "0", label: "Ends now" },
  { value: "1", label: "For an hour" },
  { value: "24", label: "For a day" },
  { value: "168", label: "For a week" },
];

function RotateForm({
  webhook,
  onRotated,
  onCancel,
}: {
  webhook: Webhook;
  onRotated: (rotated: WebhookWithSecret) => void;
  onCancel: () => void;
}): ReactNode {
  const [grace, setGrace] = useInputState("24");
  const rotate = useMutation({
    mutationFn: () => rotateSecret(webhook.id, Number(grace)),
    onSuccess: onRotated,
    onSettled: invalidate.afterWebhook,
  });
  return (
    <RequestForm
      mutation={rotate}
      failed="The secret was not changed"
      confirm="Create a new secret"
      pending="Changing…"
      onCancel={onCancel}
    >
      <p>
        Purser signs messages to <strong>{webhook.url}</strong> with a new secret. The old secret
        can sign too for a while, so that your server accepts all messages during the change.
      </p>
      <NativeSelect label="Keep the old secret" value={grace} onChange={setGrace} data={GRACES} />
    </RequestForm>
  );
}

function DeleteDialog({
  webhook,
  onDone,
}: {
  webhook: Webhook | undefined;
  onDone: () => void;
}): ReactNode {
  const remove = useMutation({
    mutationFn: () => deleteWebhook(webhook?.id ?? ""),
    onSuccess: () => {
      notifications.show({ message: "Webhook deleted." });
      onDone();
    },
    onSettled: invalidate.afterWebhook,
  });
  return (
    <ConfirmDialog
      opened={webhook !== undefined}
      disabled={webhook === undefined}
      title="Delete the webhook"
      mutation={remove}
      failed="The webhook was not deleted"
      confirm="Delete"
      pending="Deleting…"
      onCancel={() => {
        remove.reset();
        onDone();
      }}
    >
      {webhook?.url} gets no more messages. Its secret and its delivery log are deleted.
    </ConfirmDialog>
  );
}
