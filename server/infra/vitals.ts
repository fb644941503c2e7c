/** Metrics of the process's dependencies: database connections, the chain's head, the job queue, and the version. */
import fp from "fastify-plugin";
import { Gauge } from "prom-client";
import { VERSION } from "./version.ts";

interface TaskRow {
  task: string;
  due: number;
  oldest: number;
  given_up: number;
}

export default fp(
  async (app) => {
    const registers = [app.metrics];
    new Gauge({
      name: "purser_build_info",
      help: "Always 1; the label is the running version",
      labelNames: ["version"],
      registers,
    }).set({ version: VERSION }, 1);

    const pools = { money: app.pool, prisma: app.prismaPool, engine: app.enginePool };
    const size = new Gauge({
      name: "purser_database_pool_size",
      help: "Connections to Postgres that this process may open, by purpose",
      labelNames: ["pool"],
      registers,
    });
    for (const [pool, { options }] of Object.entries(pools)) size.set({ pool }, options.max);
    const connections = new Gauge({
      name: "purser_database_connections",
      help: "Connections in use, idle connections, and callers waiting for a connection",
      labelNames: ["pool", "state"],
      registers: [],
      collect() {
        for (const [pool, { totalCount, idleCount, waitingCount }] of Object.entries(pools)) {
          this.set({ pool, state: "busy" }, totalCount - idleCount);
          this.set({ pool, state: "idle" }, idleCount);
          this.set({ pool, state: "waiting" }, waitingCount);
        }
      },
    });
    app.metrics.registerMetric(connections);

    const headAge = new Gauge({
      name: "purser_head_age_seconds",
      help: "Seconds since this process first saw the newest block",
      labelNames: ["network"],
      registers: [],
    });
    app.metrics.registerMetric(
      new Gauge({
        name: "purser_head_block",
        help: "The newest block this process has seen",
        labelNames: ["network"],
        registers: [],
        collect() {
          for (const { network } of app.chains.all) {
            const { head } = app.chainReads.of(network.chainId).heads;
            if (!head) continue;
            this.set({ network: network.id }, Number(head.number));
            headAge.set({ network: network.id }, (performance.now() - head.seenAtMs) / 1_000);
          }
        },
      }),
    );
    app.metrics.registerMetric(headAge);

    const byTask = { labelNames: ["task"], registers: [] };
    const oldest = new Gauge({
      name: "purser_jobs_oldest_seconds",
      help: "Age of the oldest due job; 0 when none is due",
      ...byTask,
    });
    const givenUp = new Gauge({
      name: "purser_jobs_given_up",
      help: "Jobs that failed for good and are kept",
      ...byTask,
    });
    app.metrics.registerMetric(
      new Gauge({
        name: "purser_jobs_due",
        help: "Due jobs in the queue, by task; every replica reports the same",
        ...byTask,
        async collect() {
          // SQL: the job queue has its own schema.
          const reading = app.pool.query<TaskRow>(TASKS);
          // A scrape must not fail because the database is unreachable, or the queue does not exist yet.
          const rows = await reading.then((answer) => answer.rows).catch(() => undefined);
          if (rows === undefined) return;
          for (const gauge of [this, oldest, givenUp]) gauge.reset();
          for (const { task, ...counts } of rows) {
            this.set({ task }, counts.due);
            oldest.set({ task }, counts.oldest);
            givenUp.set({ task }, counts.given_up);
          }
        },
      }),
    );
    for (const gauge of [oldest, givenUp]) app.metrics.registerMetric(gauge);
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
