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

export interface TaskOptions {
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

/** Background work in Postgres' own job queue: shared by all replicas, kept through restarts. */
export default fp(
  async (app) => {
    const { databaseUrl } = app.config;
    if (databaseUrl === undefined) throw new Error("databaseUrl is not resolved");
    // The queue's own: it wants numbers as Postgres writes them, and its waiting must not starve payments.
    const pool = new Pool({ ...connectionSettings(databaseUrl, PATIENCE.jobs), max: 5 });
    watchSilence(pool, PATIENCE.jobs, app.silence);
    surviveLostConnections(pool, (error) =>
      app.log.warn({ reason: error.message }, "job queue lost a database connection"),
    );
    const tasks = new Map<string, { handler: JobHandler; options: TaskOptions }>();
    const closing = new AbortController();
    let runner: Runner | undefined;
    let running: Promise<void> | undefined;
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
      running = keepRunning();
    });
    app.addHook("onClose", async () => {
      closing.abort();
      await runner?.stop().catch(() => undefined);
      await running;
      await pool.end();
    });

    /** The queue's runner gives up when the database is away for long: then it is started again. */
    async function keepRunning(): Promise<void> {
      while (!closing.signal.aborted) {
        try {
          await migrateUnderLock();
          if (closing.signal.aborted) return;
          runner = await start();
          if (closing.signal.aborted) await runner.stop();
          await runner.promise;
        } catch (error) {
          if (closing.signal.aborted) return;
          app.log.warn({ err: error }, "job queue stopped; starting it again");
        }
        runner = undefined;
        await delay(RESTART_MS, undefined, { signal: closing.signal }).catch(() => undefined);
      }
    }

    async function start(): Promise<Runner> {
      const crons = [...tasks].flatMap(([task, { options }]) =>
        options.cron === undefined ? [] : [{ task, match: options.cron, identifier: task }],
      );
      const started = await run({
        pgPool: pool,
        concurrency: 2,
        pollInterval: POLL_MS,
        schema: SCHEMA,
        noHandleSignals: true,
        logger,
        parsedCronItems: parseCronItems(crons),
        taskList: Object.fromEntries(
          [...tasks].map(([name, { handler }]) => [name, (payload: unknown) => handler(payload)]),
        ),
      });
      for (const [name, { options }] of tasks)
        if (options.atStart) await started.addJob(name, {}, { jobKey: `start:${name}` });
      return started;
    }

    async function migrateUnderLock(): Promise<void> {
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
