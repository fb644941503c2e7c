/**
 * The partitions of `events`: ranges of transaction numbers, which grow with time. A range that was passed, and has only
 * old rows, is dropped whole. Deleting its rows one by one would cost as much as writing them.
 *
 * A range is passed in a day at 1,500 transactions a second. In a quieter database one partition lasts for long, and
 * old rows are deleted from it (retention.ts).
 */
import type { PoolClient } from "pg";
import { inTransaction, LOCK_TIMEOUT, sqlState, type Pool, type Sql } from "./db/pool.ts";

/** Transactions in one range. */
const SPAN = 2n ** 27n;
/** Ranges that exist before they are needed: nine hours at 15,000 transactions a second. */
const AHEAD = 4n;
/** The table of the time before partitions. It holds everything until it gets a range of its own. */
const FIRST = "events_first";
/** Rows of no range. There are none, unless this job did not run for long. */
const OTHER = "events_other";
export const EVENT_HOURS = 48;
/** Payments wait behind these statements, so they give up soon; the next run tries again. */
const LOCK_MS = 300;

interface Partition {
  name: string;
  isDefault: boolean;
  isEmpty: boolean;
  /** The first number after the range. */
  upper: bigint | null;
}

async function readPartitions(sql: Sql): Promise<{ partitions: Partition[]; current: bigint }> {
  // SQL: the catalogue, and the number of the next transaction.
  const { rows } = await sql.query<{
    name: string;
    bound: string;
    isEmpty: boolean;
    current: string;
  }>(
    `SELECT c.relname AS name, pg_get_expr(c.relpartbound, c.oid) AS bound, pg_relation_size(c.oid) = 0 AS "isEmpty",
            pg_snapshot_xmax(pg_current_snapshot())::text AS current
       FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
      WHERE i.inhparent = 'events'::regclass ORDER BY c.relname`,
  );
  const partitions = rows.map(({ name, bound, isEmpty }) => {
    const upper = / TO \('?(\d+)'?\)$/.exec(bound)?.[1];
    return {
      name,
      isDefault: bound === "DEFAULT",
      isEmpty,
      upper: upper === undefined ? null : BigInt(upper),
    };
  });
  return { partitions, current: BigInt(rows[0]?.current ?? 0) };
}

/** The partitions whose old rows are deleted: of the others, all rows will go at once. */
export async function partitionsInUse(sql: Sql): Promise<string[]> {
  const { partitions, current } = await readPartitions(sql);
  return partitions
    .filter(({ upper, isEmpty }) => !isEmpty && (upper === null || upper > current))
    .map(({ name }) => name);
}

/** Rows in no range, up to a thousand. */
export async function countOutsideRanges(sql: Sql): Promise<number> {
  const { partitions } = await readPartitions(sql);
  if (!partitions.some(({ name }) => name === OTHER)) return 0;
  // SQL: a table that is not a model of Prisma.
  const { rows } = await sql.query<{ count: number }>(
    `SELECT count(*)::int AS count FROM (SELECT FROM ${OTHER} LIMIT 1000) AS found`,
  );
  return rows[0]?.count ?? 0;
}

/**
 * Makes the next ranges, and drops those with old rows only. Safe to repeat. The pool has no time limits: checking the
 * rows of a constraint takes long, and blocks nobody.
 */
export async function keepEventPartitions(
  pool: Pool,
  span = SPAN,
): Promise<{ made: string[]; dropped: string[] }> {
  const before = await readPartitions(pool);
  if (before.partitions.some(({ name, isDefault }) => name === FIRST && isDefault))
    await divide(pool, before.current, span);
  const { partitions, current } = await readPartitions(pool);
  return {
    made: await makeRanges(pool, { partitions, current, span }),
    dropped: await dropPassed(pool, { partitions, current }),
  };
}

