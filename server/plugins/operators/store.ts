/** What the operators' page reads, for all owners and networks at once. */
import type { Address } from "viem";
import { sqlState, type Sql } from "../../infra/db/pool.ts";
import { databaseNow, hoursBefore, secondsAfter, type Db } from "../../infra/db/prisma.ts";
import { isLane } from "../reconciliation/store.ts";

export interface LaneRow {
  chainId: bigint;
  address: string;
  nextNonce: bigint;
  /** `host:pid:random` of the process that has the lease now. */
  holder: string | null;
  pending: number;
  oldestNonce: bigint | null;
  oldestSeconds: number | null;
  attempts: number;
  /** Of the newest attempt. */
  answer: string | null;
}

export async function readLaneRows(sql: Sql): Promise<LaneRow[]> {
  // SQL: each lane with its oldest pending transaction, by the partial index of transactions that are not final.
  const { rows } = await sql.query<LaneRow>(
    `SELECT l.chain_id AS "chainId", l.address, l.next_nonce AS "nextNonce",
            CASE WHEN l.lease_until > clock_timestamp() THEN l.lease_owner END AS holder,
            (SELECT count(*)::int FROM relayer_transactions p
              WHERE p.chain_id = l.chain_id AND p.lane_address = l.address AND p.status = 'pending') AS pending,
            t.nonce AS "oldestNonce",
            greatest(extract(epoch FROM clock_timestamp() - t.created_at), 0)::float8 AS "oldestSeconds",
            coalesce(a.attempt, 0) AS attempts, a.answer
       FROM relayer_lanes l
       LEFT JOIN LATERAL (
         SELECT nonce, created_at FROM relayer_transactions p
          WHERE p.chain_id = l.chain_id AND p.lane_address = l.address AND p.status = 'pending'
          ORDER BY nonce LIMIT 1) t ON true
       LEFT JOIN LATERAL (
         SELECT attempt, answer FROM relayer_attempts r
          WHERE r.chain_id = l.chain_id AND r.lane_address = l.address AND r.nonce = t.nonce
          ORDER BY attempt DESC LIMIT 1) a ON true
      ORDER BY l.chain_id, l.address`,
  );
  return rows.filter(isLane);
}

export interface ReadingRow {
  chainId: number;
  asOfBlock: bigint | null;
  asOf: Date | null;
  readAt: Date;
  heldUntilBlock: bigint | null;
}

export async function readReadings(db: Db): Promise<ReadingRow[]> {
  const rows = await db.ledgerCursor.findMany();
  return rows.map(({ chainId, nextBlock, lastHash, lastAt, updatedAt, holdUntilBlock }) => ({
    chainId: Number(chainId),
    asOfBlock: lastHash === null ? null : nextBlock - 1n,
    asOf: lastHash === null ? null : lastAt,
    readAt: updatedAt,
    heldUntilBlock: holdUntilBlock,
  }));
}

const OPEN = 200;
const CLOSED = 50;

export async function readDifferences(db: Db) {
  const orderBy = { seenAt: "desc" } as const;
  const [open, closed] = await Promise.all([
    db.ledgerDifference.findMany({ where: { healedAt: null }, orderBy, take: OPEN + 1 }),
    db.ledgerDifference.findMany({
      where: { healedAt: { not: null } },
      orderBy: { healedAt: "desc" },
      take: CLOSED,
    }),
  ]);
  return { complete: open.length <= OPEN, rows: [...open.slice(0, OPEN), ...closed] };
}

export async function readRequests(
  db: Db,
): Promise<{ operation: string; outcome: string; count: number }[]> {
  const rows = await db.facilitatorHour.groupBy({
    by: ["operation", "outcome"],
    where: { hour: { gt: hoursBefore(await databaseNow(db), 24) } },
    _sum: { count: true },
    orderBy: [{ operation: "asc" }, { outcome: "asc" }],
  });
  return rows.map(({ operation, outcome, _sum }) => ({
    operation,
    outcome,
    count: Number(_sum.count ?? 0n),
  }));
}

interface AccountRow {
  chainId: bigint | null;
  account: string;
  left: number;
  used: bigint | null;
}

/** Of the accounts that were used since yesterday, by their index: a table of every payer may be large. */
export async function readLowAccounts(sql: Sql): Promise<AccountRow[]> {
  // SQL: what is left of a budget, by the database's clock.
  const { rows } = await sql.query<AccountRow>(
    `SELECT chain_id AS "chainId", account, used,
            greatest(100 - ceil(100 * extract(epoch FROM full_at - clock_timestamp()) / 86400), 0)::int AS left
       FROM gas_accounts
      WHERE used_on >= (clock_timestamp() AT TIME ZONE 'UTC')::date - 1 AND account NOT LIKE 'cancels:%'
        AND full_at > clock_timestamp() + interval '24 hours' * 0.8
      UNION ALL
     SELECT NULL, 'answers:' || o.address, NULL,
            greatest(100 - ceil(100 * extract(epoch FROM q.full_at - clock_timestamp()) / 86400), 0)::int
       FROM owner_quotas q JOIN owners o ON o.id = q.owner_id
      WHERE q.full_at > clock_timestamp() + interval '24 hours' * 0.8
      ORDER BY 4, 2 LIMIT 100`,
  );
  return rows;
}

interface MerchantRow {
  chainId: bigint;
  address: Address;
  settled: number;
  failed: number;
  open: number;
  volume: bigint;
  fees: bigint;
}

