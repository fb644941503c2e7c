import { type ReactNode, useEffect } from "react";
import { onLiveEvent, openLive } from "../lib/live.ts";
import { queryClient } from "../lib/query-client.ts";
import { invalidate, keys, refetch, type Root, staleAfter } from "../lib/query-keys.ts";

/** Keeps what is on screen true: events name what changed, the queries fetch it, at most once a second. */
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
        // A list on screen puts the payment in its place itself; one that is not must not come back old.
        queryClient.removeQueries({
          queryKey: keys.allPayments(event.payment.agentId),
          type: "inactive",
        });
      } else if (event.type === "agent") refresh(staleAfter.rules);
      else if (event.type === "approval") refresh(staleAfter.approval);
      else void invalidate.session();
    });
    // What happened while no line was open, on the public screens, was not heard.
    void invalidate.payments();
    const close = openLive(() => {
      // Events may have been missed while the line was down.
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
