import { Badge, EmptyState, Group, NativeSelect, Text } from "@mantine/core";
import { useInfiniteQuery, useMutation, useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Link } from "react-router";
import { Section } from "../../components/Layout.tsx";
import { List } from "../../components/List.tsx";
import { MutationButton } from "../../components/PendingButton.tsx";
import { TimeAgo } from "../../components/RelativeTime.tsx";
import { toastFailure } from "../../components/toast.ts";
import { invalidate } from "../../lib/query-keys.ts";
import { useParameter } from "../../lib/use-parameter.ts";
import type { Notification } from "../../lib/wire.ts";
import { useIsRecovery } from "../../shared/session/OwnerOnly.tsx";
import { markRead, notificationsQuery, UNREAD, unreadQuery } from "./api.ts";
import styles from "./Notifications.module.css";
import { thirdPartyTexts, placeOf, TYPE_NAMES, TYPES, typeLabel } from "./words.ts";

const OPTIONS = [
  { value: "", label: "Everything" },
  { value: UNREAD, label: "Unread" },
  ...TYPE_NAMES.map((value) => ({ value, label: TYPES[value].label })),
];

/** The history of notifications, newest first. */
export function NotificationHistory(): ReactNode {
  const [which, setWhich] = useParameter("type");
  const query = useInfiniteQuery(notificationsQuery(which));
  const isRecovery = useIsRecovery();
  const unread = useQuery(unreadQuery).data?.unread ?? 0;
  const readAll = useMutation({
    mutationFn: () => markRead(),
    onError: toastFailure("The notifications were not marked as read"),
    onSettled: invalidate.afterReading,
  });
  return (
    <Section
      flush
      title="History"
      hint="What happened in the last 30 days. Successful payments are in each agent's activity."
      actions={
        <Group>
          {unread > 0 && !isRecovery && (
            <MutationButton mutation={readAll} pending="Marking…">
              Mark all as read
            </MutationButton>
          )}
          <NativeSelect aria-label="Show" value={which} onChange={setWhich} data={OPTIONS} />
        </Group>
      }
    >
      <List
        query={query}
        what="notifications"
        failed="The notifications could not be loaded"
        placeholders={5}
        empty={
          which === "" ? (
            <EmptyState
              title="No notifications yet"
              description={
                <>
                  Refused payments, requests for approval, low balances, withdrawals and changes of
                  access appear here. Purser can also send them by{" "}
                  <Link to="/notifications/email">e-mail</Link> or to a{" "}
                  <Link to="/notifications/webhooks">webhook</Link>.
                </>
              }
            />
          ) : (
            <EmptyState title="Nothing of this kind" description="Choose another kind above." />
          )
        }
      >
        {(notification) => <Row key={notification.id} notification={notification} />}
      </List>
    </Section>
  );
}

function Row({ notification }: { notification: Notification }): ReactNode {
  const { id, type, title, readAt, createdAt } = notification;
  const { label, color } = typeLabel(type);
  const place = placeOf(notification);
  const quoted = thirdPartyTexts(notification);
  const isRecovery = useIsRecovery();
  const read = useMutation({
    mutationFn: () => markRead([id]),
    onError: toastFailure("The notification was not marked as read"),
    onSettled: invalidate.afterReading,
  });
  const unread = readAt === null && <span className="sr-only"> (unread)</span>;
  return (
    <li className={`list-row ${styles.row}`} data-unread={readAt === null || undefined}>
      <div className={styles.what}>
        {place === undefined ? (
          <span className={styles.title}>
            {title}
            {unread}
          </span>
        ) : (
          <Link
            to={place}
            className={`row-link ${styles.title}`}
            onClick={() => {
              if (readAt === null && !isRecovery) read.mutate();
            }}
          >
            {title}
            {unread}
          </Link>
        )}
        {quoted.length > 0 && (
          <Text span c="dimmed" size="sm" className={styles.meta}>
            {quoted.map((one) => `“${one}”`).join(" · ")}
          </Text>
        )}
      </div>
      <span className={styles.kind}>
        <Badge color={color}>{label}</Badge>
      </span>
      <Text span c="dimmed" size="sm" ta="right">
        <TimeAgo iso={createdAt} />
      </Text>
    </li>
  );
}
