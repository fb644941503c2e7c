import { notifications } from "@mantine/notifications";
import { useInfiniteQuery, useMutation } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { Badge, type Tone } from "../../components/Badge.tsx";
import { Button } from "../../components/Button.tsx";
import { Drawer } from "../../components/Dialog.tsx";
import { EmptyState } from "../../components/EmptyState.tsx";
import { Muted, Note, Row, Stack } from "../../components/Layout.tsx";
import { LoadMore } from "../../components/LoadMore.tsx";
import { QueryStatus } from "../../components/QueryStatus.tsx";
import { TimeAgo, TimeUntil } from "../../components/RelativeTime.tsx";
import { Select } from "../../components/Select.tsx";
import { Skeleton } from "../../components/Skeleton.tsx";
import { plural } from "../../lib/plural.ts";
import { invalidate } from "../../lib/query-keys.ts";
import type { Webhook, WebhookDelivery } from "../../lib/wire.ts";
import { deliveriesQuery, resend } from "./api.ts";
import styles from "./Notifications.module.css";
import { typeLabel } from "./words.ts";

const STATES: Readonly<Record<string, { label: string; tone: Tone }>> = {
  waiting: { label: "Waiting", tone: "neutral" },
  delivered: { label: "Delivered", tone: "ok" },
  failed: { label: "Failed", tone: "warn" },
  given_up: { label: "Stopped", tone: "bad" },
};
const OPTIONS = [
  { value: "", label: "All deliveries" },
  ...Object.entries(STATES).map(([value, { label }]) => ({ value, label })),
];

interface DeliveriesProps {
  webhook: Webhook | undefined;
  onClose: () => void;
}

/** The deliveries to one webhook, and their results. */
export function Deliveries({ webhook, onClose }: DeliveriesProps): ReactNode {
  return (
    <Drawer opened={webhook !== undefined} onClose={onClose} title="Deliveries">
      {webhook && <Log webhook={webhook} />}
    </Drawer>
  );
}

function Log({ webhook }: { webhook: Webhook }): ReactNode {
  const [status, setStatus] = useState("");
  const query = useInfiniteQuery(deliveriesQuery(webhook.id, status));
  const items = query.data?.pages.flatMap((page) => page.items) ?? [];
  return (
    <Stack gap={4}>
      <span className={styles.url}>{webhook.url}</span>
      {webhook.status === "disabled" && <Note tone="warn">{webhook.disabledReason}</Note>}
      <Row>
        <Select label="Show" isLabelHidden value={status} onChange={setStatus} options={OPTIONS} />
      </Row>
      <QueryStatus query={query} what="deliveries" failed="The deliveries could not be loaded">
        <Skeleton shape="row" count={4} />
      </QueryStatus>
      {query.isSuccess && items.length === 0 && (
        <EmptyState title={status === "" ? "No deliveries yet" : "No delivery matches"}>
          {status === "" ? "Send a test to check your server." : "Change the filter above."}
        </EmptyState>
      )}
      <ul className={styles.list}>
        {items.map((delivery) => (
          <Item key={delivery.id} webhookId={webhook.id} delivery={delivery} />
        ))}
      </ul>
      <LoadMore query={query} what="deliveries" />
    </Stack>
  );
}

function Item({
  webhookId,
  delivery,
}: {
  webhookId: string;
  delivery: WebhookDelivery;
}): ReactNode {
  const { status, lastError, lastStatus, attempts, nextAttemptAt } = delivery;
  const state = STATES[status] ?? { label: status, tone: "neutral" as const };
  const again = useMutation({
    mutationFn: () => resend(webhookId, delivery.id),
    onSuccess: () => {
      notifications.show({ message: "Sending again." });
    },
    onError: (error) => {
      notifications.show({
        color: "red",
        title: "The message was not sent again",
        message: error.message,
      });
    },
    onSettled: invalidate.afterWebhook,
  });
  const { label } = typeLabel(delivery.type);
  return (
    <li className={styles.delivery}>
      <div className={styles.what}>
        <span className={styles.title}>{label}</span>
        <span className={styles.meta}>
          <TimeAgo iso={delivery.createdAt} /> · {plural(attempts, "attempt")}
          {lastStatus !== null && ` · status ${lastStatus}`}
        </span>
      </div>
      <Row end>
        <Badge tone={state.tone}>{state.label}</Badge>
        {status !== "waiting" && (
          <Button
            size="small"
            pending={again.isPending && "Sending…"}
            onClick={() => {
              again.mutate();
            }}
          >
            Send again<span className="sr-only">: {label}</span>
          </Button>
        )}
      </Row>
      {lastError !== null && status !== "delivered" && <p className={styles.error}>{lastError}</p>}
      {status === "failed" && nextAttemptAt !== null && (
        <Muted>
          Next try <TimeUntil iso={nextAttemptAt} />
        </Muted>
      )}
    </li>
  );
}
