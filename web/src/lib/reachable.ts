/** Whether the server can be reached. While it cannot, it is tried again until it answers. */
import { createStore } from "./store.ts";

const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 8_000;
const TIMEOUT_MS = 5_000;

const reachable = createStore(true);
export const useReachable = reachable.use;

let waiting: Promise<void> | undefined;
const listeners = new Set<() => void>();

/** What was missed during an outage is loaded again after it. */
export const onReachableAgain = (listener: () => void): void => void listeners.add(listener);

/** Tries the server until it answers; at once if it can be reached. */
export function untilReachable(): Promise<void> {
  waiting ??= tryUntilItAnswers().finally(() => {
    waiting = undefined;
  });
  return waiting;
}

async function tryUntilItAnswers(): Promise<void> {
  for (let waitMs = FIRST_WAIT_MS; !(await answers());) {
    reachable.set(false);
    await pause(waitMs);
    waitMs = Math.min(waitMs * 2, LONGEST_WAIT_MS);
  }
  if (reachable.get()) return;
  reachable.set(true);
  for (const listener of listeners) listener();
}

/** A gateway that answers in place of the server is no answer. */
async function answers(): Promise<boolean> {
  try {
    const signal = AbortSignal.timeout(TIMEOUT_MS);
    return (await fetch("/api/health", { cache: "no-store", signal })).ok;
  } catch {
    return false;
  }
}

/** Ends early when the device is online again. */
const pause = (waitMs: number): Promise<void> =>
  new Promise((resolve) => {
    const done = (): void => {
      clearTimeout(timer);
      removeEventListener("online", done);
      resolve();
    };
    const timer = setTimeout(done, waitMs);
    addEventListener("online", done);
  });

/**
 * Loads a part of the app, and waits while the server cannot be reached. A browser may remember that a part could not be
 * loaded, and an update of the server removes the parts of the version before: then the page is loaded again, once until
 * that part has loaded. If that does not help, the part fails.
 */
export async function loadPart<T>(
  load: () => Promise<T>,
  page: () => string = () => globalThis.location.href,
): Promise<T> {
  // The source of the function names the file of its part.
  const mark = `purser-opened-for ${String(load)}`;
  const loaded = async (): Promise<T> => {
    const part = await load();
    sessionStorage.removeItem(mark);
    return part;
  };
  if (!navigator.onLine || !reachable.get()) await untilReachable();
  try {
    return await loaded();
  } catch {
    await untilReachable();
  }
  try {
    return await loaded();
  } catch (error) {
    const url = page();
    if (sessionStorage.getItem(mark) === url) throw error;
    sessionStorage.setItem(mark, url);
    if (url === globalThis.location.href) globalThis.location.reload();
    else globalThis.location.assign(url);
    return new Promise(() => {});
  }
}
