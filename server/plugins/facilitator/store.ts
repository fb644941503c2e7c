/** The facilitator's database access: settlements of a settle, which successes were returned, and statistics. */
import { setTimeout as sleep } from "node:timers/promises";
import type { SettlementKey } from "../../core/authorization.ts";
import { Coalescer } from "../../core/shared-answers.ts";
import type { Sql } from "../../infra/db/pool.ts";
import { acceptInGroups } from "../settlement/accept.ts";
import { findSettlement } from "../settlement/store.ts";
import type {
  Accepted,
  Settlement,
  SettlementRequest,
  SettlementRow,
} from "../settlement/types.ts";
import {
  atomicOf,
  atomicOrNull,
  databaseNow,
  hoursBefore,
  Prisma,
  type Db,
  type PrismaClient,
} from "../../infra/db/prisma.ts";
import { IS_PAYMENT } from "../../infra/db/payments-only.ts";

/**
 * What a settle reads and writes. Each operation is one statement on the settlement's row, so replicas agree;
 * concurrent callers share it.
 */
export interface SettleStore {
  /** The settlement of this authorization, by any requester. */
  find(key: SettlementKey): Promise<SettlementRow | undefined>;
  /** Decides which request is the first of this authorization. */
  accept(request: SettlementRequest): Promise<Accepted>;
  /** Marks success as returned; true if it was not returned before. */
  claimSuccess(row: SettlementRow): Promise<boolean>;
  /** True as soon as another request has returned the success; false if none has by then. */
  waitUntilReturned(row: SettlementRow, untilMs: number): Promise<boolean>;
}

const SHARED = { maxBatch: 100, maxInFlight: 2 };
/** Lookups run one statement at a time: concurrent statements would only make each group smaller. */
const ONE_AT_A_TIME = { maxBatch: 100, maxInFlight: 1 };

const parts = ({ from, chainId, asset, nonce }: SettlementKey) =>
  [from.toLowerCase(), String(chainId), asset.toLowerCase(), nonce.toLowerCase()] as const;
const columns = (keys: readonly SettlementKey[]): string[][] =>
  [0, 1, 2, 3].map((column) => keys.map((key) => parts(key)[column] ?? ""));

const LOOK_EVERY_MS = 50;

export function settleStore(
  sql: Sql,
  settlement: Pick<Settlement, "acceptAll" | "findByAuthorization">,
  pause: (ms: number) => Promise<unknown> = sleep,
): SettleStore {
  const known = new Coalescer<SettlementKey, string | undefined>(async (keys) => {
    // SQL: every settle runs it. One statement for all concurrent callers, which reads as little as possible
    // because almost no payment is known.
    const { rows } = await sql.query<{ id: string; place: bigint }>({
      name: "settlements-by-keys",
      text: `SELECT id, place FROM settlements
               JOIN unnest($1::text[], $2::bigint[], $3::text[], $4::text[])
                    WITH ORDINALITY AS wanted (from_address, chain_id, asset, nonce, place)
              USING (from_address, chain_id, asset, nonce)`,
      values: columns(keys),
    });
    const ids = new Map(rows.map(({ id, place }) => [Number(place), id]));
    return keys.map((_, index) => ids.get(index + 1));
  }, ONE_AT_A_TIME);

  const claims = new Coalescer<string, boolean>(async (ids) => {
    // SQL: claims for all concurrent callers. The index scan locks ids in index order, so two statements that
    // claim the same rows do not deadlock.
    // If an id occurs twice in one statement, only its first caller gets success.
    const { rows } = await sql.query<{ id: string }>({
      name: "settlement-success",
      text: `UPDATE settlements SET success_told_at = clock_timestamp()
              WHERE id = ANY($1) AND success_told_at IS NULL RETURNING id`,
      values: [ids],
    });
    const fresh = new Set(rows.map(({ id }) => id));
    return ids.map((id) => fresh.delete(id));
  }, SHARED);

  async function isReturned(id: string): Promise<boolean> {
    // SQL: as the claim.
    const { rows } = await sql.query<{ returned: boolean }>(
      "SELECT success_told_at IS NOT NULL AS returned FROM settlements WHERE id = $1",
      [id],
    );
    return rows[0]?.returned ?? false;
  }

  return {
    async find(key) {
      const id = await known.fetch(key);
      return id === undefined ? undefined : findSettlement(sql, id);
    },
    accept: acceptInGroups({
      // One statement is its own transaction. Requests that it does not insert are accepted after it, one by one.
      acceptAll: (requests) => settlement.acceptAll(sql, requests),
      find: (key) => settlement.findByAuthorization(key),
    }),
    claimSuccess: ({ id }) => claims.fetch(id),
    async waitUntilReturned({ id }, untilMs) {
      while (Date.now() < untilMs) {
        if (await isReturned(id)) return true;
        await pause(LOOK_EVERY_MS);
      }
      return false;
    },
  };
}

/** Payments requested from this facilitator. The first condition matches settlements_facilitated_idx. */
const FACILITATED = Prisma.raw(
  `(kind = 'facilitated' OR (kind = 'x402' AND relay)) AND ${IS_PAYMENT}`,
);
const HOUR_MS = 3_600_000;

export interface DayTotals {
  settled: number;
  failed: number;
  volume: bigint;
  medianMs: number | null;
  p95Ms: number | null;
}
export interface HourRow {
  at: Date;
  settled: number;
  failed: number;
  volume: bigint;
}
export interface RecentRow {
  id: string;
  status: string;
  kind: string;
  chainId: bigint;
  fromAddress: string;
  toAddress: string;
  value: bigint;
  txHash: string | null;
  createdAt: Date;
  settledAt: Date | null;
}
/** Verify and settle requests with the same result. */
export interface Tallied {
  operation: "verify" | "settle";
  outcome: "ok" | "refused" | "pending" | "error";
  count: number;
}
/** As Prisma reads it: sums of NUMERIC are decimals. */
type Raw<Row> = Omit<Row, "volume"> & { volume: Prisma.Decimal };

