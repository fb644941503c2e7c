import { useQueryClient } from "@tanstack/react-query";
import { type ReactNode, useEffect } from "react";
import { onLiveEvent, openLive } from "../lib/live.ts";
import { sessionQuery } from "../shared/session/api.ts";

/** Keeps what is on screen true: events name what changed, the queries fetch it, at most once a second. */
export function LiveUpdates(): ReactNode {
  const client = useQueryClient();
  useEffect(() => {
    const stale = new Set<string>();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const refresh = (...keys: string[]): void => {
      for (const key of keys) stale.add(key);
      timer ??= setTimeout(() => {
        timer = undefined;
        for (const key of stale) void client.invalidateQueries({ queryKey: [key] });
        stale.clear();
      }, 700);
    };
    const offEvent = onLiveEvent((event) => {
      if (event.type === "payment") {
        refresh("agents", "agent", "overview");
        // A list on screen puts the payment in its place itself; one that is not must not come back old.
        client.removeQueries({ queryKey: ["payments", event.payment.agentId], type: "inactive" });
      } else if (event.type === "agent") refresh("agents", "agent", "overview", "keys", "audit");
      else void client.invalidateQueries({ queryKey: sessionQuery.queryKey });
    });
    // What happened while no line was open, on the public screens, was not heard.
    void client.invalidateQueries({ queryKey: ["payments"] });
    const close = openLive(() => {
      // Events may have been missed while the line was down.
      refresh("agents", "agent", "overview", "payments");
    });
    return () => {
      clearTimeout(timer);
      offEvent();
      close();
    };
  }, [client]);
  return null;
}
