import { Button } from "@mantine/core";
import type { ReactNode } from "react";
import { TeamIcon } from "../../components/icons.tsx";
import type { Session } from "../../lib/wire.ts";
import { teamOf } from "../../shared/session/session-context.ts";
import styles from "./Teams.module.css";
import { useActFor } from "./use-act-for.ts";

const MAY: Readonly<Record<string, string>> = {
  viewer: "viewer: you can read",
  approver: "approver: you can stop, lower and allow one payment",
  admin: "admin",
};

/** Above every screen, so that nobody changes a team's agents for one's own. */
export default function ActingFor({ session }: { session: Session }): ReactNode {
  const switchTo = useActFor();
  const { member } = session;
  if (!member) return null;
  return (
    <aside className={styles.acting} aria-label="Acting for a team">
      <TeamIcon size={16} />
      <span className={styles.actingText}>
        Acting for <strong>{teamOf(session)?.name ?? "a team"}</strong> as {MAY[member.role]}
      </span>
      <Button
        size="xs"
        variant="subtle"
        onClick={() => {
          if (!switchTo.isPending) switchTo.mutate({ owner: null, to: "/agents" });
        }}
      >
        Act for yourself
      </Button>
    </aside>
  );
}
