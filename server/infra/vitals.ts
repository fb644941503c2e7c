/** Metrics of the process's dependencies: database connections, the chain's head, the job queue, and the version. */
import fp from "fastify-plugin";
import { registerGauges } from "./telemetry.ts";
import { BUILD, VERSION } from "./version.ts";

interface TaskRow {
  task: string;
  due: number;
  oldest: number;
  given_up: number;
}

export default fp(
  async (app) => {
    const { metrics } = app;
    registerGauges(metrics, {
      labelNames: ["version", "commit", "built_at"],
      rows: () => [
        { labels: { version: VERSION, commit: BUILD.commit, built_at: BUILD.builtAt ?? "" } },
      ],
      gauges: {
        purser_build_info: ["Always 1; the labels are the running build", () => 1],
      },
    });

    const pools = Object.entries({
      money: app.pool,
      prisma: app.prismaPool,
      engine: app.enginePool,
    });
    registerGauges(metrics, {
      labelNames: ["pool"],
      rows: () => pools.map(([pool, { options }]) => ({ labels: { pool }, max: options.max })),
      gauges: {
        purser_database_pool_size: [
          "Connections to Postgres that this process may open, by purpose",
          ({ max }) => max,
        ],
      },
    });
    registerGauges(metrics, {
      labelNames: ["pool", "state"],
      rows: () =>
        pools.flatMap(([pool, { totalCount, idleCount, waitingCount }]) => [
          { labels: { pool, state: "busy" }, count: totalCount - idleCount },
          { labels: { pool, state: "idle" }, count: idleCount },
          { labels: { pool, state: "waiting" }, count: waitingCount },
        ]),
      gauges: {
        purser_database_connections: [
          "Connections in use, idle connections, and callers waiting for a connection",
          ({ count }) => count,
        ],
      },
    });

    registerGauges(metrics, {
      labelNames: ["network"],
      rows: () =>
        app.chains.all.map(({ network }) => ({
          labels: { network: network.id },
          head: app.chainReads.of(network.chainId).heads.head,
        })),
      gauges: {
        purser_head_block: [
          "The newest block this process has seen",
          ({ head }) => head && Number(head.number),
        ],
        purser_head_age_seconds: [
          "Seconds since this process first saw the newest block",
          ({ head }) => head && (performance.now() - head.seenAtMs) / 1_000,
        ],
      },
    });

    registerGauges(metrics, {
      labelNames: ["task"],
      rows: async () => {
        // SQL: the job queue has its own schema.
        const { rows } = await app.pool.query<TaskRow>(TASKS);
        return rows.map((row) => ({ labels: { task: row.task }, ...row }));
      },
      gauges: {
        purser_jobs_due: [
          "Due jobs in the queue, by task; every replica reports the same",
          ({ due }) => due,
        ],
        purser_jobs_oldest_seconds: [
          "Age of the oldest due job; 0 when none is due",
          ({ oldest }) => oldest,
        ],
        purser_jobs_given_up: [
          "Jobs that failed for good and are kept",
          ({ given_up }) => given_up,
        ],
      },
    });
  },
  { name: "vitals" },
);

/** A running job is due until it is done; one that waits for its next attempt is not. */
const TASKS = `
  SELECT task_identifier AS task,
         count(*) FILTER (WHERE run_at <= now() AND attempts < max_attempts)::int AS due,
         coalesce(greatest(extract(epoch FROM now() - min(run_at)
           FILTER (WHERE run_at <= now() AND attempts < max_attempts)), 0), 0)::float8 AS oldest,
         count(*) FILTER (WHERE attempts >= max_attempts AND locked_at IS NULL)::int AS given_up
    FROM graphile_worker.jobs GROUP BY task_identifier`;
