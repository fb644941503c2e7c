/** Stored settlements of a merchant: lists, sums per day, and reasons of failures. */
import type { Address, Hex } from "viem";
import type { Nonce, SchemeTerms } from "../../core/authorization.ts";
import type { PageRequest, Place } from "../../core/paging.ts";
import {
  atomicOf,
  databaseNow,
  hoursBefore,
  placeOf,
  readKeyset,
  type Db,
  type Prisma,
} from "../../infra/db/prisma.ts";
import type { SettlementStatus } from "../settlement/types.ts";

/** The payee: the wallet that is signed in. A contract account counts only on its own chain. */
export interface Payee {
  address: Address;
  /** 0: a plain key (EOA), which is the same on every chain. */
  chainId: number;
}

export interface SettlementFilter {
  statuses?: readonly string[];
  chainId?: number;
  /** Inclusive and exclusive. */
  from?: Date;
  to?: Date;
  payer?: string;
  minimumAtomic?: bigint;
  /** A transaction hash in lower case, or the id of a settlement. */
  payment?: string;
  page: PageRequest;
}

/** What the payer's wallet reported about the answer, if it is a wallet of this service. */
export type Delivery = "delivered" | "not_delivered" | "not_reported";

/** A settlement that this facilitator was requested to make. */
export interface PaidRow extends Place {
  status: SettlementStatus;
  chainId: number;
  asset: Address;
  from: Address;
  to: Address;
  nonce: Nonce;
  amountAtomic: bigint;
  terms: SchemeTerms | null;
  resourceUrl: string | null;
  resourceMethod: string | null;
  resourceDescription: string | null;
  delivery: Delivery;
  txHash: Hex | null;
  blockNumber: bigint | null;
  blockHash: string | null;
  isFinal: boolean;
  errorReason: string | null;
  errorMessage: string | null;
  createdAt: Date;
  settledAt: Date | null;
  /** The amount that refunds have taken, or may still take. */
  refundedAtomic: bigint;
  refundCount: number;
}

/** The start of every query; matches the index `settlements_payee_idx`. */
const paidTo = ({ address, chainId }: Payee): Prisma.SettlementWhereInput => ({
  toAddress: address,
  ...(chainId === 0 ? {} : { chainId: BigInt(chainId) }),
  OR: [{ kind: "facilitated" }, { kind: "x402", relay: true }],
});

const TX_HASH = /^0x[0-9a-f]{64}$/;
/** More than any transaction carries. */
const MOST_OF_TRANSACTION = 200;

/** The payments to this wallet in a transaction: in any that we sent, or in another program's that settled it. */
async function idsIn(db: Db, payee: Payee, txHash: string): Promise<string[]> {
  // SQL: by the hashes that we sent, which are not those of the rows if a transaction was sent again.
  const rows = await db.$queryRaw<{ id: string }[]>`
    SELECT s.id FROM (
      SELECT i.from_address, i.chain_id, i.asset, i.nonce
        FROM relayer_attempts a
        JOIN settlement_transactions i
          ON i.chain_id = a.chain_id AND i.lane_address = a.lane_address AND i.lane_nonce = a.nonce
       WHERE a.hash = ${txHash}
       UNION
      SELECT o.from_address, o.chain_id, o.asset, o.nonce FROM settlements o
       WHERE o.tx_hash = ${txHash} AND o.by_other) AS found
      JOIN settlements s USING (from_address, chain_id, asset, nonce)
     WHERE s.to_address = ${payee.address} LIMIT ${MOST_OF_TRANSACTION}`;
  return rows.map(({ id }) => id);
}

/** Newest first; one row more than the page, to know whether there is another. */
export async function listPaid(
  db: Db,
  payee: Payee,
  filter: SettlementFilter,
  read: typeof readKeyset = readKeyset,
): Promise<PaidRow[]> {
  const { statuses, chainId, from, to, payer, minimumAtomic, payment } = filter;
  const ids =
    payment === undefined || !TX_HASH.test(payment) ? payment : await idsIn(db, payee, payment);
  const within: Prisma.SettlementWhereInput = {
    ...(ids === undefined ? {} : { id: typeof ids === "string" ? ids : { in: ids } }),
    ...(statuses === undefined ? {} : { status: { in: [...statuses] } }),
    ...(payer === undefined ? {} : { fromAddress: payer }),
    ...(minimumAtomic === undefined ? {} : { value: { gte: minimumAtomic.toString() } }),
    createdAt: { ...(from && { gte: from }), ...(to && { lt: to }) },
  };
  const onChain = chainId === undefined ? {} : { chainId: BigInt(chainId) };
  const stored = await read(filter.page, (where, order) =>
    db.settlement.findMany({
      where: { AND: [paidTo(payee), within, onChain, where] },
      select: COLUMNS,
      ...order,
    }),
  );
  return withRefunds(db, stored);
}

