import { notifications } from "@mantine/notifications";
import { useMutation, useQuery } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { Badge } from "../../components/Badge.tsx";
import { Button } from "../../components/Button.tsx";
import { EmptyState } from "../../components/EmptyState.tsx";
import { PlusIcon } from "../../components/icons.tsx";
import { Note, Row, Section } from "../../components/Layout.tsx";
import { QueryStatus } from "../../components/QueryStatus.tsx";
import { TimeAgo, TimeUntil } from "../../components/RelativeTime.tsx";
import { Skeleton } from "../../components/Skeleton.tsx";
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
      variant={webhooks.length === 0 ? "primary" : "secondary"}
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
        <EmptyState title="No webhooks" action={add}>
          A webhook is an https address of your server. Purser sends the events you choose there
          immediately and retries until your server accepts them.
        </EmptyState>
      )}
      <ul className={styles.list}>
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

function State({ status }: { status: string }): ReactNode {
  if (status === "disabled") return <Badge tone="bad">Disabled</Badge>;
  return status === "paused" ? <Badge tone="warn">Paused</Badge> : <Badge tone="ok">Active</Badge>;
}

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
    <li className={styles.hook}>
      <div className={styles.hookHead}>
        <div className={styles.what}>
          <span className={styles.url}>{url}</span>
          <span className={styles.meta}>
            {description !== "" && `${description} · `}
            {typesText(webhook.types)} · secret {webhook.secretHint} · since{" "}
            <TimeAgo iso={webhook.createdAt} />
          </span>
          {previousSecretUntil !== null && (
            <span className={styles.meta}>
              The previous secret also works; it ends <TimeUntil iso={previousSecretUntil} />
            </span>
          )}
        </div>
        <State status={status} />
      </div>
      {status === "disabled" && (
        <Note tone="warn">
          <strong>Purser stopped sending to this webhook.</strong> {disabledReason} Fix your server,
          then resume the webhook. You can send missed messages again from its deliveries.
        </Note>
      )}
      <Row>
        <Button size="small" onClick={onLog}>
          Deliveries<span className="sr-only"> to {url}</span>
        </Button>
        {isActive && <TestButton webhook={webhook} onSent={onLog} />}
        <StatusButton webhook={webhook} />
        {(["edit", "rotate", "delete"] as const).map((kind) => (
          <Button
            key={kind}
            size="small"
            onClick={() => {
              onOpen({ kind, webhook });
            }}
          >
            {{ edit: "Edit", rotate: "New secret", delete: "Delete" }[kind]}
            <span className="sr-only"> of {url}</span>
          </Button>
        ))}
      </Row>
    </li>
  );
}

function TestButton({ webhook, onSent }: { webhook: Webhook; onSent: () => void }): ReactNode {
  const test = useMutation({
    mutationFn: () => testWebhook(webhook.id),
    onSuccess: onSent,
    onError: (error) => {
      notifications.show({ color: "red", title: "The test was not sent", message: error.message });
    },
    onSettled: invalidate.afterWebhook,
  });
  return (
    <Button
      size="small"
      pending={test.isPending && "Sending…"}
      onClick={() => {
        test.mutate();
      }}
    >
      Send a test<span className="sr-only"> to {webhook.url}</span>
    </Button>
  );
}

function StatusButton({ webhook }: { webhook: Webhook }): ReactNode {
  const isActive = webhook.status === "active";
  const change = useMutation({
    mutationFn: () => changeWebhook(webhook.id, { status: isActive ? "paused" : "active" }),
    onError: (error) => {
      notifications.show({
        color: "red",
        title: isActive ? "The webhook was not paused" : "The webhook was not resumed",
        message: error.message,
      });
    },
    onSettled: invalidate.afterWebhook,
  });
  return (
    <Button
      size="small"
      pending={change.isPending && (isActive ? "Pausing…" : "Resuming…")}
      onClick={() => {
        change.mutate();
      }}
    >
      {isActive ? "Pause" : "Resume"}
      <span className="sr-only"> {webhook.url}</span>
    </Button>
  );
}
