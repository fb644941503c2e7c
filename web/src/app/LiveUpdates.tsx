import { type ReactNode, useEffect } from "react";
import { onLiveEvent, openLive } from "../lib/live.ts";
import { queryClient } from "../lib/query-client.ts";
import { invalidate, keys, refetch, type Root, staleAfter } from "../lib/query-keys.ts";

/**
 * Keeps the screen up to date from server-sent events: an event names what changed, and its queries are
 * fetched again, at most once a second.
 */
export function LiveUpdates(): ReactNode {
  useEffect(() => {
    const stale = new Set<Root>();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const refresh = (roots: readonly Root[]): void => {
      for (const root of roots) stale.add(root);
      timer ??= setTimeout(() => {
        timer = undefined;
        void refetch(stale);
        stale.clear();
      }, 700);
    };
    const offEvent = onLiveEvent((event) => {
      if (event.type === "payment") {
        refresh(staleAfter.paymentEvent);
        // A list on screen inserts the payment itself. A cached list that is not on screen is removed, so
        // that it is not shown outdated later.
        queryClient.removeQueries({
          queryKey: keys.allPayments(event.payment.agentId),
          type: "inactive",
        });
      } else if (event.type === "agent") refresh(staleAfter.rules);
      else if (event.type === "approval") refresh(staleAfter.approval);
      else if (event.type === "notification") refresh(staleAfter.notification);
      else if (event.type === "owner") refresh(staleAfter.stop);
      else void invalidate.session();
    });
    // Public screens have no event stream, so payments may have changed before it was opened.
    void invalidate.payments();
    const close = openLive(() => {
      // Events may have been missed while the stream was down.
      refresh(staleAfter.payment);
      refresh(staleAfter.approval);
    });
    return () => {
      clearTimeout(timer);
      offEvent();
      close();
    };
  }, []);
  return null;
}
