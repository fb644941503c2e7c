// What all test files of a process share on purpose. It is not left behind by a file (test/runner/left-behind.mjs); what
// a file leaves open in it is.
export interface SharedThing {
  /** Of this process, and open until it ends. */
  handles: readonly unknown[];
  /** What a file should have closed in it. */
  left: () => string[];
}

const GLOBAL = globalThis as { sharedByProcess?: Set<SharedThing> };

/** @returns takes it back */
export function shareWithProcess(thing: SharedThing): () => void {
  // Compiled test files and the runner have no module in common.
  GLOBAL.sharedByProcess ??= new Set();
  const things = GLOBAL.sharedByProcess.add(thing);
  return () => void things.delete(thing);
}