/** Adds all counts or none, sorted, so that two replicas do not deadlock. */
export async function addFacilitatorCounts(
  prisma: PrismaClient,
  counts: readonly Tallied[],
): Promise<void> {
  const now = await databaseNow(prisma);
  const hour = new Date(Math.floor(now.getTime() / HOUR_MS) * HOUR_MS);
  const nameOf = ({ operation, outcome }: Tallied) => `${operation} ${outcome}`;
  const sorted = counts.toSorted((left, right) => nameOf(left).localeCompare(nameOf(right)));
  await prisma.$transaction(
    sorted.map(({ operation, outcome, count }) =>
      prisma.facilitatorHour.upsert({
        where: { hour_operation_outcome: { hour, operation, outcome } },
        create: { hour, operation, outcome, count: BigInt(count) },
        update: { count: { increment: BigInt(count) } },
      }),
    ),
  );
}

export async function countVerified(db: Db): Promise<number> {
  const { _sum } = await db.facilitatorHour.aggregate({
    where: { operation: "verify", hour: { gt: hoursBefore(await databaseNow(db), 24) } },
    _sum: { count: true },
  });
  return Number(_sum.count ?? 0n);
}

export async function readDayTotals(db: Db): Promise<DayTotals> {
  // SQL: percentiles and filtered sums, which Prisma does not support.
  const rows = await db.$queryRaw<Raw<DayTotals>[]>`
    SELECT count(*) FILTER (WHERE status = 'settled')::int AS settled,
           count(*) FILTER (WHERE status IN ('failed', 'expired'))::int AS failed,
           coalesce(sum(value) FILTER (WHERE status = 'settled'), 0) AS volume,
           percentile_disc(0.5) WITHIN GROUP (ORDER BY extract(epoch FROM settled_at - created_at) * 1000)
             FILTER (WHERE settled_at IS NOT NULL)::float8 AS "medianMs",
           percentile_disc(0.95) WITHIN GROUP (ORDER BY extract(epoch FROM settled_at - created_at) * 1000)
             FILTER (WHERE settled_at IS NOT NULL)::float8 AS "p95Ms"
      FROM settlements
     WHERE ${FACILITATED} AND created_at > now() - interval '24 hours'`;
  const [row] = rows;
  if (!row) return { settled: 0, failed: 0, volume: 0n, medianMs: null, p95Ms: null };
  return { ...row, volume: atomicOf(row.volume) };
}

export async function readAllTime(db: Db): Promise<{ settled: number; volume: bigint }> {
  // SQL: the condition of all statistics.
  const [kept] = await db.$queryRaw<Raw<{ settled: number; volume: bigint }>[]>`
    SELECT count(*)::int AS settled, coalesce(sum(value), 0) AS volume
      FROM settlements WHERE status = 'settled' AND ${FACILITATED}`;
  const past = await db.facilitatorPast.aggregate({ _sum: { settled: true, volume: true } });
  return {
    settled: (kept?.settled ?? 0) + Number(past._sum.settled ?? 0n),
    volume: (kept ? atomicOf(kept.volume) : 0n) + (atomicOrNull(past._sum.volume) ?? 0n),
  };
}

/** 24 hours, oldest first; hours without settlements are zero. */
export async function readHours(db: Db): Promise<HourRow[]> {
  // SQL: sums per hour with gaps filled; Prisma only groups by columns.
  const rows = await db.$queryRaw<Raw<HourRow>[]>`
    WITH hours AS (
      SELECT generate_series(date_trunc('hour', now()) - interval '23 hours', date_trunc('hour', now()),
                             interval '1 hour') AS at)
    SELECT hours.at,
           count(*) FILTER (WHERE status = 'settled')::int AS settled,
           count(*) FILTER (WHERE status IN ('failed', 'expired'))::int AS failed,
           coalesce(sum(value) FILTER (WHERE status = 'settled'), 0) AS volume
      FROM hours
      LEFT JOIN settlements ON ${FACILITATED}
       AND created_at >= hours.at AND created_at < hours.at + interval '1 hour'
     GROUP BY hours.at ORDER BY hours.at`;
  return rows.map((row) => ({ ...row, volume: atomicOf(row.volume) }));
}

export async function readBatchSizes(db: Db): Promise<{ size: number; count: number }[]> {
  // SQL: how often each batch size occurs, a nested grouping.
  return db.$queryRaw<{ size: number; count: number }[]>`
    SELECT size::int, count(*)::int AS count FROM (
      SELECT count(*) AS size FROM relayer_transactions sent
        JOIN settlement_transactions item ON item.chain_id = sent.chain_id
         AND item.lane_address = sent.lane_address AND item.lane_nonce = sent.nonce
       WHERE sent.created_at > now() - interval '24 hours'
       GROUP BY sent.chain_id, sent.lane_address, sent.nonce) batches
     GROUP BY size ORDER BY size`;
}

export async function readRecent(db: Db, limit: number): Promise<RecentRow[]> {
  // SQL: as above.
  const rows = await db.$queryRaw<(Omit<RecentRow, "value"> & { value: Prisma.Decimal })[]>`
    SELECT id, status, kind, chain_id AS "chainId", from_address AS "fromAddress", to_address AS "toAddress", value,
           tx_hash AS "txHash", created_at AS "createdAt", settled_at AS "settledAt"
      FROM settlements WHERE ${FACILITATED} ORDER BY created_at DESC LIMIT ${limit}`;
  return rows.map((row) => ({ ...row, value: atomicOf(row.value) }));
}
