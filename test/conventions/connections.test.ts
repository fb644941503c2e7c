// Goal: after an idle period, the database pool is ready for a burst: connections stay open, and statements are
// planned once.
import { setTimeout as sleep } from "node:timers/promises";
import t, { type Test } from "tap";
import { createPool, TIMEOUTS, type Pool } from "../../server/infra/db/pool.ts";
import { testApp } from "../helpers/app.ts";
import { testDatabase } from "../helpers/postgres.ts";
import { until } from "../helpers/until.ts";
import { settleOfABurst } from "./hot-statements.ts";

/** In real time: the pool closes connections that were idle for this long. */
const QUIET_MS = 100;

/** Takes this many connections at the same time, and returns them. */
async function takeAtOnce(t: Test, pool: Pool, count: number): Promise<void> {
  const clients = await Promise.all(Array.from({ length: count }, () => pool.connect()));
  t.ok(pool.totalCount >= count, "there is a connection for each");
  for (const client of clients) client.release();
}

t.test("some connections stay open, and no more", async (t) => {
  const { app } = await testApp(t);
  for (const pool of [app.pool, app.enginePool]) {
    const { idleTimeoutMillis } = pool.options;
    pool.options.idleTimeoutMillis = QUIET_MS;
    await takeAtOnce(t, pool, 8);
    await until(() => pool.totalCount <= 4);
    await sleep(2 * QUIET_MS);
    t.equal(pool.totalCount, 4);
    pool.options.idleTimeoutMillis = idleTimeoutMillis;
  }
});

t.test("the pools for payments plan each statement once", async (t) => {
  const { url } = await testDatabase(t);
  for (const patience of [TIMEOUTS.money, TIMEOUTS.engine]) {
    const pool = createPool(url, { maxConnections: 1, timeouts: patience });
    t.teardown(() => pool.end());
    await settleOfABurst(t, pool);
    const { rows } = await pool.query<{ name: string; once: string; each: string }>(
      `SELECT name, generic_plans AS once, custom_plans AS each FROM pg_prepared_statements WHERE name <> ''`,
    );
    t.same(rows.map(({ name }) => name).toSorted(), [
      "lane-persist",
      "settlement-accept",
      "settlements-claim",
      "transaction-final",
    ]);
    t.same(
      rows.filter(({ once, each }) => Number(once) === 0 || Number(each) > 0),
      [],
    );
  }
});