/** The settlement of a receipt. */
export async function findReceipted(db: Db, receiptId: string): Promise<PaidRow | undefined> {
  const receipt = await db.merchantReceipt.findUnique({ where: { id: receiptId } });
  if (!receipt) return undefined;
  const stored = await db.settlement.findFirst({
    where: { id: receipt.settlementId },
    select: COLUMNS,
  });
  return stored === null ? undefined : (await withRefunds(db, [stored]))[0];
}

export async function findPaid(db: Db, payee: Payee, id: string): Promise<PaidRow | undefined> {
  const stored = await db.settlement.findFirst({
    where: { AND: [{ id }, paidTo(payee)] },
    select: COLUMNS,
  });
  return stored === null ? undefined : (await withRefunds(db, [stored]))[0];
}

const COLUMNS = {
  id: true,
  agentId: true,
  status: true,
  chainId: true,
  asset: true,
  fromAddress: true,
  toAddress: true,
  nonce: true,
  value: true,
  terms: true,
  resourceUrl: true,
  resourceMethod: true,
  resourceDescription: true,
  txHash: true,
  blockNumber: true,
  blockHash: true,
  finalAt: true,
  errorReason: true,
  errorMessage: true,
  createdAt: true,
  settledAt: true,
} as const satisfies Prisma.SettlementSelect;
type Stored = Prisma.SettlementGetPayload<{ select: typeof COLUMNS }>;

async function withRefunds(db: Db, stored: readonly Stored[]): Promise<PaidRow[]> {
  if (stored.length === 0) return [];
  const [refunds, deliveries] = await Promise.all([
    readRefundsOf(
      db,
      stored.map(({ id }) => id),
    ),
    readDeliveries(db, stored),
  ]);
  const ofSettlement = new Map<string, RefundRow[]>();
  for (const refund of refunds)
    ofSettlement.set(refund.settlementId, [
      ...(ofSettlement.get(refund.settlementId) ?? []),
      refund,
    ]);
  return stored.map((row) => ({
    ...placeOf(row),
    status: row.status as SettlementStatus,
    chainId: Number(row.chainId),
    asset: row.asset as Address,
    from: row.fromAddress as Address,
    to: row.toAddress as Address,
    nonce: row.nonce as Nonce,
    amountAtomic: atomicOf(row.value),
    terms: row.terms as SchemeTerms | null,
    resourceUrl: row.resourceUrl,
    resourceMethod: row.resourceMethod,
    resourceDescription: row.resourceDescription,
    delivery: deliveries.get(row.id) ?? "not_reported",
    txHash: row.txHash as Hex | null,
    blockNumber: row.blockNumber,
    blockHash: row.blockHash,
    isFinal: row.status === "settled" && row.finalAt !== null,
    errorReason: row.errorReason,
    errorMessage: row.errorMessage,
    createdAt: row.createdAt,
    settledAt: row.settledAt,
    refundedAtomic: takenBy(ofSettlement.get(row.id) ?? []),
    refundCount: ofSettlement.get(row.id)?.length ?? 0,
  }));
}

/** Of those that an agent of this service paid. */
async function readDeliveries(
  db: Db,
  stored: readonly Pick<Stored, "id" | "agentId">[],
): Promise<Map<string, Delivery>> {
  const paid = stored.flatMap(({ id, agentId }) => (agentId === null ? [] : [{ id, agentId }]));
  if (paid.length === 0) return new Map();
  const rows = await db.payment.findMany({
    where: {
      agentId: { in: [...new Set(paid.map(({ agentId }) => agentId))] },
      id: { in: paid.map(({ id }) => id) },
      delivered: { not: null },
    },
    select: { id: true, delivered: true },
  });
  return new Map(
    rows.map(({ id, delivered }) => [id, delivered === true ? "delivered" : "not_delivered"]),
  );
}

