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

/** The account that signs: the owner's, or the recovery wallet. */
export const walletOf = (session: Session): string => session.second ?? session.address;

/** Without a wallet, the owner's address is a name: no money may be sent there. */
export const hasWallet = ({ signsWith }: Pick<Session, "signsWith">): boolean =>
  signsWith !== "passkeys";

/** Screens behind the session gate always have a session. */
export function useOwner(): Session {
  const { session } = useSession();
  if (!session) throw new Error("useOwner is for screens behind the session gate");
  return session;
}
