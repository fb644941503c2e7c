// Goal: scheduled jobs run once for all replicas and are scheduled again; a connection lost at any moment ends
// neither the process nor the queue.
// Tier: full (follows real block times or socket timeouts).
import { EventEmitter } from "node:events";
import { Registry } from "prom-client";
import type { Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import Fastify, { type FastifyInstance } from "fastify";
import { Logger, runTaskList, type WorkerEvents } from "graphile-worker";
import t, { type Test } from "tap";
import type { Config } from "../../server/config.ts";
import { TIMINGS } from "../../server/core/timings.ts";
import db from "../../server/infra/db/index.ts";
import { surviveLostConnections } from "../../server/infra/db/pool.ts";
import jobs, { JobPool, type JobHandler, type TaskOptions } from "../../server/infra/jobs.ts";
import { testDatabase, type TestDatabase } from "../helpers/postgres.ts";
import { until } from "../helpers/until.ts";

const TIMINGS_HERE = { ...TIMINGS, jobRestartMs: 100, jobPollMs: 200, jobPlanMs: 200 };

type Tasks = Record<string, [JobHandler, TaskOptions?]>;

/** A service with only a database and a job queue. */
async function replica(t: Test, { url }: TestDatabase, tasks: Tasks): Promise<FastifyInstance> {
  const app = Fastify({ logger: false });
  app.decorate("config", { databaseUrl: url, timings: TIMINGS_HERE } as Config);
  app.decorate("metrics", new Registry());
  await app.register(db);
  await app.register(jobs);
  for (const [name, [handler, options]] of Object.entries(tasks))
    app.jobs.addTask(name, handler, options);
  t.teardown(() => app.close());
  await app.listen({ host: "127.0.0.1", port: 0 });
  return app;
}

/** Reads the queue's own tables. */
const planned = async ({ pool }: TestDatabase) =>
  (
    await pool
      .query<{ run_at: Date; is_later: boolean }>(
        "SELECT run_at, run_at > now() AS is_later FROM graphile_worker.jobs WHERE key = 'cron:tick'",
      )
      .catch(() => ({ rows: [] }))
  ).rows;

t.test("two replicas run a due job once, and schedule it again", async (t) => {
  const database = await testDatabase(t);
  let runs = 0;
  const tick: Tasks = { tick: [async () => void (runs += 1), { cron: "* * * * *" }] };
  await Promise.all([replica(t, database, tick), replica(t, database, tick)]);
  for (const round of [1, 2]) {
    await until(async () => (await planned(database)).some(({ is_later }) => is_later), 40_000);
    const plan = await planned(database);
    t.equal(plan.length, 1, "one schedule for both");
    t.equal(plan[0]?.run_at.getUTCSeconds(), 0, "at a full minute");
    // Makes the job due, independent of the time of day.
    await database.pool.query("UPDATE graphile_worker._private_jobs SET run_at = now()");
    await until(() => runs >= round, 20_000);
    await until(async () => (await planned(database)).some(({ is_later }) => is_later), 40_000);
    t.equal(runs, round, "run once");
  }
});

/** Waits until this many statements wait for the test's lock, and ends their connections. */
async function cutWaiting({ pool }: TestDatabase, atLeast: number): Promise<void> {
  const waiting =
    "FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
  await until(
    async () => ((await pool.query(`SELECT 1 ${waiting}`)).rowCount ?? 0) >= atLeast,
    30_000,
  );
  await pool.query(`SELECT pg_terminate_backend(pid) ${waiting}`);
}

/** Locks the table until the returned function is called. */
async function locked({ pool }: TestDatabase, table: string): Promise<() => Promise<void>> {
  const client = await pool.connect();
  await client.query(`BEGIN; LOCK TABLE graphile_worker.${table} IN ACCESS EXCLUSIVE MODE`);
  return async () => {
    await client.query("ROLLBACK");
    client.release();
  };
}

t.test("connections are lost", async (t) => {
  const database = await testDatabase(t);
  const rejections: unknown[] = [];
  const note = (error: unknown) => void rejections.push(error);
  process.on("unhandledRejection", note);
  t.teardown(() => process.off("unhandledRejection", note));
  const done = new Set<string>();
  let finish: (() => void)[] = [];
  const tasks: Tasks = {
    tick: [async () => undefined, { cron: "* * * * *" }],
    slow: [() => new Promise<void>((resolve) => void finish.push(resolve))],
    quick: [async (payload) => void done.add((payload as { id: string }).id)],
  };
  const app = await replica(t, database, tasks);
  const isRun = async (id: string): Promise<void> => {
    await until(
      () =>
        app.jobs.enqueue("quick", { id }).then(
          () => true,
          () => false,
        ),
      30_000,
    );
    await until(() => done.has(id), 30_000);
  };
  await isRun("at first");

  await t.test("while the workers record the results of their jobs", async (t) => {
    await app.jobs.enqueue("slow");
    await app.jobs.enqueue("slow");
    await until(() => finish.length === 2, 20_000);
    const unlock = await locked(database, "_private_jobs");
    for (const end of finish) end();
    finish = [];
    await cutWaiting(database, 2);
    await unlock();
    await isRun("with workers that took the place of those");
    t.strictSame(rejections, []);
  });

  await t.test("while jobs are scheduled, and while a job is fetched", async (t) => {
    const unlock = await locked(database, "_private_jobs");
    await database.pool.query("SELECT pg_notify('jobs:insert', '{\"count\":2}')");
    await cutWaiting(database, 1);
    await cutWaiting(database, 1);
    await unlock();
    await isRun("after both");
    await until(async () => (await planned(database)).length === 1, 40_000);
    t.strictSame(rejections, []);
  });

  await t.test("while the queue starts", async (t) => {
    const unlock = await locked(database, "_private_known_crontabs");
    let isCut = false;
    const second = replica(t, database, tasks);
    const cutting = cutWaiting(database, 1).then(
      () => (isCut = true),
      () => undefined,
    );
    await second;
    // If nothing waits for that table within this time, there is nothing to cut.
    await Promise.race([cutting, sleep(3_000)]);
    await unlock();
    await isRun("by either");
    t.strictSame(rejections, [], isCut ? "cut" : "nothing waits for that table");
  });
});

t.test("the listening connection breaks while the queue is being stopped", async (t) => {
  const database = await testDatabase(t);
  const app = await replica(t, database, { quick: [async () => undefined] });
  await until(() =>
    app.jobs.enqueue("quick").then(
      () => true,
      () => false,
    ),
  );
  const rejections: unknown[] = [];
  const note = (error: unknown) => void rejections.push(error);
  process.on("unhandledRejection", note);
  t.teardown(() => process.off("unhandledRejection", note));
  const pool = new JobPool({ connectionString: database.url, max: 4 });
  surviveLostConnections(pool, () => undefined);
  t.teardown(() => pool.end());
  const events: WorkerEvents = new EventEmitter();
  // Emitted before LISTEN is sent: its response is never read.
  events.once("pool:listen:success", ({ workerPool, client }) => {
    const { stream } = (client as unknown as { connection: { stream: Socket } }).connection;
    stream.pause();
    // In real time: the stop begins after LISTEN was sent, and the cut comes while it waits. On a busy machine the
    // check is weaker, but cannot fail wrongly.
    setTimeout(() => void workerPool.gracefulShutdown(), 100);
    setTimeout(() => stream.destroy(new Error("cut")), 300);
  });
  const logger = new Logger(() => () => undefined);
  await runTaskList(
    { noHandleSignals: true, events, logger },
    { none: async () => undefined },
    pool,
  ).promise;
  await sleep(200); // Time for an unhandled rejection, which must not come.
  t.strictSame(rejections, []);
});
