/**
 * The operators' page: what runs, whether money moves, and what needs a person. Its routes exist only where OPERATORS
 * names somebody. Every process writes that it runs, so that the page shows those without OPERATORS as well.
 */
import fp from "fastify-plugin";
import { newId } from "../../core/ids.ts";
import { afterStartup } from "../../infra/after-startup.ts";
import { endProcess, noteProcess } from "./processes-store.ts";
import routes from "./routes.ts";

const SEEN_EVERY_MS = 30_000;

export default fp(
  async (app) => {
    const id = newId("prc");
    let timer: NodeJS.Timeout | undefined;
    let noted = Promise.resolve();
    const note = (): void => {
      noted = noteProcess(app.pool, { id, worker: app.config.worker }).catch((err: unknown) =>
        app.log.warn({ err }, "this process could not write that it runs"),
      );
    };
    afterStartup(app, () => {
      note();
      timer = setInterval(note, SEEN_EVERY_MS).unref();
    });
    app.addHook("preClose", async () => {
      if (timer === undefined) return;
      clearInterval(timer);
      await noted;
      // If this fails, the row is shown as gone.
      await endProcess(app.pool, id).catch(() => undefined);
    });
    if (app.config.operators.length > 0) await app.register(routes);
  },
  { name: "operators" },
);
