import { EventEmitter } from "node:events";
import { setTimeout as delay } from "node:timers/promises";
import fp from "fastify-plugin";
import {
  Logger,
  parseCronItem,
  runMigrations,
  runTaskList,
  type RunnerOptions,
  type TaskSpec,
  type WorkerEvents,
  type WorkerPool,
} from "graphile-worker";
import { Pool, type PoolClient } from "pg";
import { connectionSettings, TIMEOUTS, surviveLostConnections, watchSilence } from "./db/pool.ts";
import { afterStartup } from "./after-startup.ts";

export type JobHandler = (payload: unknown) => Promise<void>;

/**
 * Two queues with their own workers and connections. `safety` has what money and retention depend on. `thirdParties` has
 * everything that waits for a third party's host or a person, and may take as long as its run allows.
 */
export type Queue = "safety" | "thirdParties";

export interface TaskOptions {
  /** Default: `safety`. A task that contacts third parties uses `thirdParties`. */
  queue?: Queue;
  /** Schedule: minute hour day month weekday, UTC. */
  cron?: string;
  /** Also runs once when a replica starts; replicas that start together run it once. */
  atStart?: boolean;
}

export interface Jobs {
  /** Declares a task; call it while the app is being built. A task may run twice, so it must be idempotent. */
  addTask(name: string, handler: JobHandler, options?: TaskOptions): void;
  /** Queues one run in Postgres; at most one run per jobKey waits. */
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
const MINUTE_MS = 60_000;
/** Far enough for 29 February, which may be eight years away. */
const LOOK_AHEAD_MINUTES = 9 * 366 * 24 * 60;
/** Each worker needs a connection now and then; the queue needs one for LISTEN and one for its cron schedule. */
const QUEUES: readonly { name: Queue; workers: number; connections: number }[] = [
  { name: "safety", workers: 2, connections: 5 },
  { name: "thirdParties", workers: 4, connections: 6 },
];

/** Creates or updates the queue's tables. */
export const migrateJobs = (
  options: Pick<RunnerOptions, "connectionString" | "pgPool" | "logger">,
) => runMigrations({ ...options, schema: SCHEMA });

/** The first minute after `nowMs` that matches the schedule, in UTC. */
export function nextMatch(schedule: string, nowMs: number): Date {
  const { match } = parseCronItem({ task: "any", match: schedule });
  let at = new Date(nowMs - (nowMs % MINUTE_MS));
  for (let minute = 0; minute < LOOK_AHEAD_MINUTES; minute += 1) {
    at = new Date(at.getTime() + MINUTE_MS);
    const day = { date: at.getUTCDate(), month: at.getUTCMonth() + 1, dow: at.getUTCDay() };
    if (match({ min: at.getUTCMinutes(), hour: at.getUTCHours(), ...day })) return at;
  }
  throw new Error(`the schedule "${schedule}" matches no minute`);
}

/** The library releases its listening connection twice if it breaks while the queue is being stopped. */
export class JobPool extends Pool {
  override connect(): Promise<PoolClient>;
  override connect(callback: ConnectCallback): void;
  override connect(callback?: ConnectCallback): Promise<PoolClient> | void {
    if (!callback) return super.connect();
    super.connect((error, client, release) => {
      let isReleased = false;
      callback(error, client, (broken) => {
        if (isReleased) return;
        isReleased = true;
        release(broken);
      });
    });
  }
}
type ConnectCallback = (
  error: Error | undefined,
  client: PoolClient | undefined,
  release: (broken?: Error | boolean) => void,
) => void;

/** Background jobs in Postgres' own job queue (graphile-worker): shared by all replicas, kept across restarts. */
export default fp(
  async (app) => {
    const { databaseUrl, timings } = app.config;
    if (databaseUrl === undefined) throw new Error("databaseUrl is not resolved");
    const tasks = new Map<string, { handler: JobHandler; options: TaskOptions }>();
    const closing = new AbortController();
    const workerPools = new Set<WorkerPool>();
    // The queue's own pools: it needs numbers as Postgres writes them, and its waiting must not starve payments.
    const queues = QUEUES.map((queue) => ({
      ...queue,
      pool: new JobPool({
        ...connectionSettings(databaseUrl, TIMEOUTS.jobs),
        max: queue.connections,
      }),
    }));
    for (const { pool } of queues) {
      watchSilence(pool, TIMEOUTS.jobs, app.silence);
      surviveLostConnections(pool, (error) =>
        app.log.warn({ err: error }, "job queue lost a database connection"),
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
    afterStartup(app, () => {
      running = Promise.all(queues.map((queue) => keepRunning(queue)));
    });
    app.addHook("onClose", async () => {
      closing.abort();
      await Promise.all(
        [...workerPools].map((workers) => workers.gracefulShutdown("the service is closing")),
      );
      await running;
      await Promise.all(queues.map(({ pool }) => pool.end()));
    });

    /** Workers end when they cannot even record the result of a job; then new ones are started. */
    async function keepRunning(queue: (typeof queues)[number]): Promise<void> {
      while (!closing.signal.aborted) {
        const ended = new AbortController();
        let planning: Promise<void> | undefined;
        try {
          await migrateUnderLock(queue.pool);
          await addStartJobs(queue);
          if (closing.signal.aborted) return;
          const workers = startWorkers(queue);
          workerPools.add(workers);
          planning = keepPlanning(queue, AbortSignal.any([closing.signal, ended.signal]));
          await workers.promise.finally(() => workerPools.delete(workers));
          if (!closing.signal.aborted)
            app.log.warn({ queue: queue.name }, "job queue lost a worker; starting it again");
        } catch (error) {
          if (closing.signal.aborted) return;
          app.log.warn({ err: error, queue: queue.name }, "job queue stopped; starting it again");
        } finally {
          ended.abort();
          await planning;
        }
        await pause(timings.jobRestartMs);
      }
    }

    const pause = (ms: number): Promise<void> =>
      delay(ms, undefined, { signal: closing.signal }).catch(() => undefined);

    const tasksOf = ({ name: queue }: (typeof queues)[number]) =>
      [...tasks].filter(([, { options }]) => (options.queue ?? "safety") === queue);

    /**
     * Workers take only the tasks that they know, so the queues do not mix. Not the library's `run()`: if a connection
     * is lost in a statement of its scheduler, the rejection cannot be handled and ends the process. Version 0.17
     * handles it, but once it has opened a database, the workers of 0.16 stop and do not start again.
     */
    function startWorkers(queue: (typeof queues)[number]): WorkerPool {
      const events: WorkerEvents = new EventEmitter();
      const workers = runTaskList(
        {
          concurrency: queue.workers,
          pollInterval: timings.jobPollMs,
          schema: SCHEMA,
          noHandleSignals: true,
          logger,
          events,
        },
        Object.fromEntries(
          tasksOf(queue).map(([name, { handler }]) => [name, (payload) => handler(payload)]),
        ),
        queue.pool,
      );
      // The library would continue with one worker less, and in the end with none.
      events.on("worker:fatalError", () => {
        if (workerPools.has(workers)) void workers.gracefulShutdown("a worker ended");
      });
      return workers;
    }

    async function addStartJobs(queue: (typeof queues)[number]): Promise<void> {
      for (const [name, { options }] of tasksOf(queue))
        if (options.atStart)
          // SQL: a function of the job queue, which has its own schema.
          await queue.pool.query(`SELECT ${SCHEMA}.add_job($1, job_key := $2)`, [
            name,
            `start:${name}`,
          ]);
    }

    /** Every replica schedules each task's next run by the database's clock; the first one wins. */
    async function keepPlanning(
      queue: (typeof queues)[number],
      signal: AbortSignal,
    ): Promise<void> {
      const planned = tasksOf(queue).flatMap(([task, { options }]) =>
        options.cron === undefined ? [] : [{ task, cron: options.cron }],
      );
      while (!signal.aborted) {
        try {
          // SQL: the clock that decides what is due.
          const { rows } = await queue.pool.query<{ now: Date }>("SELECT now()");
          const nowMs = rows[0]?.now.getTime() ?? Date.now();
          // SQL: a function of the job queue, which has its own schema.
          await queue.pool.query(
            `SELECT ${SCHEMA}.add_job(task, run_at := due, job_key := 'cron:' || task, job_key_mode := 'preserve_run_at')
               FROM unnest($1::text[], $2::timestamptz[]) planned (task, due) ORDER BY task`,
            [planned.map(({ task }) => task), planned.map(({ cron }) => nextMatch(cron, nowMs))],
          );
        } catch (error) {
          if (!signal.aborted) app.log.warn({ err: error, queue: queue.name }, "jobs not planned");
        }
        await delay(timings.jobPlanMs, undefined, { signal }).catch(() => undefined);
      }
    }

    async function migrateUnderLock(pool: Pool): Promise<void> {
      const client = await pool.connect();
      try {
        // SQL: an advisory lock.
        await client.query("SELECT pg_advisory_lock($1)", [MIGRATION_LOCK_KEY]);
        await migrateJobs({ pgPool: pool, logger });
      } finally {
        // Destroyed and not returned to the pool: the lock ends with its session, also after an error.
        client.release(true);
      }
    }
  },
  { name: "jobs" },
);
