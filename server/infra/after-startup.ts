import type { FastifyInstance } from "fastify";

/**
 * Work that no client waits for (half of the start) begins this long after listening, so that the first requests are
 * answered before it.
 */
export const STARTUP_QUIET_MS = 250;

/** Begins after the first responses; never, if the service closes before. */
export function afterStartup(
  app: FastifyInstance,
  begin: () => void,
  hasPort: boolean = true,
): void {
  let timer: NodeJS.Timeout | undefined;
  const wait = async (): Promise<void> => {
    timer = setTimeout(begin, STARTUP_QUIET_MS);
  };
  if (hasPort) app.addHook("onListen", wait);
  else app.addHook("onReady", wait);
  app.addHook("preClose", async () => clearTimeout(timer));
}
