import { notifications } from "@mantine/notifications";
import { useMutation, useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Note } from "../../components/Layout.tsx";
import { LinkAction } from "../../components/LinkAction.tsx";
import { plural } from "../../lib/plural.ts";
import { invalidate } from "../../lib/query-keys.ts";
import { useParameter } from "../../lib/use-parameter.ts";
import { revokeSession, sessionsQuery } from "../../shared/session/api.ts";

/** The link in our emails, `?do=end-sessions`: one press ends every session but this one. */
export function EndSessions(): ReactNode {
  const [wanted, setWanted] = useParameter("do");
  const sessions = useQuery(sessionsQuery);
  const others = sessions.data?.items.filter(({ current }) => !current) ?? [];
  const leave = (): void => {
    setWanted("");
  };
  const end = useMutation({
    mutationFn: () => Promise.all(others.map(({ id }) => revokeSession(id))),
    onSuccess: () => {
      notifications.show({ message: "All other sessions ended." });
      leave();
    },
    onSettled: invalidate.afterSessionEnded,
  });
  if (wanted !== "end-sessions" || !sessions.isSuccess) return null;
  if (others.length === 0) return <Note>You have no other sessions.</Note>;
  return (
    <LinkAction
      title="End the other sessions?"
      confirm={`End ${plural(others.length, "session")}`}
      mutation={end}
      failed="Not all sessions were ended"
      pending="Ending…"
      onLeave={leave}
    >
      All other devices are signed out immediately; you stay signed in here. Nothing has changed
      yet.
    </LinkAction>
  );
}
