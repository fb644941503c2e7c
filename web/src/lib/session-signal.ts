/**
 * Signals a change of session to this tab and to the other tabs: a tab must never show one owner's data while
 * the cookie already belongs to another.
 */
type SessionSignal = "lost" | "changed";

type Listener = (signal: SessionSignal) => void;

const listeners = new Set<Listener>();
const channel =
  typeof BroadcastChannel === "undefined" ? undefined : new BroadcastChannel("purser-session");

const notify = (signal: SessionSignal): void => {
  for (const listener of listeners) listener(signal);
};

channel?.addEventListener("message", () => {
  notify("changed");
});

export function onSessionSignal(listener: Listener): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** A request was refused because it has no valid session. */
export const announceSessionLost = (): void => {
  notify("lost");
};

/** This tab signed in or out; the other tabs must check their session. */
export const announceSessionChanged = (): void => {
  // oxlint-disable-next-line unicorn/require-post-message-target-origin -- a channel has no target origin
  channel?.postMessage("changed");
};
