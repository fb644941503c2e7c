// What a test file left running: timers, connections, servers and children that would keep this process alive.

/** They close a moment after they were asked to; on a busy machine, a long one. */
const PATIENCE_MS = 15_000;
/** The pipes to whoever runs this process. */
const OURS = new Set([process.stdin, process.stdout, process.stderr]);

/** @returns {Promise<string[]>} */
export async function leftBehind(patienceMs = PATIENCE_MS) {
  const until = performance.now() + patienceMs;
  for (;;) {
    const left = present();
    if (left.length === 0 || performance.now() > until) return left;
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

function present() {
  // Timers have no handle to look at; the one that waits here has fired.
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
  return !OURS.has(handle) && handle.hasRef?.() !== false;
}

function describe(handle) {
  const kind = handle.constructor?.name ?? "handle";
  if (handle.spawnargs) return `${kind} ${handle.pid}: ${handle.spawnargs.join(" ").slice(0, 200)}`;
  if (handle.remotePort) return `${kind} to ${handle.remoteAddress}:${handle.remotePort}`;
  if (handle.address?.()?.port) return `${kind} on port ${handle.address().port}`;
  return kind;
}
