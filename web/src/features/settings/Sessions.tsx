import { notifications } from "@mantine/notifications";
import { useMutation, useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Badge } from "../../components/Badge.tsx";
import { Button } from "../../components/Button.tsx";
import { Section } from "../../components/Layout.tsx";
import { TimeAgo } from "../../components/RelativeTime.tsx";
import { QueryStatus } from "../../components/QueryStatus.tsx";
import { Skeleton } from "../../components/Skeleton.tsx";
import { invalidate } from "../../lib/query-keys.ts";
import type { SessionRow } from "../../lib/wire.ts";
import { revokeSession, sessionsQuery } from "../../shared/session/api.ts";
import { nameDevice } from "./device.ts";
import styles from "./Settings.module.css";

export function Sessions({ onSignOut }: { onSignOut: () => Promise<void> }): ReactNode {
  const sessions = useQuery(sessionsQuery);
  return (
    <Section
      flush
      title="Sessions"
      hint="Where you are signed in. A session ends after 24 hours without use, and after 7 days at the latest."
    >
      <QueryStatus query={sessions} what="sessions" failed="Sessions could not be loaded">
        <Skeleton shape="row" count={2} />
      </QueryStatus>
      <ul>
        {sessions.data?.items.map((session) => (
          <Row key={session.id} session={session} onSignOut={onSignOut} />
        ))}
      </ul>
    </Section>
  );
}

function Row({
  session,
  onSignOut,
}: {
  session: SessionRow;
  onSignOut: () => Promise<void>;
}): ReactNode {
  const end = useMutation({
    mutationFn: async () => {
      if (session.current) await onSignOut();
      else await revokeSession(session.id);
    },
    onSuccess: () => {
      if (!session.current) notifications.show({ message: "Session ended." });
    },
    onError: (error) => {
      notifications.show({
        color: "red",
        title: "The session was not ended",
        message: error.message,
      });
    },
    onSettled: () => (session.current ? undefined : invalidate.afterSessionEnded()),
  });
  const device = nameDevice(session.userAgent);
  return (
    <li className={styles.session}>
      <div>
        <p className={styles.device}>
          {device} {session.current && <Badge tone="ok">This device</Badge>}
        </p>
        <p className={styles.meta}>
          {session.ip} · last used <TimeAgo iso={session.lastSeenAt} /> · since{" "}
          <TimeAgo iso={session.createdAt} />
        </p>
      </div>
      <Button
        size="small"
        pending={end.isPending && "Ending…"}
        onClick={() => {
          end.mutate();
        }}
      >
        {session.current ? (
          "Sign out"
        ) : (
          <>
            Revoke<span className="sr-only"> {device}</span>
          </>
        )}
      </Button>
    </li>
  );
}