export interface RefundRow {
  id: string;
  settlementId: string;
  number: number;
  chainId: number;
  payer: Address;
  nonce: string;
  valueAtomic: bigint;
  status: SettlementStatus;
  txHash: Hex | null;
  isFinal: boolean;
  errorReason: string | null;
  createdAt: Date;
  settledAt: Date | null;
}

/**
 * Whether a refund still holds its part of the settlement: until its authorization has provably ended without a
 * transfer, at a final block. An end that may still be reverted, and any unknown outcome, keeps it.
 */
export const isTaken = ({ status, isFinal }: Pick<RefundRow, "status" | "isFinal">): boolean =>
  !(isFinal && (status === "failed" || status === "expired"));

export const takenBy = (refunds: readonly RefundRow[]): bigint =>
  refunds.filter(isTaken).reduce((sum, { valueAtomic }) => sum + valueAtomic, 0n);

/** Oldest first. */
export async function readRefundsOf(
  db: Db,
  settlementIds: readonly string[],
): Promise<RefundRow[]> {
  // SQL: each with the state of its authorization, by that one's key of four columns.
  const rows = await db.$queryRaw<StoredRefund[]>`
    SELECT r.id, r.settlement_id AS "settlementId", r.number, r.chain_id AS "chainId", s.to_address AS payer, r.nonce,
           r.value, s.status, s.tx_hash AS "txHash", s.final_at IS NOT NULL AS "isFinal",
           s.error_reason AS "errorReason", r.created_at AS "createdAt", s.settled_at AS "settledAt"
      FROM refunds r
      JOIN settlements s USING (from_address, chain_id, asset, nonce)
     WHERE r.settlement_id = ANY(${settlementIds})
     ORDER BY r.settlement_id, r.number`;
  return rows.map(({ value, chainId, ...row }) => ({
    ...row,
    chainId: Number(chainId),
    valueAtomic: atomicOf(value),
  }));
}
type StoredRefund = Omit<RefundRow, "valueAtomic" | "chainId"> & {
  value: Prisma.Decimal;
  chainId: bigint;
};

export interface Totals {
  settled: number;
  volume: bigint;
  pending: number;
  failed: number;
  payers: number;
}
export interface DayRow {
  day: Date;
  settled: number;
  failed: number;
  volume: bigint;
  refunded: bigint;
}
export interface ReasonRow {
  reason: string;
  count: number;
  lastAt: Date;
}
type Raw<Row> = { [Key in keyof Row]: Row[Key] extends bigint ? Prisma.Decimal : Row[Key] };

/** The start of the first of this many days (UTC), today being the last. */
export async function firstDay(db: Db, days: number): Promise<Date> {
  const now = await databaseNow(db);
  const today = new Date(Math.floor(now.getTime() / DAY_MS) * DAY_MS);
  return hoursBefore(today, (days - 1) * 24);
}
const DAY_MS = 86_400_000;

export async function readTotals(db: Db, payee: Payee, days: number): Promise<Totals> {
  const since = await firstDay(db, days);
  // SQL: filtered sums, which Prisma does not support; the first three conditions match settlements_payee_idx.
  const rows = await db.$queryRaw<Raw<Totals>[]>`
    SELECT count(*) FILTER (WHERE status = 'settled')::int AS settled,
           coalesce(sum(value) FILTER (WHERE status = 'settled'), 0) AS volume,
           count(*) FILTER (WHERE status IN ('queued', 'submitted'))::int AS pending,
           count(*) FILTER (WHERE status IN ('failed', 'expired'))::int AS failed,
           count(DISTINCT from_address) FILTER (WHERE status = 'settled')::int AS payers
      FROM settlements
     WHERE (kind = 'facilitated' OR (kind = 'x402' AND relay))
       AND to_address = ${payee.address} AND created_at >= ${since}
       AND (${payee.chainId} = 0 OR chain_id = ${payee.chainId})`;
  const [row] = rows;
  return row
    ? { ...row, volume: atomicOf(row.volume) }
    : { settled: 0, volume: 0n, pending: 0, failed: 0, payers: 0 };
}

