// The throughput of further replicas on one Postgres, and the cost of each payment: CPU time and waiting for
// locks.
import { setTimeout as sleep } from "node:timers/promises";
import { createPool, type Pool } from "../../../server/infra/db/pool.ts";
import type { BenchContext, BenchRow } from "../context.ts";
import { cpuMsOf, databaseCpuMs } from "../cpu.ts";
import { alone, figure } from "../rounds.ts";
import { makeAgents, spendFor } from "./spend-throughput.ts";

const REPLICAS = [1, 2, 3, 4];
const AGENTS = 100;
const WARM_UP_MS = 2_000;
const DURATION_MS = 10_000;
const SAMPLE_MS = 50;

interface Measured {
  replicas: number;
  acceptedPerSecond: number;
  settledPerSecond: number;
  serverCpuMs: number;
  databaseCpuMs: number;
  /** The bytes that each additional payment adds to the database and to the WAL. */
  storedBytes: number;
  logBytes: number;
  /** The average number of connections that wait for a lock, over all samples. */
  waitingForRows: number;
  waitingInside: number;
}

export const row: BenchRow = {
  name: "spends by 1 to 4 replicas on one Postgres, 100 agents, 64 in flight",
  async run(context) {
    const measured = await alone(async () => {
      const each: Measured[] = [];
      for (const replicas of REPLICAS) {
        const one = await measure(context, replicas);
        each.push(one);
        context.print(JSON.stringify(one));
      }
      return each;
    });
    const cost = ({ serverCpuMs, databaseCpuMs: database }: Measured) => serverCpuMs + database;
    const of = (replicas: number, what: (one: Measured) => number) => (all: Measured[]) =>
      what(all.find((one) => one.replicas === replicas) as Measured);
    return [
      ...REPLICAS.flatMap((replicas) => [
        figure(measured, {
          what: `rate of ${replicas}`,
          unit: "/s",
          better: "more",
          of: of(replicas, ({ acceptedPerSecond }) => acceptedPerSecond),
        }),
        figure(measured, {
          what: `processor each of ${replicas}`,
          unit: "ms",
          better: "less",
          of: of(replicas, cost),
        }),
      ]),
      figure(measured, {
        what: "processor each, 4 over 1",
        unit: "x",
        better: "less",
        of: (all) => of(4, cost)(all) / of(1, cost)(all),
        target: { label: "<= 1.25", reached: ({ ours }) => ours <= 1.25 },
      }),
    ];
  },
};

async function measure(context: BenchContext, replicas: number): Promise<Measured> {
  const world = await context.world({
    oursAlone: true,
    blockTimeSeconds: 1,
    blockGasLimit: 300_000_000,
    relayers: 4,
    replicas,
    env: { SETTLE_WAIT_MS: "0" },
  });
  const db = createPool(world.databaseUrl, { maxConnections: 2 });
  try {
    const agents = await makeAgents(world, AGENTS);
    await world.chain.mint(
      agents.map(({ walletAddress }) => walletAddress),
      10n ** 12n,
    );
    await spendFor(world, agents, WARM_UP_MS);
    await allSettled(db);
    const before = await settledCount(db);
    const stored = await bytes(db);
    const cpu = { server: cpuMsOf(world.pids), database: await databaseCpuMs(db) };
    const startMs = performance.now();
    const watch = watchLocks(db);
    const { perSecond } = await spendFor(world, agents, DURATION_MS);
    await allSettled(db);
    const elapsedMs = performance.now() - startMs;
    const waits = await watch.end();
    const settled = (await settledCount(db)) - before;
    const after = await bytes(db);
    return {
      replicas,
      acceptedPerSecond: perSecond,
      settledPerSecond: (settled / elapsedMs) * 1000,
      serverCpuMs: (cpuMsOf(world.pids) - cpu.server) / settled,
      databaseCpuMs: ((await databaseCpuMs(db)) - cpu.database) / settled,
      storedBytes: Math.round((after.stored - stored.stored) / settled),
      logBytes: Math.round((after.log - stored.log) / settled),
      ...waits,
    };
  } finally {
    await db.end();
    await world.stop();
  }
}

async function settledCount(db: Pool): Promise<number> {
  const { rows } = await db.query<{ count: number }>(
    "SELECT count(*)::int AS count FROM payments WHERE status = 'settled'",
  );
  return rows[0]?.count ?? 0;
}

async function bytes(db: Pool): Promise<{ stored: number; log: number }> {
  const { rows } = await db.query<{ stored: number; log: number }>(
    `SELECT pg_database_size(current_database())::float8 AS stored,
            (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::float8 AS log`,
  );
  return rows[0] ?? { stored: Number.NaN, log: Number.NaN };
}

async function allSettled(db: Pool): Promise<void> {
  for (;;) {
    const { rows } = await db.query<{ open: boolean }>(
      "SELECT EXISTS (SELECT 1 FROM payments WHERE outstanding) AS open",
    );
    if (rows[0]?.open === false) return;
    await sleep(100);
  }
}

function watchLocks(db: Pool) {
  const seen = { looks: 0, rows: 0, inside: 0, isOver: false };
  const looking = (async () => {
    while (!seen.isOver) {
      const { rows } = await db.query<{ rows: number; inside: number }>(
        `SELECT count(*) FILTER (WHERE wait_event_type = 'Lock')::int AS rows,
                count(*) FILTER (WHERE wait_event_type = 'LWLock')::int AS inside
           FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`,
      );
      seen.looks += 1;
      seen.rows += rows[0]?.rows ?? 0;
      seen.inside += rows[0]?.inside ?? 0;
      await sleep(SAMPLE_MS);
    }
  })();
  return {
    async end() {
      seen.isOver = true;
      await looking;
      return {
        waitingForRows: seen.rows / seen.looks,
        waitingInside: seen.inside / seen.looks,
      };
    },
  };
}