/** DDL on the table that every payment writes to. */
const alter = (pool: Pool, work: (sql: PoolClient) => Promise<unknown>): Promise<unknown> =>
  inTransaction(pool, async (sql) => {
    // SQL: for this transaction only.
    await sql.query(`SET LOCAL lock_timeout = ${LOCK_MS}`);
    return work(sql);
  });

/** The first table gets a range that ends well ahead, so that the constraint refuses no row meanwhile. */
async function divide(pool: Pool, current: bigint, span: bigint): Promise<void> {
  // SQL: after a restore into a new cluster, rows may have higher numbers than its transactions.
  const { rows } = await pool.query<{ newest: string | null }>(
    `SELECT max(tx)::text AS newest FROM ${FIRST}`,
  );
  const newest = BigInt(rows[0]?.newest ?? 0);
  const upper = ((newest > current ? newest : current) / span + 2n) * span;
  const bound = `${FIRST}_bound`;
  await alter(pool, (sql) =>
    // SQL: Postgres needs a checked constraint, or it would read all rows under a lock.
    sql.query(
      `ALTER TABLE ${FIRST} DROP CONSTRAINT IF EXISTS ${bound};
       ALTER TABLE ${FIRST} ADD CONSTRAINT ${bound} CHECK (tx < ${upper}) NOT VALID`,
    ),
  );
  // SQL: reads all rows, and lets others write.
  await alter(pool, (sql) => sql.query(`ALTER TABLE ${FIRST} VALIDATE CONSTRAINT ${bound}`));
  await alter(pool, (sql) =>
    // SQL: no row is read. The sequence would be dropped with the table that it belongs to.
    sql.query(
      `ALTER TABLE events DETACH PARTITION ${FIRST};
       ALTER TABLE events ATTACH PARTITION ${FIRST} FOR VALUES FROM (MINVALUE) TO (${upper});
       CREATE TABLE ${OTHER} PARTITION OF events DEFAULT;
       ALTER SEQUENCE events_seq_seq OWNED BY events.seq`,
    ),
  );
}

interface State {
  partitions: readonly Partition[];
  current: bigint;
}

async function makeRanges(
  pool: Pool,
  { partitions, current, span }: State & { span: bigint },
): Promise<string[]> {
  const made: string[] = [];
  const first = partitions.find(({ name }) => name === FIRST)?.upper ?? 0n;
  for (let index = current / span; index <= current / span + AHEAD; index += 1n) {
    const name = `events_${index}`;
    const lower = index * span;
    if (lower < first || partitions.some((one) => one.name === name)) continue;
    if (
      await attempt(
        pool,
        `CREATE TABLE IF NOT EXISTS ${name} PARTITION OF events FOR VALUES FROM (${lower}) TO (${lower + span})`,
      )
    )
      made.push(name);
  }
  return made;
}

async function dropPassed(pool: Pool, { partitions, current }: State): Promise<string[]> {
  const dropped: string[] = [];
  for (const { name, upper } of partitions) {
    if (upper === null || upper > current) continue;
    // SQL: by index.
    const { rows } = await pool.query<{ isOld: boolean }>(
      `SELECT coalesce(max(created_at) < now() - make_interval(hours => $1), true) AS "isOld" FROM ${name}`,
      [EVENT_HOURS],
    );
    if (rows[0]?.isOld && (await attempt(pool, `DROP TABLE IF EXISTS ${name}`))) dropped.push(name);
  }
  return dropped;
}

/** 23514: rows of that range are in the default partition, until they are old. 42P17: another range overlaps it. */
const LATER = new Set([LOCK_TIMEOUT, "23514", "42P17"]);

/** False if it cannot be done now. */
async function attempt(pool: Pool, statement: string): Promise<boolean> {
  try {
    // SQL: a partition.
    await alter(pool, (sql) => sql.query(statement));
    return true;
  } catch (error) {
    if (LATER.has(sqlState(error) ?? "")) return false;
    throw error;
  }
}
