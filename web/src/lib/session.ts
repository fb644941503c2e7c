/** The newest session that the server answered, for code that is not on a screen. */
import type { Session } from "./wire.ts";

let current: Session | null = null;

export const keepSession = (session: Session | null): void => {
  current = session;
};

export const currentSession = (): Session | null => current;

/** The account that signs: the owner's own, its recovery wallet's, or that of the member who acts for a team. */
export const signerOf = ({ second, member, address }: Session): string =>
  second ?? member?.address ?? address;
