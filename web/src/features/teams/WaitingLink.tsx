import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { CountLink } from "../../components/CountLink.tsx";
import { WaitingIcon } from "../../components/icons.tsx";
import type { Session } from "../../lib/wire.ts";
import { needsYou, waitingQuery } from "./queries.ts";

/** How many orders wait for this person. */
export function useWaitingCount(session: Session): number {
  const isMember = session.member !== null;
  const { data = [] } = useQuery({ ...waitingQuery, enabled: session.second === null });
  return data.filter((waiting) => needsYou(waiting, isMember)).length;
}

/** In the page's header: for one who acts for a team, or is invited to one. */
export function WaitingLink({ session }: { session: Session }): ReactNode {
  const count = useWaitingCount(session);
  if (!session.member && count === 0) return null;
  return (
    <CountLink
      to="/waiting"
      icon={<WaitingIcon />}
      label={session.member ? "Waiting orders" : "Invitations"}
      count={count}
      what="waiting for you"
    />
  );
}
