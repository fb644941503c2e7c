import { createContext, use } from "react";
import type { Session } from "../../lib/wire.ts";

export interface SessionState {
  /** `undefined` until it is known. */
  session: Session | null | undefined;
  error: unknown;
  /** The session ended while a screen is open: the input is kept until a new sign-in. */
  isLost: boolean;
  retry: () => void;
  onSignedIn: () => Promise<void>;
  leave: () => Promise<void>;
}

export const SessionContext = createContext<SessionState | null>(null);

export function useSession(): SessionState {
  const state = use(SessionContext);
  if (!state) throw new Error("useSession needs SessionProvider above it");
  return state;
}

/** Without a wallet, the owner's address is a name: no money may be sent there. A team has none. */
export const hasWallet = ({ signsWith }: Pick<Session, "signsWith">): boolean =>
  signsWith === "wallet" || signsWith === "contract";

/** Whether the person who is signed in signs with a wallet. */
export const signsByWallet = (session: Session): boolean =>
  session.second !== null ||
  (session.member ? session.signedInWith === "wallet" : hasWallet(session));

/** The team that this session acts for. */
export const teamOf = (session: Session): Session["teams"][number] | undefined =>
  session.member ? session.teams.find(({ owner }) => owner === session.address) : undefined;

/** "your", "the owner's", "the team's". */
export const whose = ({ second, member }: Session): string =>
  second !== null ? "the owner's" : member ? "the team's" : "your";

/** Screens behind the session gate always have a session. */
export function useOwner(): Session {
  const { session } = useSession();
  if (!session) throw new Error("useOwner is for screens behind the session gate");
  return session;
}
