import { useQuery } from "@tanstack/react-query";
import { type ReactNode, useEffect, useMemo, useRef, useState } from "react";
import { isSameAddress } from "../../lib/address.ts";
import { ApiError } from "../../lib/api.ts";
import { queryClient } from "../../lib/query-client.ts";
import { invalidate } from "../../lib/query-keys.ts";
import { keepSession } from "../../lib/session.ts";
import { announceSessionChanged, onSessionSignal } from "../../lib/session-signal.ts";
import { disconnect } from "../../lib/wallet/connection.ts";
import type { Session } from "../../lib/wire.ts";
import { sessionQuery, signOut } from "./api.ts";
import { hasSignedInBefore, rememberSignedIn } from "./hint.ts";
import { SessionContext, type SessionState } from "./session-context.ts";

/**
 * Provides the session. The private data in memory belongs to one owner: when the owner changes, here or in
 * another tab, all of it is dropped before the next render.
 */
export function SessionProvider({
  isPrivate,
  children,
}: {
  isPrivate: boolean;
  children: ReactNode;
}): ReactNode {
  const [isLost, setLost] = useState(false);
  const [shown, setShown] = useState<Session | null | undefined>(undefined);
  const shownRef = useRef(shown);
  const query = useQuery({ ...sessionQuery, enabled: isPrivate || hasSignedInBefore() });
  const current = query.data ?? (query.isSuccess || !query.isEnabled ? null : undefined);

  useEffect(() => {
    if (current === undefined) return;
    const before = shownRef.current;
    // The session ended while a screen is open: keep the screen and request a new sign-in.
    if (current === null && before) {
      setLost(true);
      return;
    }
    if (before && current && !isSameAddress(before.address, current.address))
      invalidate.dropPrivate();
    shownRef.current = current;
    setShown(current);
    setLost(false);
    // Only a response from the server updates the hint; a public page that did not send the request has no
    // news.
    if (current) rememberSignedIn(true);
    else if (query.isEnabled) rememberSignedIn(false);
  }, [current, query.isEnabled]);

  useEffect(
    () =>
      onSessionSignal((signal) => {
        if (signal === "lost") {
          // A request with the session before may be refused after another one began, so the server is asked.
          if (shownRef.current) void invalidate.session();
        } else {
          void invalidate.session();
        }
      }),
    [],
  );

  const state = useMemo<SessionState>(
    () => ({
      session: shown,
      error: query.isError && shown === undefined ? query.error : undefined,
      isLost,
      retry: () => void query.refetch(),
      onSignedIn: async () => {
        announceSessionChanged();
        // One that is on its way asks about the session before.
        await queryClient.cancelQueries(sessionQuery);
        const next = await queryClient.fetchQuery({ ...sessionQuery, staleTime: 0 });
        if (!next) return;
        if (isSameAddress(shownRef.current?.address, next.address)) setLost(false);
        await invalidate.afterSignIn();
      },
      leave: async () => {
        try {
          await signOut();
        } catch (error) {
          // A session that ended elsewhere is a success here; other errors go to the caller.
          if (!(error instanceof ApiError && error.status === 401)) throw error;
        }
        rememberSignedIn(false);
        disconnect();
        shownRef.current = null;
        keepSession(null);
        queryClient.setQueryData(sessionQuery.queryKey, null);
        setShown(null);
        setLost(false);
        invalidate.dropPrivate();
        announceSessionChanged();
      },
    }),
    [shown, isLost, query],
  );
  return <SessionContext value={state}>{children}</SessionContext>;
}
