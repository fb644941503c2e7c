// What one settled spend makes Postgres do: log (WAL) by table and index, and statements with their calls, log and time.
//
// Log and calls do not depend on the load of the machine; times do. The tables are printed: `npm run bench -- "spend writes"`.
import { setTimeout as sleep } from "node:timers/promises";
import { createPool, type Pool } from "../../../server/infra/db/pool.ts";
import type { BenchContext, BenchRow } from "../context.ts";
import { databaseCpuMs } from "../cpu.ts";
import { figure } from "../rounds.ts";
import { makeAgents, spendFor } from "./spend-throughput.ts";

const AGENTS = 100;
const WARM_UP_MS = 4_000;
const DURATION_MS = 8_000;
const TOP = 24;
const WORLDS = {
  "64 in flight, not waiting for the chain": { inFlight: 64, waitMs: 0 },
  "64 in flight, each waits for its block": { inFlight: 64, waitMs: 20_000 },
  "one after the other": { inFlight: 1, waitMs: 20_000 },
};
const TARGETS = { log: 8_000, cpu: 2.2 };

interface Measured {
  world: string;
  spends: number;
  logBytes: number;
  /** Of them, whole pages: written the first time that a page changes after a checkpoint. */
  pageBytes: number;
  logBytesAfterCheckpoint: number;
  databaseCpuMs: number;
  statements: number;
}

export const row: BenchRow = {
  name: "spend writes: the database's work for each settled spend",
  // Checkpoints come only where the row asks for them, and nothing else writes.
  postgres: [
    "shared_preload_libraries=pg_stat_statements",
    "pg_stat_statements.track=all",
    "checkpoint_timeout=1d",
    "max_wal_size=32GB",
    "autovacuum=off",
    "track_functions=all",
  ],
  async run(context) {
    const measured: Measured[] = [];
    for (const world of Object.keys(WORLDS)) {
      const one = await measure(context, world as keyof typeof WORLDS);
      measured.push(one);
      context.print(JSON.stringify(one));
    }
    const of = (what: keyof Measured) => (all: Measured[]) => Number(all[0]?.[what]);
    const samples = { ours: [measured] };
    return [
      figure(samples, {
        what: "log",
        unit: "bytes",
        better: "less",
        of: of("logBytes"),
        target: {
          label: `<= ${TARGETS.log}`,
          reached: ({ ours }) => ours <= TARGETS.log,
        },
      }),
      figure(samples, {
        what: "log right after a checkpoint",
        unit: "bytes",
        better: "less",
        of: of("logBytesAfterCheckpoint"),
      }),
      figure(samples, {
        what: "statements",
        unit: "",
        better: "less",
        of: of("statements"),
      }),
      figure(samples, {
        what: "processor of Postgres",
        unit: "ms",
        better: "less",
        of: of("databaseCpuMs"),
        target: { label: `<= ${TARGETS.cpu} ms`, reached: ({ ours }) => ours <= TARGETS.cpu },
      }),
    ];
  },
};

async function measure(context: BenchContext, name: keyof typeof WORLDS): Promise<Measured> {
  const { inFlight, waitMs } = WORLDS[name];
  const world = await context.world({
    oursAlone: true,
    blockTimeSeconds: inFlight === 1 ? "auto" : 1,
    blockGasLimit: 300_000_000,
    relayers: 4,
    env: { SETTLE_WAIT_MS: String(waitMs) },
  });
  // Reading the log takes longer than a request may.
  const url = new URL(world.databaseUrl);
  url.searchParams.set("options", "-c statement_timeout=0");
  const db = createPool(url.href, { maxConnections: 1 });
  try {
    await db.query("CREATE EXTENSION IF NOT EXISTS pg_stat_statements");
    await db.query("CREATE EXTENSION IF NOT EXISTS pg_walinspect");
    const agents = await makeAgents(world, AGENTS);
    await world.chain.mint(
      agents.map(({ walletAddress }) => walletAddress),
      10n ** 12n,
    );
    const run = async (ms: number) => {
      const before = { count: await settledCount(db), log: await logPosition(db) };
      await spendFor(world, agents, ms, inFlight);
      await allSettled(db);
      const settled = (await settledCount(db)) - before.count;
      return { settled, from: before.log, to: await logPosition(db) };
    };
    await run(WARM_UP_MS);
    await db.query("CHECKPOINT");
    const fresh = await run(WARM_UP_MS);
    await db.query("SELECT pg_stat_statements_reset()");
    const cpuMs = await databaseCpuMs(db);
    const { settled, from, to } = await run(DURATION_MS);
    const cpu = ((await databaseCpuMs(db)) - cpuMs) / settled;
    const statements = await statementsOf(db, settled);
    const log = await logOf(db, from, to, settled);
    context.print(`${name}: ${settled} spends`);
    print(context, log.slice(0, TOP));
    print(context, statements.slice(0, TOP));
    return {
      world: name,
      spends: settled,
      logBytes: await bytesBetween(db, from, to, settled),
      pageBytes: Math.round(log.reduce((sum, { pages }) => sum + Number(pages), 0)),
      logBytesAfterCheckpoint: await bytesBetween(db, fresh.from, fresh.to, fresh.settled),
      databaseCpuMs: cpu,
      statements: statements
        .filter(({ top }) => top === true)
        .reduce((sum, { calls }) => sum + Number(calls), 0),
    };
  } finally {
    await db.end();
    await world.stop();
  }
}

