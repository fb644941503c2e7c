import { Badge, Checkbox, EmptyState, Group, NativeSelect, Text } from "@mantine/core";
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
import { useRights } from "../../shared/session/OwnerOnly.tsx";
import { markRead, notificationsQuery, unreadQuery } from "./api.ts";
import styles from "./Notifications.module.css";
import { thirdPartyTexts, TYPE_NAMES, TYPES, typeLabel } from "./words.ts";

const OPTIONS = [
  { value: "", label: "Every kind" },
  ...TYPE_NAMES.map((value) => ({ value, label: TYPES[value].label })),
];

/** The history of notifications, newest first, filtered by the URL. */
export function NotificationHistory({
  agents,
}: {
  agents: readonly { id: string; name: string }[];
}): ReactNode {
  const [type, setType] = useParameter("type");
  const [agentId, setAgentId] = useParameter("agent");
  const [unreadOnly, setUnreadOnly] = useParameter("unread");
  const query = useInfiniteQuery(
    notificationsQuery({
      type: type || undefined,
      agentId: agentId || undefined,
      unread: unreadOnly === "" ? undefined : "true",
    }),
  );
  const isFiltered = type !== "" || agentId !== "" || unreadOnly !== "";
  const isLimited = useRights() !== "all";
  const news = useQuery(unreadQuery).data;
  const newest = news?.items[0]?.at;
  const readAll = useMutation({
    mutationFn: () => markRead({ before: newest ?? new Date().toISOString() }),
    onError: toastFailure("The notifications were not marked as read"),
    onSettled: invalidate.afterReading,
  });
  return (
    <Section
      flush
      title="History"
      hint="Everything that happened in the last 30 days. Payments as usual are not counted as unread."
      actions={
        <Group>
          {(news?.unread ?? 0) > 0 && !isLimited && (
            <MutationButton mutation={readAll} pending="Marking…">
              Mark all as read
            </MutationButton>
          )}
          <Checkbox
            label="Unread only"
            checked={unreadOnly !== ""}
            onChange={(event) => {
              setUnreadOnly(event.currentTarget.checked ? "true" : "");
            }}
          />
          {(agents.length > 0 || agentId !== "") && (
            <NativeSelect
              aria-label="Agent"
              value={agentId}
              onChange={setAgentId}
              data={agentOptions(agents, agentId)}
            />
          )}
          <NativeSelect aria-label="Kind" value={type} onChange={setType} data={OPTIONS} />
        </Group>
      }
    >
      <List
        query={query}
        what="notifications"
        failed="The notifications could not be loaded"
        placeholders={5}
        empty={
          !isFiltered ? (
            <EmptyState
              title="No notifications yet"
              description={
                <>
                  Payments, refusals, requests for approval, low balances, withdrawals and changes
                  of access appear here. Purser can also send them to your{" "}
                  <Link to="/notifications/devices">devices</Link>, by{" "}
                  <Link to="/notifications/email">e-mail</Link> or to a{" "}
                  <Link to="/notifications/webhooks">webhook</Link>.
                </>
              }
            />
          ) : (
            <EmptyState title="Nothing of this kind" description="Change the filters above." />
          )
        }
      >
        {(notification) => <Row key={notification.id} notification={notification} />}
      </List>
    </Section>
  );
}

/** An agent of a link may be archived, or not among the first ones. */
const agentOptions = (agents: readonly { id: string; name: string }[], chosen: string) => [
  { value: "", label: "Every agent" },
  ...agents.map(({ id, name }) => ({ value: id, label: name })),
  ...(chosen === "" || agents.some(({ id }) => id === chosen)
    ? []
    : [{ value: chosen, label: "The chosen agent" }]),
];

function Row({ notification }: { notification: Notification }): ReactNode {
  const { id, type, title, path, readAt, createdAt } = notification;
  const { label, color } = typeLabel(type);
  const quoted = thirdPartyTexts(notification);
  const isLimited = useRights() !== "all";
  const read = useMutation({
    mutationFn: () => markRead({ ids: [id] }),
    onError: toastFailure("The notification was not marked as read"),
    onSettled: invalidate.afterReading,
  });
  const unread = readAt === null && <span className="sr-only"> (unread)</span>;
  return (
    <li className={`list-row ${styles.row}`} data-unread={readAt === null || undefined}>
      <div className={styles.what}>
        <Link
          to={path}
          className={`row-link ${styles.title}`}
          onClick={() => {
            if (readAt === null && !isLimited) read.mutate();
          }}
        >
          {title}
          {unread}
        </Link>
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
