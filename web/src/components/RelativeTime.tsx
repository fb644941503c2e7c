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

interface TimeProps {
  iso: string | null;
  /** Words before the time. */
  label?: string;
  /** Shown where there is no time. */
  none?: string;
}

/** The relative time of a past event. */
export function TimeAgo(props: TimeProps): ReactNode {
  return <Time {...props} format={formatAgo} />;
}

/** The relative time of a future event. */
export function TimeUntil(props: TimeProps): ReactNode {
  return <Time {...props} format={formatUntil} />;
}

function Time({ iso, label, none, format }: TimeProps & { format: typeof formatAgo }): ReactNode {
  const nowMs = useNowMs();
  if (iso === null) return none;
  return (
    <>
      {label !== undefined && `${label} `}
      <time dateTime={iso} title={formatDateTime(iso)}>
        {format(iso, nowMs)}
      </time>
    </>
  );
}
