import type { FastifyInstance } from "fastify";

/**
 * Work that no client waits for (half of the start) begins this long after listening, so that the first requests are
 * answered before it.
 */
export const STARTUP_QUIET_MS = 250;

/** Begins after the first responses; never, if the service closes before or, as in most tests, does not listen. */
export function afterStartup(app: FastifyInstance, begin: () => void): void {
  let timer: NodeJS.Timeout | undefined;
  app.addHook("onListen", async () => {
    timer = setTimeout(begin, STARTUP_QUIET_MS);
  });
  app.addHook("preClose", async () => clearTimeout(timer));
}
