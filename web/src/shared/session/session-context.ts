import { createContext, use } from "react";
import type { Session } from "../../lib/wire.ts";

export interface SessionState {
  /** `undefined` while not known yet. */
  session: Session | null | undefined;
  error: unknown;
  /** The session ended under an open screen: what was typed stays, signing in again goes on. */
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

/** The wallet that signed in: the owner's, or the second one in its place. */
export const walletOf = (session: Session): string => session.second ?? session.address;

/** Screens behind the gate always have an owner. */
export function useOwner(): Session {
  const { session } = useSession();
  if (!session) throw new Error("useOwner is for screens behind the session gate");
  return session;
}
