import type { ReactNode } from "react";
import { Note } from "../../components/Layout.tsx";
import type { Session } from "../../lib/wire.ts";
import { useSession } from "./session-context.ts";

/** all: also what the owner signs. tighten: pause, lower, decline. read: nothing else. The server decides; screens follow it. */
export type Rights = "all" | "tighten" | "read";

export function rightsOf(session: Session | null | undefined): Rights {
  if (!session) return "all";
  if (session.second !== null) return "tighten";
  const role = session.member?.role ?? "admin";
  return role === "admin" ? "all" : role === "approver" ? "tighten" : "read";
}

export const useRights = (): Rights => rightsOf(useSession().session);

interface OwnerOnlyProps {
  children: ReactNode;
  /** In place of a whole screen or form, which would be empty. */
  isScreen?: boolean;
}

/** Actions that only the owner's wallet, or an admin of the team, may take. Others do not see them. */
export function OwnerOnly({ children, isScreen = false }: OwnerOnlyProps): ReactNode {
  const member = useSession().session?.member;
  if (useRights() === "all") return children;
  if (!isScreen) return null;
  return (
    <Note>
      {member
        ? `You are ${member.role} in this team. Only an admin may do this.`
        : "Sign in with the owner’s wallet to do this."}
    </Note>
  );
}

/** Actions that a viewer of a team may not take. */
export const NotForViewers = ({ children }: { children: ReactNode }): ReactNode =>
  useRights() === "read" ? null : children;

/** What belongs to a person, such as a device: not shown to one who acts for a team. */
export const NotInTeams = ({ children }: { children: ReactNode }): ReactNode =>
  useSession().session?.member ? null : children;
