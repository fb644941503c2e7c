import { setTimeout as delay } from "node:timers/promises";
import fp from "fastify-plugin";
import {
  Logger,
  parseCronItems,
  run,
  runMigrations,
  type Runner,
  type TaskSpec,
} from "graphile-worker";
import { Pool } from "pg";
import { connectionSettings, PATIENCE, surviveLostConnections, watchSilence } from "./db/pool.ts";

export type JobHandler = (payload: unknown) => Promise<void>;

/**
 * Two queues with workers and connections of their own. `safety` holds what money and retention wait for; `strangers`
 * whatever waits for a host or a person that somebody else chose, and may take as long as its round allows.
 */
export type Queue = "safety" | "strangers";

export interface TaskOptions {
  /** `safety`, unless it talks to strangers. */
  queue?: Queue;
  /** When it runs by itself: minute hour day month weekday, UTC. */
  cron?: string;
  /** Also once when a replica starts; replicas that start together run it once. */
  atStart?: boolean;
}

export interface Jobs {
  /** Declares a task; to be called while the app is built. A task may run twice, so it must bear that. */
  addTask(name: string, handler: JobHandler, options?: TaskOptions): void;
  /** Queues one run in Postgres; with a jobKey at most one is waiting. */
  enqueue(
    name: string,
    payload?: unknown,
    spec?: Pick<TaskSpec, "runAt" | "jobKey">,
  ): Promise<void>;
}

declare module "fastify" {
  interface FastifyInstance {
    jobs: Jobs;
  }
}

const SCHEMA = "graphile_worker";
/** An arbitrary constant, the same on every replica. */
const MIGRATION_LOCK_KEY = 7_205_759_404;
const RESTART_MS = 5_000;
const POLL_MS = 5_000;
/** Each worker needs a connection now and then, the queue one to LISTEN and one for what is due by the clock. */
const QUEUES: readonly { name: Queue; workers: number; connections: number }[] = [
  { name: "safety", workers: 2, connections: 5 },
  { name: "strangers", workers: 2, connections: 4 },
];

/** Background work in Postgres' own job queue: shared by all replicas, kept through restarts. */
export default fp(
  async (app) => {
    const { databaseUrl } = app.config;
    if (databaseUrl === undefined) throw new Error("databaseUrl is not resolved");
    const tasks = new Map<string, { handler: JobHandler; options: TaskOptions }>();
    const closing = new AbortController();
    const runners = new Map<Queue, Runner>();
    // The queue's own: it wants numbers as Postgres writes them, and its waiting must not starve payments.
    const queues = QUEUES.map((queue) => ({
      ...queue,
      pool: new Pool({
        ...connectionSettings(databaseUrl, PATIENCE.jobs),
        max: queue.connections,
      }),
    }));
    for (const { pool } of queues) {
      watchSilence(pool, PATIENCE.jobs, app.silence);
      surviveLostConnections(pool, (error) =>
        app.log.warn({ reason: error.message }, "job queue lost a database connection"),
      );
    }
    let running: Promise<unknown> | undefined;
    const logger = new Logger(() => (level, message) => {
      if (["error", "warning"].includes(level)) app.log.warn({ job: message }, "job queue");
      else app.log.debug({ job: message }, "job queue");
    });

    app.decorate("jobs", {
      addTask: (name, handler, options = {}) => void tasks.set(name, { handler, options }),
      async enqueue(name, payload, spec) {
        // SQL: a function of the job queue, which has its own schema.
        await app.pool.query(
          `SELECT ${SCHEMA}.add_job($1, payload := $2::json, run_at := $3, job_key := $4)`,
          [name, JSON.stringify(payload ?? {}), spec?.runAt ?? null, spec?.jobKey ?? null],
        );
      },
    });
    // Work in the background belongs to a service that serves; an app that only injects has none.
    app.addHook("onListen", async () => {
      running = Promise.all(queues.map((queue) => keepRunning(queue)));
    });
    app.addHook("onClose", async () => {
      closing.abort();
      await Promise.all(
        [...runners.values()].map((runner) => runner.stop().catch(() => undefined)),
      );
      await running;
      await Promise.all(queues.map(({ pool }) => pool.end()));
    });

    /** The queue's runner gives up when the database is away for long: then it is started again. */
    async function keepRunning(queue: (typeof queues)[number]): Promise<void> {
      while (!closing.signal.aborted) {
        try {
          await migrateUnderLock(queue.pool);
          if (closing.signal.aborted) return;
          const runner = await start(queue);
          runners.set(queue.name, runner);
          if (closing.signal.aborted) await runner.stop();
          await runner.promise;
        } catch (error) {
          if (closing.signal.aborted) return;
          app.log.warn({ err: error, queue: queue.name }, "job queue stopped; starting it again");
        }
        runners.delete(queue.name);
        await delay(RESTART_MS, undefined, { signal: closing.signal }).catch(() => undefined);
      }
    }

    /** A runner takes only the tasks it knows, so the queues never meet. */
    async function start({ name: queue, pool, workers }: (typeof queues)[number]): Promise<Runner> {
      const own = [...tasks].filter(([, { options }]) => (options.queue ?? "safety") === queue);
      const crons = own.flatMap(([task, { options }]) =>
        options.cron === undefined ? [] : [{ task, match: options.cron, identifier: task }],
      );
      const started = await run({
        pgPool: pool,
        concurrency: workers,
        pollInterval: POLL_MS,
        schema: SCHEMA,
        noHandleSignals: true,
        logger,
        parsedCronItems: parseCronItems(crons),
        taskList: Object.fromEntries(
          own.map(([name, { handler }]) => [name, (payload: unknown) => handler(payload)]),
        ),
      });
      for (const [name, { options }] of own)
        if (options.atStart) await started.addJob(name, {}, { jobKey: `start:${name}` });
      return started;
    }

    async function migrateUnderLock(pool: Pool): Promise<void> {
      const client = await pool.connect();
      try {
        // SQL: an advisory lock.
        await client.query("SELECT pg_advisory_lock($1)", [MIGRATION_LOCK_KEY]);
        await runMigrations({ pgPool: pool, schema: SCHEMA, logger });
      } finally {
        // Destroyed, not given back: the lock ends with its session, also after an error.
        client.release(true);
      }
    }
  },
  { name: "jobs" },
);
