import { type ReactNode, useSyncExternalStore } from "react";
import { serverNowMs } from "../lib/clock.ts";
import { formatAgo, formatDateTime, formatUntil } from "../lib/time.ts";

/** One timer for all: a hundred rows must not start a hundred timers. */
let ticks = 0;
const listeners = new Set<() => void>();
let timer: ReturnType<typeof setInterval> | undefined;

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  timer ??= setInterval(() => {
    ticks += 1;
    for (const each of listeners) each();
  }, 10_000);
  return () => {
    listeners.delete(listener);
    if (listeners.size === 0) {
      clearInterval(timer);
      timer = undefined;
    }
  };
}

/** The timer only triggers a render; a render reads the clock itself. */
export function useNowMs(): number {
  useSyncExternalStore(subscribe, () => ticks);
  return serverNowMs();
}

/** The relative time of a past event. */
export function TimeAgo({ iso }: { iso: string }): ReactNode {
  return <Time iso={iso}>{formatAgo(iso, useNowMs())}</Time>;
}

/** The relative time of a future event. */
export function TimeUntil({ iso }: { iso: string }): ReactNode {
  return <Time iso={iso}>{formatUntil(iso, useNowMs())}</Time>;
}

const Time = ({ iso, children }: { iso: string; children: string }): ReactNode => (
  <time dateTime={iso} title={formatDateTime(iso)}>
    {children}
  </time>
);
