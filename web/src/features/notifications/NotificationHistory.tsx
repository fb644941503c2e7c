import { useInfiniteQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Link } from "react-router";
import { Badge } from "../../components/Badge.tsx";
import { EmptyState } from "../../components/EmptyState.tsx";
import { Section } from "../../components/Layout.tsx";
import { LoadMore } from "../../components/LoadMore.tsx";
import { QueryStatus } from "../../components/QueryStatus.tsx";
import { TimeAgo } from "../../components/RelativeTime.tsx";
import { Select } from "../../components/Select.tsx";
import { Skeleton } from "../../components/Skeleton.tsx";
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
  const items = query.data?.pages.flatMap((page) => page.items) ?? [];
  return (
    <Section
      flush
      title="History"
      hint="Events that your webhooks or your confirmed e-mail address subscribe to, kept for 30 days."
      actions={
        <Select label="Show" isLabelHidden value={type} onChange={setType} options={OPTIONS} />
      }
    >
      <QueryStatus
        query={query}
        what="notifications"
        failed="The notifications could not be loaded"
      >
        <Skeleton shape="row" count={5} />
      </QueryStatus>
      {query.isSuccess && items.length === 0 && (
        <EmptyState title={type === "" ? "No notifications yet" : "No event of this kind"}>
          {type === "" ? (
            <>
              Confirm an <Link to="/notifications/email">e-mail address</Link>, or add a{" "}
              <Link to="/notifications/webhooks">webhook</Link>. Purser then sends events of your
              agents there and lists them here.
            </>
          ) : (
            "Choose another kind above."
          )}
        </EmptyState>
      )}
      <ul className={styles.list}>
        {items.map((notification) => (
          <Row
            key={notification.id}
            notification={notification}
            who={notification.agentId === null ? "Agent" : agentName(notification.agentId)}
          />
        ))}
      </ul>
      <LoadMore query={query} what="notifications" />
    </Section>
  );
}

function Row({ notification, who }: { notification: Notification; who: string }): ReactNode {
  const { label, tone } = typeLabel(notification.type);
  const place = placeOf(notification);
  const text = sentence(notification, who);
  const quoted = thirdPartyTexts(notification);
  return (
    <li className={styles.row}>
      <div className={styles.what}>
        {place === undefined ? (
          <span className={styles.title}>{text}</span>
        ) : (
          <Link to={place} className={styles.title}>
            {text}
          </Link>
        )}
        {quoted.length > 0 && (
          <span className={styles.meta}>{quoted.map((one) => `“${one}”`).join(" · ")}</span>
        )}
      </div>
      <span className={styles.kind}>
        <Badge tone={tone}>{label}</Badge>
      </span>
      <span className={styles.time}>
        <TimeAgo iso={notification.createdAt} />
      </span>
    </li>
  );
}
