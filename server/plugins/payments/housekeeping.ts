import fp from "fastify-plugin";
import { deleteOldKeys } from "./idempotency.ts";

/** Longer than any request that could still sign (its transaction would be refused anyway). */
const UNSIGNED_SAFE_SECONDS = 60;
/** Promised for 24 hours; a day more lets nobody be surprised by a boundary. */
const KEY_HOURS = 48;

/** Releases what died halfway, and forgets answers nobody can need any more. */
export default fp(
  async (app) => {
    app.jobs.addTask(
      "sweep-unsigned",
      async () =>
        void (await app.payments.sweepUnsigned({ olderThanSeconds: UNSIGNED_SAFE_SECONDS })),
      { cron: "* * * * *", atStart: true },
    );
    app.jobs.addTask(
      "forget-answers",
      async () =>
        app.log.info({ keys: await deleteOldKeys(app.pool, KEY_HOURS) }, "old rows deleted"),
      { cron: "17 * * * *", atStart: true },
    );
  },
  { name: "housekeeping" },
);
