import { Badge, Button, EmptyState, Group, Stack, Text } from "@mantine/core";
import { useMutation, useQuery } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { PlusIcon } from "../../components/icons.tsx";
import { Note, Section } from "../../components/Layout.tsx";
import { MutationButton } from "../../components/PendingButton.tsx";
import { QueryStatus } from "../../components/QueryStatus.tsx";
import { TimeAgo, TimeUntil } from "../../components/RelativeTime.tsx";
import { Skeleton } from "../../components/Skeleton.tsx";
import { toastFailure } from "../../components/toast.ts";
import { plural } from "../../lib/plural.ts";
import { invalidate } from "../../lib/query-keys.ts";
import { useParameter } from "../../lib/use-parameter.ts";
import type { Webhook } from "../../lib/wire.ts";
import { changeWebhook, testWebhook, webhooksQuery } from "./api.ts";
import { Deliveries } from "./Deliveries.tsx";
import styles from "./Notifications.module.css";
import { type OpenWebhookDialog, WebhookDialog } from "./WebhookDialog.tsx";
import { typeLabel } from "./words.ts";

const MOST = 10;

export function Webhooks(): ReactNode {
  const query = useQuery(webhooksQuery);
  const [open, setOpen] = useState<OpenWebhookDialog>();
  const [shownId, setShownId] = useParameter("webhook");
  const webhooks = query.data?.items ?? [];
  const add = (
    <Button
      variant={webhooks.length === 0 ? "filled" : "default"}
      disabled={webhooks.length >= MOST}
      onClick={() => {
        setOpen({ kind: "create" });
      }}
    >
      <PlusIcon size={16} />
      Add webhook
    </Button>
  );
  return (
    <Section
      flush
      title="Webhooks"
      hint={`Purser sends events to your server, signed as Standard Webhooks. At most ${MOST}.`}
      actions={webhooks.length > 0 && add}
    >
      <QueryStatus query={query} what="webhooks" failed="The webhooks could not be loaded">
        <Skeleton shape="row" count={2} />
      </QueryStatus>
      {query.isSuccess && webhooks.length === 0 && (
        <EmptyState
          title="No webhooks"
          description="A webhook is an https address of your server. Purser sends the events you choose there immediately and retries until your server accepts them."
        >
          {add}
        </EmptyState>
      )}
      <ul>
        {webhooks.map((webhook) => (
          <Item
            key={webhook.id}
            webhook={webhook}
            onOpen={setOpen}
            onLog={() => {
              setShownId(webhook.id);
            }}
          />
        ))}
      </ul>
      <WebhookDialog open={open} onOpen={setOpen} />
      <Deliveries
        webhook={webhooks.find(({ id }) => id === shownId)}
        onClose={() => {
          setShownId("");
        }}
      />
    </Section>
  );
}

const STATES: Readonly<Record<string, ReactNode>> = {
  active: <Badge color="green">Active</Badge>,
  paused: <Badge color="yellow">Paused</Badge>,
  disabled: <Badge color="red">Disabled</Badge>,
};

const typesText = (types: readonly string[]): string =>
  types.includes("*")
    ? "Everything"
    : types.length > 3
      ? plural(types.length, "kind")
      : types.map((type) => typeLabel(type).label).join(", ");

interface ItemProps {
  webhook: Webhook;
  onOpen: (open: OpenWebhookDialog) => void;
  onLog: () => void;
}

function Item({ webhook, onOpen, onLog }: ItemProps): ReactNode {
  const { status, url, description, disabledReason, previousSecretUntil } = webhook;
  const isActive = status === "active";
  return (
    <li className="list-row">
      <Stack gap="sm" py={4}>
        <Group justify="space-between" align="flex-start" wrap="nowrap" gap="md">
          <div className={styles.what}>
            <span className={styles.url}>{url}</span>
            <Text span c="dimmed" size="sm" className={styles.meta}>
              {description !== "" && `${description} · `}
              {typesText(webhook.types)} · secret {webhook.secretHint} · added{" "}
              <TimeAgo iso={webhook.createdAt} />
            </Text>
            <Text span c="dimmed" size="sm" className={styles.meta}>
              <TimeUntil
                label="The previous secret also works; it ends"
                iso={previousSecretUntil}
              />
            </Text>
          </div>
          {STATES[status]}
        </Group>
        {status === "disabled" && (
          <Note color="yellow">
            <strong>Purser stopped sending to this webhook.</strong> {disabledReason} Fix your
            server, then resume the webhook. You can send missed messages again from its deliveries.
          </Note>
        )}
        <Group>
          <Button size="xs" onClick={onLog}>
            Deliveries<span className="sr-only"> to {url}</span>
          </Button>
          {isActive && <TestButton webhook={webhook} onSent={onLog} />}
          <StatusButton webhook={webhook} />
          {(["edit", "rotate", "delete"] as const).map((kind) => (
            <Button
              key={kind}
              size="xs"
              onClick={() => {
                onOpen({ kind, webhook });
              }}
            >
              {{ edit: "Edit", rotate: "New secret", delete: "Delete" }[kind]}
              <span className="sr-only"> of {url}</span>
            </Button>
          ))}
        </Group>
      </Stack>
    </li>
  );
}

function TestButton({ webhook, onSent }: { webhook: Webhook; onSent: () => void }): ReactNode {
  const test = useMutation({
    mutationFn: () => testWebhook(webhook.id),
    onSuccess: onSent,
    onError: toastFailure("The test was not sent"),
    onSettled: invalidate.afterWebhook,
  });
  return (
    <MutationButton size="xs" mutation={test} pending="Sending…">
      Send a test<span className="sr-only"> to {webhook.url}</span>
    </MutationButton>
  );
}

function StatusButton({ webhook }: { webhook: Webhook }): ReactNode {
  const isActive = webhook.status === "active";
  const change = useMutation({
    mutationFn: () => changeWebhook(webhook.id, { status: isActive ? "paused" : "active" }),
    onError: toastFailure(isActive ? "The webhook was not paused" : "The webhook was not resumed"),
    onSettled: invalidate.afterWebhook,
  });
  return (
    <MutationButton size="xs" mutation={change} pending={isActive ? "Pausing…" : "Resuming…"}>
      {isActive ? "Pause" : "Resume"}
      <span className="sr-only"> {webhook.url}</span>
    </MutationButton>
  );
}
