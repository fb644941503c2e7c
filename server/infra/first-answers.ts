import type { FastifyInstance } from "fastify";

/** Whoever waits for the port has its answers before any work that nobody waits for: half of a start is such work. */
export const FIRST_ANSWERS_MS = 250;

/** Begins when the first answers are out; never, where the service closes before. */
export function afterFirstAnswers(
  app: FastifyInstance,
  begin: () => void,
  hasPort: boolean = true,
): void {
  let timer: NodeJS.Timeout | undefined;
  const wait = async (): Promise<void> => {
    timer = setTimeout(begin, FIRST_ANSWERS_MS);
  };
  if (hasPort) app.addHook("onListen", wait);
  else app.addHook("onReady", wait);
  app.addHook("preClose", async () => clearTimeout(timer));
}
