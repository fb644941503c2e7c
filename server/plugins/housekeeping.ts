import fp from "fastify-plugin";
import { deleteOldEvents } from "../adapters/stores/events.ts";
import { deleteExpiredSignIns } from "../adapters/stores/housekeeping.ts";
import { deleteOldKeys } from "../adapters/stores/idempotency.ts";

/** Longer than any request that could still sign (its transaction would be refused anyway). */
const UNSIGNED_SAFE_SECONDS = 60;
/** Promised for 24 hours; a day more lets nobody be surprised by a boundary. */
const KEY_HOURS = 48;
const EVENT_HOURS = 48;

/** Releases what died halfway, and forgets what nobody can need any more. */
export default fp(
  async (app) => {
    app.jobs.addTask(
      "sweep-unsigned",
      async () =>
        void (await app.payments.sweepUnsigned({ olderThanSeconds: UNSIGNED_SAFE_SECONDS })),
      { cron: "* * * * *", atStart: true },
    );
    app.jobs.addTask(
      "retention",
      async () => {
        const keys = await deleteOldKeys(app.pool, KEY_HOURS);
        const events = await deleteOldEvents(app.pool, EVENT_HOURS);
        const signIns = await deleteExpiredSignIns(app.pool);
        app.log.info({ keys, events, signIns }, "old rows deleted");
      },
      { cron: "17 * * * *", atStart: true },
    );
  },
  { name: "housekeeping", dependencies: ["jobs", "payments"] },
);
