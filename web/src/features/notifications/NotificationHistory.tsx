import { Badge, EmptyState, NativeSelect, Text } from "@mantine/core";
import { useInfiniteQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Link } from "react-router";
import { Section } from "../../components/Layout.tsx";
import { List } from "../../components/List.tsx";
import { TimeAgo } from "../../components/RelativeTime.tsx";
import { useParameter } from "../../lib/use-parameter.ts";
import type { Notification } from "../../lib/wire.ts";
import { notificationsQuery } from "./api.ts";
import styles from "./Notifications.module.css";
import { thirdPartyTexts, placeOf, sentence, TYPE_NAMES, TYPES, typeLabel } from "./words.ts";

const OPTIONS = [
  { value: "", label: "Everything" },
  ...TYPE_NAMES.map((value) => ({ value, label: TYPES[value].label })),
];

/** The history of notifications, newest first. */
export function NotificationHistory({
  agentName,
}: {
  agentName: (id: string) => string;
}): ReactNode {
  const [type, setType] = useParameter("type");
  const query = useInfiniteQuery(notificationsQuery(type));
  return (
    <Section
      flush
      title="History"
      hint="Events that your webhooks or your confirmed e-mail address subscribe to, kept for 30 days."
      actions={<NativeSelect aria-label="Show" value={type} onChange={setType} data={OPTIONS} />}
    >
      <List
        query={query}
        what="notifications"
        failed="The notifications could not be loaded"
        placeholders={5}
        empty={
          type === "" ? (
            <EmptyState
              title="No notifications yet"
              description={
                <>
                  Confirm an <Link to="/notifications/email">e-mail address</Link>, or add a{" "}
                  <Link to="/notifications/webhooks">webhook</Link>. Purser then sends events of
                  your agents there and lists them here.
                </>
              }
            />
          ) : (
            <EmptyState title="No event of this kind" description="Choose another kind above." />
          )
        }
      >
        {(notification) => (
          <Row
            key={notification.id}
            notification={notification}
            who={notification.agentId === null ? "Agent" : agentName(notification.agentId)}
          />
        )}
      </List>
    </Section>
  );
}

function Row({ notification, who }: { notification: Notification; who: string }): ReactNode {
  const { label, color } = typeLabel(notification.type);
  const place = placeOf(notification);
  const text = sentence(notification, who);
  const quoted = thirdPartyTexts(notification);
  return (
    <li className={`list-row ${styles.row}`}>
      <div className={styles.what}>
        {place === undefined ? (
          <span className={styles.title}>{text}</span>
        ) : (
          <Link to={place} className={`row-link ${styles.title}`}>
            {text}
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
        <TimeAgo iso={notification.createdAt} />
      </Text>
    </li>
  );
}
