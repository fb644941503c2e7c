import { Checkbox, TextInput } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { useMutation } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { Button } from "../../components/Button.tsx";
import { ConfirmDialog } from "../../components/ConfirmDialog.tsx";
import { CopyButton } from "../../components/CopyButton.tsx";
import { Dialog } from "../../components/Dialog.tsx";
import { ErrorNotice } from "../../components/ErrorNotice.tsx";
import { Note, Row, Stack } from "../../components/Layout.tsx";
import { Select } from "../../components/Select.tsx";
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
  const [url, setUrl] = useState(webhook?.url ?? "");
  const [description, setDescription] = useState(webhook?.description ?? "");
  const [isAll, setAll] = useState(webhook?.types.includes("*") ?? true);
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
    <form
      noValidate
      onSubmit={(event) => {
        event.preventDefault();
        if (!save.isPending) save.mutate();
      }}
    >
      <Stack gap={4}>
        <TextInput
          label="Address"
          description="https, and reachable from the internet. Redirects are not followed."
          type="url"
          placeholder="https://hooks.example.com/purser"
          autoComplete="off"
          data-autofocus
          value={url}
          onChange={(event) => {
            setUrl(event.currentTarget.value);
            save.reset();
          }}
        />
        <TextInput
          label="Description"
          maxLength={200}
          autoComplete="off"
          value={description}
          onChange={(event) => {
            setDescription(event.currentTarget.value);
          }}
        />
        <p className={styles.legend}>Events to send</p>
        <Checkbox
          label="All events, including new kinds added later"
          checked={isAll}
          onChange={(event) => {
            setAll(event.currentTarget.checked);
          }}
        />
        {!isAll && (
          <TypeChoice
            label="Events to send"
            names={WEBHOOK_NAMES}
            chosen={types}
            onChange={setTypes}
          />
        )}
        {save.error && <ErrorNotice title="The webhook was not saved" error={save.error} />}
        <Row end>
          <Button onClick={onCancel}>Cancel</Button>
          <Button
            type="submit"
            variant="primary"
            disabled={url.trim() === "" || (!isAll && types.length === 0)}
            pending={save.isPending && "Saving…"}
          >
            {webhook ? "Save" : "Add webhook"}
          </Button>
        </Row>
      </Stack>
    </form>
  );
}

/** The only time that the browser has the secret. */
function Reveal({ secret, onDone }: { secret: string; onDone: () => void }): ReactNode {
  const [isSaved, setSaved] = useState(false);
  return (
    <Stack gap={4}>
      <Note tone="warn">
        <strong>This secret is shown once.</strong> Your server uses it to check that a message is
        from Purser. Every Standard Webhooks library accepts it unchanged.
      </Note>
      <div className={styles.secret}>
        <code data-testid="webhook-secret">{secret}</code>
        <Row>
          <CopyButton value={secret} what="secret" text="Copy secret" variant="primary" />
        </Row>
      </div>
      <Checkbox
        label="I saved the secret"
        checked={isSaved}
        onChange={(event) => {
          setSaved(event.currentTarget.checked);
        }}
      />
      <Row end>
        <Button variant="primary" disabled={!isSaved} onClick={onDone}>
          Done
        </Button>
      </Row>
    </Stack>
  );
}

const GRACES = [
  { value: "0", label: "Ends now" },
  { value: "1", label: "For an hour" },
  { value: "24", label: "For a day" },
  { value: "168", label: "For a week" },
] as const;

function RotateForm({
  webhook,
  onRotated,
  onCancel,
}: {
  webhook: Webhook;
  onRotated: (rotated: WebhookWithSecret) => void;
  onCancel: () => void;
}): ReactNode {
  const [grace, setGrace] = useState<(typeof GRACES)[number]["value"]>("24");
  const rotate = useMutation({
    mutationFn: () => rotateSecret(webhook.id, Number(grace)),
    onSuccess: onRotated,
    onSettled: invalidate.afterWebhook,
  });
  return (
    <Stack gap={4}>
      <p>
        Purser signs messages to <strong>{webhook.url}</strong> with a new secret. The old secret
        can sign too for a while, so that your server accepts all messages during the change.
      </p>
      <Select label="Keep the old secret" value={grace} onChange={setGrace} options={GRACES} />
      {rotate.error && <ErrorNotice title="The secret was not changed" error={rotate.error} />}
      <Row end>
        <Button onClick={onCancel}>Cancel</Button>
        <Button
          variant="primary"
          pending={rotate.isPending && "Changing…"}
          onClick={() => {
            rotate.mutate();
          }}
        >
          Create a new secret
        </Button>
      </Row>
    </Stack>
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
    mutationFn: (id: string) => deleteWebhook(id),
    onSuccess: () => {
      notifications.show({ message: "Webhook deleted." });
      onDone();
    },
    onSettled: invalidate.afterWebhook,
  });
  return (
    <ConfirmDialog
      opened={webhook !== undefined}
      title="Delete the webhook"
      confirm="Delete"
      pending={remove.isPending && "Deleting…"}
      failed="The webhook was not deleted"
      error={remove.error}
      onCancel={() => {
        remove.reset();
        onDone();
      }}
      onConfirm={() => {
        if (webhook) remove.mutate(webhook.id);
      }}
    >
      {webhook?.url} gets no more messages. Its secret and its delivery log are deleted.
    </ConfirmDialog>
  );
}