/** Most third parties' settlements that are counted. */
const COUNTED = 50_000;

export async function readMerchants(
  sql: Sql,
): Promise<{ since: Date; complete: boolean; rows: MerchantRow[] }> {
  // SQL: sums of the newest rows of the index of third parties' settlements.
  const { rows } = await sql.query<MerchantRow & { since: Date; counted: number }>(
    `WITH recent AS MATERIALIZED (
       SELECT chain_id, to_address, status, value, by_other, (fee->>'amount')::numeric AS fee
         FROM settlements
        WHERE kind = 'facilitated' AND created_at > clock_timestamp() - interval '24 hours'
        ORDER BY created_at DESC LIMIT $1)
     SELECT clock_timestamp() - interval '24 hours' AS since, n.counted, m.*
       FROM (SELECT count(*)::int AS counted FROM recent) n
       LEFT JOIN LATERAL (
         SELECT chain_id AS "chainId", to_address AS address,
                count(*) FILTER (WHERE status = 'settled')::int AS settled,
                count(*) FILTER (WHERE status IN ('failed', 'expired'))::int AS failed,
                count(*) FILTER (WHERE status IN ('queued', 'submitted'))::int AS open,
                coalesce(sum(value) FILTER (WHERE status = 'settled'), 0) AS volume,
                coalesce(sum(fee) FILTER (WHERE status = 'settled' AND NOT by_other), 0) AS fees
           FROM recent GROUP BY 1, 2 ORDER BY count(*) DESC, 2 LIMIT 100) m ON true`,
    [COUNTED],
  );
  return {
    since: rows[0]?.since ?? new Date(0),
    complete: (rows[0]?.counted ?? 0) < COUNTED,
    rows: rows.filter(({ address }) => (address as string | null) !== null),
  };
}

export interface Failing {
  webhooks: number;
  mail: number;
  devices: number;
  jobs: number;
}

export async function countFailing(sql: Sql): Promise<Failing> {
  // SQL: counts in three tables.
  const { rows } = await sql.query<Omit<Failing, "jobs">>(
    `SELECT (SELECT count(*)::int FROM webhooks WHERE status = 'disabled' OR status = 'active' AND failures > 0) AS webhooks,
            (SELECT count(*)::int FROM mails WHERE status = 'waiting' AND last_error IS NOT NULL) AS mail,
            (SELECT count(*)::int FROM push_devices WHERE failures > 0) AS devices`,
  );
  const [counts] = rows;
  if (!counts) throw new Error("a count without a row");
  return { ...counts, jobs: await countGivenUpJobs(sql) };
}

const NO_TABLE = "42P01";

async function countGivenUpJobs(sql: Sql): Promise<number> {
  try {
    // SQL: the job queue has its own schema.
    const { rows } = await sql.query<{ count: number }>(
      "SELECT count(*)::int AS count FROM graphile_worker.jobs WHERE attempts >= max_attempts AND locked_at IS NULL",
    );
    return rows[0]?.count ?? 0;
  } catch (error) {
    // A first start makes the queue a moment after it listens.
    if (sqlState(error) === NO_TABLE) return 0;
    throw error;
  }
}

interface DeliveryRow {
  id: string;
  way: "webhook" | "mail" | "device";
  owner: string;
  failures: number;
  disabled: boolean;
  since: Date | null;
  url: string | null;
  error: string | null;
}

const OF_EACH_WAY = 100;

export async function readFailingDeliveries(db: Db): Promise<DeliveryRow[]> {
  const order = { orderBy: { createdAt: "desc" }, take: OF_EACH_WAY } as const;
  const owner = { select: { address: true } };
  const [webhooks, mails, devices] = await Promise.all([
    db.webhook.findMany({
      where: { OR: [{ status: "active", failures: { gt: 0 } }, { status: "disabled" }] },
      include: {
        owner,
        deliveries: {
          where: { status: { in: ["failed", "given_up"] } },
          orderBy: { createdAt: "desc" },
          take: 1,
          select: { lastError: true },
        },
      },
      ...order,
    }),
    db.mail.findMany({
      where: { status: "waiting", lastError: { not: null } },
      include: { owner },
      ...order,
    }),
    db.pushDevice.findMany({ where: { failures: { gt: 0 } }, include: { owner }, ...order }),
  ]);
  return [
    ...webhooks.map((row) => ({
      id: row.id,
      way: "webhook" as const,
      owner: row.owner.address,
      failures: row.failures,
      disabled: row.status === "disabled",
      since: row.failingSince,
      url: row.url,
      error: row.disabledReason ?? row.deliveries[0]?.lastError ?? null,
    })),
    ...mails.map((row) => ({
      id: row.id,
      way: "mail" as const,
      owner: row.owner.address,
      failures: row.attempts,
      disabled: false,
      since: row.createdAt,
      url: null,
      error: row.lastError,
    })),
    ...devices.map((row) => ({
      id: row.id,
      way: "device" as const,
      owner: row.owner.address,
      failures: row.failures,
      disabled: false,
      since: row.failingSince,
      url: null,
      error: row.lastError,
    })),
  ];
}

const GONE_SECONDS = 120;

export async function readProcesses(db: Db) {
  const now = await databaseNow(db);
  const rows = await db.process.findMany({ orderBy: [{ startedAt: "asc" }, { id: "asc" }] });
  return rows.map((row) => ({ ...row, gone: row.seenAt < secondsAfter(now, -GONE_SECONDS) }));
}
