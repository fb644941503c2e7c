// Finds resources that a test file left open: timers, connections, servers and child processes that would
// keep this process running.

/** Resources close a moment after the request to close, on a busy machine much later. */
const CLOSE_WAIT_MS = 15_000;
/** The pipes to the parent process. */
const OWN_PIPES = new Set([process.stdin, process.stdout, process.stderr]);

/** @returns {Promise<string[]>} */
export async function leftBehind(waitMs = CLOSE_WAIT_MS) {
  const until = performance.now() + waitMs;
  for (;;) {
    const left = present();
    if (left.length === 0 || performance.now() > until) return left;
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

function present() {
  // Timers have no handle that could be listed; the timer of this wait has fired.
  const timers = process.getActiveResourcesInfo().filter((kind) => kind === "Timeout");
  // test/helpers/shared.ts
  const shared = [...(globalThis.sharedByProcess ?? [])];
  const kept = new Set(shared.flatMap(({ handles }) => handles));
  const handles = process
    ._getActiveHandles()
    .filter((handle) => isOpen(handle) && !kept.has(handle));
  return [...timers, ...handles.map(describe), ...shared.flatMap(({ left }) => left())];
}

function isOpen(handle) {
  return !OWN_PIPES.has(handle) && handle.hasRef?.() !== false;
}

function describe(handle) {
  const kind = handle.constructor?.name ?? "handle";
  if (handle.spawnargs) return `${kind} ${handle.pid}: ${handle.spawnargs.join(" ").slice(0, 200)}`;
  if (handle.remotePort) return `${kind} to ${handle.remoteAddress}:${handle.remotePort}`;
  if (handle.address?.()?.port) return `${kind} on port ${handle.address().port}`;
  return kind;
}
