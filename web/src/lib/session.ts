/** The session that the screens show, for code that is not on a screen. */
import { queryClient } from "./query-client.ts";
import { keys } from "./query-keys.ts";
import type { Session } from "./wire.ts";

export const currentSession = (): Session | undefined =>
  queryClient.getQueryData<Session | null>(keys.session) ?? undefined;

/** The account that signs: the owner's own, its recovery wallet's, or that of the member who acts for a team. */
export const signerOf = ({ second, member, address }: Session): string =>
  second ?? member?.address ?? address;
