// Waits until a source file changes.
import { watch } from "node:fs";
import { join } from "node:path";
import { ROOT } from "../../server/local/bootstrap.mjs";

const WATCHED = ["server", "packages", "web/src", "test", "prisma"];
const MORE_MAY_FOLLOW_MS = 200;

/** @param {AbortSignal} signal */
export function nextChange(signal) {
  return new Promise((resolve) => {
    const close = () => watchers.forEach((watcher) => watcher.close());
    const watchers = WATCHED.map((folder) =>
      watch(join(ROOT, folder), { recursive: true }, () => {
        close();
        setTimeout(resolve, MORE_MAY_FOLLOW_MS);
      }),
    );
    signal.addEventListener("abort", () => (close(), resolve()), { once: true });
  });
}
