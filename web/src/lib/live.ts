/** Server-sent events: one connection per tab, reopened with growing delays, resumed by `Last-Event-ID`. */
import { untilReachable } from "./reachable.ts";
import { createStore } from "./store.ts";
import type { Payment } from "./wire.ts";

type LiveEvent =
  | { type: "payment"; payment: Payment }
  | { type: "agent"; agentId: string }
  | { type: "approval"; approvalId: string }
  | { type: "notification" }
  /** Everything was stopped or resumed, or the denied payees changed. */
  | { type: "owner" }
  | { type: "session" };
type LiveState = "closed" | "connecting" | "open";

const eventListeners = new Set<(event: LiveEvent) => void>();
const state = createStore<LiveState>("closed");

const notify = (event: LiveEvent): void => {
  for (const listener of eventListeners) listener(event);
};

export function onLiveEvent(listener: (event: LiveEvent) => void): () => void {
  eventListeners.add(listener);
  return () => eventListeners.delete(listener);
}

export const useLiveState = state.use;

const dataOf = (event: Event): unknown => JSON.parse(String((event as MessageEvent).data));

/**
 * Opens the connection; `onReconnect` runs when it is open again after an interruption. Returns a function
 * that closes it.
 */
export function openLive(onReconnect: () => void): () => void {
  let source: EventSource | undefined;
  let timer: ReturnType<typeof setTimeout> | undefined;
  let waitMs = 1_000;
  let wasBroken = false;
  let isClosed = false;

  const open = (): void => {
    if (isClosed) return;
    state.set("connecting");
    source = new EventSource("/api/events");
    source.addEventListener("open", () => {
      waitMs = 1_000;
      state.set("open");
      if (wasBroken) onReconnect();
      wasBroken = false;
    });
    source.addEventListener("error", () => {
      wasBroken = true;
      state.set("connecting");
      void untilReachable();
      // The browser reconnects by itself unless the response was a refusal; then the session may have ended.
      if (source?.readyState !== EventSource.CLOSED) return;
      notify({ type: "session" });
      timer = setTimeout(open, waitMs);
      waitMs = Math.min(waitMs * 2, 30_000);
    });
    source.addEventListener("payment", (event) => {
      notify({ type: "payment", payment: dataOf(event) as Payment });
    });
    source.addEventListener("agent", (event) => {
      notify({ type: "agent", agentId: (dataOf(event) as { agentId: string }).agentId });
    });
    for (const what of ["requested", "granted", "declined", "expired", "used"])
      source.addEventListener(`approval.${what}`, (event) => {
        const { approvalId } = dataOf(event) as { approvalId: string };
        notify({ type: "approval", approvalId });
      });
    source.addEventListener("notification", () => {
      notify({ type: "notification" });
    });
    source.addEventListener("owner", () => {
      notify({ type: "owner" });
    });
    source.addEventListener("session", () => {
      notify({ type: "session" });
    });
  };

  open();
  return () => {
    isClosed = true;
    clearTimeout(timer);
    source?.close();
    state.set("closed");
  };
}
