import { type ReactNode, useSyncExternalStore } from "react";
import { formatDateTime, formatRelative } from "../lib/time.ts";

/** One clock for all: a hundred rows must not mean a hundred timers. */
let nowMs = Date.now();
const listeners = new Set<() => void>();
let timer: ReturnType<typeof setInterval> | undefined;

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  timer ??= setInterval(() => {
    nowMs = Date.now();
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

export const useNowMs = (): number => useSyncExternalStore(subscribe, () => nowMs);

export function RelativeTime({ iso }: { iso: string }): ReactNode {
  const now = useNowMs();
  return (
    <time dateTime={iso} title={formatDateTime(iso)}>
      {formatRelative(iso, Math.max(now, Date.now() - 10_000))}
    </time>
  );
}
