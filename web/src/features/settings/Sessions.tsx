import { Badge, Group, Text } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { useMutation, useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Section } from "../../components/Layout.tsx";
import { MutationButton } from "../../components/PendingButton.tsx";
import { QueryStatus } from "../../components/QueryStatus.tsx";
import { TimeAgo } from "../../components/RelativeTime.tsx";
import { Skeleton } from "../../components/Skeleton.tsx";
import { toastFailure } from "../../components/toast.ts";
import { invalidate } from "../../lib/query-keys.ts";
import type { SessionRow } from "../../lib/wire.ts";
import { revokeSession, sessionsQuery } from "../../shared/session/api.ts";
import { nameDevice } from "../../lib/device.ts";

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
    onError: toastFailure("The session was not ended"),
    onSettled: () => (session.current ? undefined : invalidate.afterSessionEnded()),
  });
  const device = nameDevice(session.userAgent);
  return (
    <li className="list-row">
      <Group justify="space-between" wrap="nowrap" gap="md">
        <div>
          <Text component="div" fw={550}>
            {device} {session.current && <Badge color="green">This device</Badge>}
          </Text>
          <Text c="dimmed" size="sm">
            {session.ip} · last used <TimeAgo iso={session.lastSeenAt} /> · signed in{" "}
            <TimeAgo iso={session.createdAt} />
          </Text>
        </div>
        <MutationButton size="xs" mutation={end} pending="Ending…">
          {session.current ? (
            "Sign out"
          ) : (
            <>
              Revoke<span className="sr-only"> {device}</span>
            </>
          )}
        </MutationButton>
      </Group>
    </li>
  );
}