type Row = Record<string, unknown>;

function print(context: BenchContext, rows: Row[]): void {
  for (const row of rows) context.print(Object.values(row).join("\t"));
}

/** Statements inside functions are there too, and their log is also in that of their caller. */
async function statementsOf(db: Pool, spends: number): Promise<Row[]> {
  const { rows } = await db.query<Row>(
    `SELECT round(s.wal_bytes / $1::numeric)::int AS bytes, round(s.calls / $1::numeric, 3)::float8 AS calls,
            round((s.total_exec_time / $1)::numeric, 4)::float8 AS ms, s.toplevel AS top,
            left(regexp_replace(s.query, '\\s+', ' ', 'g'), 110) AS statement
       FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid AND d.datname = current_database()
      WHERE s.query !~ 'pg_stat_statements|pg_walinspect' ORDER BY s.wal_bytes DESC, s.total_exec_time DESC`,
    [spends],
  );
  return rows;
}

/** The log by table or index and kind of record. Whole pages (\`pages\`) are part of \`bytes\`. */
async function logOf(db: Pool, from: string, to: string, spends: number): Promise<Row[]> {
  const { rows } = await db.query<Row>(
    `WITH blocks AS (
       SELECT i.start_lsn, max(i.record_length) AS record_length, sum(i.block_fpi_length) AS pages,
              (array_agg(c.relname ORDER BY i.block_id))[1] AS name, max(i.record_type) AS type
         FROM pg_get_wal_block_info($1, $2) i
         LEFT JOIN pg_class c ON pg_relation_filenode(c.oid) = i.relfilenode
        GROUP BY i.start_lsn),
     rest AS (
       SELECT r.record_length, 0::numeric AS pages, r.resource_manager AS name, r.record_type AS type
         FROM pg_get_wal_records_info($1, $2) r WHERE r.block_ref IS NULL),
     kinds AS (
       SELECT b.name, b.type, sum(b.record_length) / $3::numeric AS bytes, sum(b.pages) / $3::numeric AS pages,
              count(*) / $3::numeric AS records
         FROM (SELECT record_length, pages, name::text, type FROM blocks UNION ALL SELECT record_length, pages, name, type FROM rest) AS b
        GROUP BY b.name, b.type)
     SELECT round(sum(k.bytes))::int AS bytes, round(sum(k.pages))::int AS pages, k.name,
            string_agg(format('%s %s x %s', k.type, round(k.bytes), round(k.records, 2)), ', ' ORDER BY k.bytes DESC) AS kinds
       FROM kinds k GROUP BY k.name ORDER BY 1 DESC`,
    [from, to, spends],
  );
  return rows;
}

async function logPosition(db: Pool): Promise<string> {
  const { rows } = await db.query<{ at: string }>("SELECT pg_current_wal_insert_lsn()::text AS at");
  // Log that is not written yet cannot be inspected.
  await db.query("SELECT pg_logical_emit_message(FALSE, 'bench', '', TRUE)");
  return rows[0]?.at ?? "0/0";
}

async function bytesBetween(db: Pool, from: string, to: string, spends: number): Promise<number> {
  const { rows } = await db.query<{ bytes: number }>(
    "SELECT ($2::pg_lsn - $1::pg_lsn)::float8 AS bytes",
    [from, to],
  );
  return Math.round((rows[0]?.bytes ?? Number.NaN) / spends);
}

async function settledCount(db: Pool): Promise<number> {
  const { rows } = await db.query<{ count: number }>(
    "SELECT count(*)::int AS count FROM payments WHERE status = 'settled'",
  );
  return rows[0]?.count ?? 0;
}

async function allSettled(db: Pool): Promise<void> {
  for (;;) {
    const { rows } = await db.query<{ open: boolean }>(
      "SELECT EXISTS (SELECT 1 FROM payments WHERE outstanding) AS open",
    );
    if (rows[0]?.open === false) return;
    await sleep(250);
  }
}
