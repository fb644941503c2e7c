import {
  Badge,
  EmptyState,
  Group,
  type MantineColor,
  NativeSelect,
  Stack,
  Text,
} from "@mantine/core";
import { useInputState } from "@mantine/hooks";
import { notifications } from "@mantine/notifications";
import { useInfiniteQuery, useMutation } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Drawer } from "../../components/Dialog.tsx";
import { Note } from "../../components/Layout.tsx";
import { List } from "../../components/List.tsx";
import { MutationButton } from "../../components/PendingButton.tsx";
import { TimeAgo, TimeUntil } from "../../components/RelativeTime.tsx";
import { toastFailure } from "../../components/toast.ts";
import { plural } from "../../lib/plural.ts";
import { invalidate } from "../../lib/query-keys.ts";
import type { Webhook, WebhookDelivery } from "../../lib/wire.ts";
import { deliveriesQuery, resend } from "./api.ts";
import styles from "./Notifications.module.css";
import { typeLabel } from "./words.ts";

const STATES: Readonly<Record<string, { label: string; color: MantineColor }>> = {
  waiting: { label: "Waiting", color: "gray" },
  delivered: { label: "Delivered", color: "green" },
  failed: { label: "Failed", color: "yellow" },
  given_up: { label: "Stopped", color: "red" },
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
  const [status, setStatus] = useInputState("");
  const query = useInfiniteQuery(deliveriesQuery(webhook.id, status));
  return (
    <Stack>
      <span className={styles.url}>{webhook.url}</span>
      {webhook.status === "disabled" && <Note color="yellow">{webhook.disabledReason}</Note>}
      <Group>
        <NativeSelect aria-label="Show" value={status} onChange={setStatus} data={OPTIONS} />
      </Group>
      <List
        query={query}
        what="deliveries"
        failed="The deliveries could not be loaded"
        empty={
          <EmptyState
            title={status === "" ? "No deliveries yet" : "No delivery matches"}
            description={
              status === "" ? "Send a test to check your server." : "Change the filter above."
            }
          />
        }
      >
        {(delivery) => <Item key={delivery.id} webhookId={webhook.id} delivery={delivery} />}
      </List>
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
  const state = STATES[status] ?? { label: status, color: "gray" as const };
  const again = useMutation({
    mutationFn: () => resend(webhookId, delivery.id),
    onSuccess: () => {
      notifications.show({ message: "Sending again." });
    },
    onError: toastFailure("The message was not sent again"),
    onSettled: invalidate.afterWebhook,
  });
  const { label } = typeLabel(delivery.type);
  return (
    <li className={`list-row ${styles.delivery}`}>
      <div className={styles.what}>
        <span className={styles.title}>{label}</span>
        <Text span c="dimmed" size="sm" className={styles.meta}>
          <TimeAgo iso={delivery.createdAt} /> · {plural(attempts, "attempt")}
          {lastStatus !== null && ` · status ${lastStatus}`}
        </Text>
      </div>
      <Group justify="flex-end">
        <Badge color={state.color}>{state.label}</Badge>
        {status !== "waiting" && (
          <MutationButton size="xs" mutation={again} pending="Sending…">
            Send again<span className="sr-only">: {label}</span>
          </MutationButton>
        )}
      </Group>
      {lastError !== null && status !== "delivered" && (
        <Text c="dimmed" size="sm" className={styles.error}>
          {lastError}
        </Text>
      )}
      {status === "failed" && (
        <Text span c="dimmed" size="sm">
          <TimeUntil label="Next try" iso={nextAttemptAt} />
        </Text>
      )}
    </li>
  );
}
