// Resources that all test files of a process share on purpose. They do not count as left open by a file
// (test/runner/left-behind.mjs); pages and the like that a file leaves open in them do.
interface SharedThing {
  /** Handles that stay open until the process ends. */
  handles: readonly unknown[];
  /** Lists what a file should have closed in it. */
  left: () => string[];
}

const GLOBAL = globalThis as { sharedByProcess?: Set<SharedThing> };

/** @returns a function that ends the sharing */
export function shareWithProcess(thing: SharedThing): () => void {
  // Compiled test files and the runner share no module, so this is a global.
  GLOBAL.sharedByProcess ??= new Set();
  const things = GLOBAL.sharedByProcess.add(thing);
  return () => void things.delete(thing);
}