/** Oldest first, empty days as zeros. */
export async function readDays(db: Db, owner: Payee, days: number): Promise<DayRow[]> {
  const since = await firstDay(db, days);
  // SQL: sums per day with the gaps filled; Prisma groups by columns only.
  const rows = await db.$queryRaw<Raw<DayRow>[]>`
    WITH days AS (
      SELECT day AT TIME ZONE 'UTC' AS day FROM generate_series(${since}::timestamptz AT TIME ZONE 'UTC',
        (now() AT TIME ZONE 'UTC')::date, interval '1 day') AS day),
    paid AS (
      SELECT date_trunc('day', created_at, 'UTC') AS day, count(*) FILTER (WHERE status = 'settled')::int AS settled,
             count(*) FILTER (WHERE status IN ('failed', 'expired'))::int AS failed,
             sum(value) FILTER (WHERE status = 'settled') AS volume
        FROM settlements
       WHERE (kind = 'facilitated' OR (kind = 'x402' AND relay))
         AND to_address = ${owner.address} AND created_at >= ${since}
         AND (${owner.chainId} = 0 OR chain_id = ${owner.chainId})
       GROUP BY 1),
    back AS (
      SELECT date_trunc('day', r.created_at, 'UTC') AS day, sum(r.value) AS refunded
        FROM refunds r JOIN settlements s USING (from_address, chain_id, asset, nonce)
       WHERE r.from_address = ${owner.address} AND (${owner.chainId} = 0 OR r.chain_id = ${owner.chainId})
         AND r.created_at >= ${since} AND s.status = 'settled'
       GROUP BY 1)
    SELECT day, coalesce(settled, 0) AS settled, coalesce(failed, 0) AS failed, coalesce(volume, 0) AS volume,
           coalesce(refunded, 0) AS refunded
      FROM days LEFT JOIN paid USING (day) LEFT JOIN back USING (day) ORDER BY day`;
  return rows.map((row) => ({
    ...row,
    volume: atomicOf(row.volume),
    refunded: atomicOf(row.refunded),
  }));
}

export async function readRefundTotals(
  db: Db,
  owner: Payee,
  days: number,
): Promise<{ refunds: number; refunded: bigint }> {
  const since = await firstDay(db, days);
  // SQL: joined with the state of each.
  const rows = await db.$queryRaw<{ refunds: number; refunded: Prisma.Decimal }[]>`
    SELECT count(*)::int AS refunds, coalesce(sum(r.value), 0) AS refunded
      FROM refunds r JOIN settlements s USING (from_address, chain_id, asset, nonce)
     WHERE r.from_address = ${owner.address} AND (${owner.chainId} = 0 OR r.chain_id = ${owner.chainId})
       AND r.created_at >= ${since}
       AND NOT (s.status IN ('failed', 'expired') AND s.final_at IS NOT NULL)`;
  const [row] = rows;
  return { refunds: row?.refunds ?? 0, refunded: row ? atomicOf(row.refunded) : 0n };
}

export const MOST_REASONS = 20;

/** Reasons of failed settlements, most frequent first. */
export async function readFailures(db: Db, payee: Payee, days: number): Promise<ReasonRow[]> {
  const since = await firstDay(db, days);
  const groups = await db.settlement.groupBy({
    by: ["errorReason"],
    where: {
      AND: [paidTo(payee), { status: { in: ["failed", "expired"] }, createdAt: { gte: since } }],
    },
    _count: true,
    _max: { updatedAt: true },
    orderBy: { _count: { id: "desc" } },
    take: MOST_REASONS,
  });
  return groups.map(({ errorReason, _count, _max }) => ({
    reason: errorReason ?? "unknown",
    count: _count,
    lastAt: _max.updatedAt ?? since,
  }));
}

/** Reasons of payments that never became a settlement. */
export async function readRefusals(db: Db, ownerId: string, days: number): Promise<ReasonRow[]> {
  const since = await firstDay(db, days);
  const groups = await db.merchantRefusal.groupBy({
    by: ["reason"],
    where: { ownerId, hour: { gte: since } },
    _sum: { count: true },
    _max: { hour: true },
    orderBy: { _sum: { count: "desc" } },
    take: MOST_REASONS,
  });
  return groups.map(({ reason, _sum, _max }) => ({
    reason,
    count: Number(_sum.count ?? 0n),
    lastAt: _max.hour ?? since,
  }));
}
