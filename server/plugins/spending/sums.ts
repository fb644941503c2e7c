/**
 * What the agents of an owner spent: sums by payee, site, agent or day. Money belongs to the time at which it was paid
 * (`settled_at`), so a month that is over changes only if the chain takes a payment back.
 */
import { getAddress, isAddress } from "viem";
import { readForeignJson } from "../../core/foreign-text.ts";
import { formatAtomic } from "../../core/money.ts";
import { DEFAULT_PAGE_SIZE } from "../../core/paging.ts";
import { atomicOf, decimalOf, hoursBefore, Prisma, type Db } from "../../infra/db/prisma.ts";
import type { Spending, SpendingGroup, SpendingQuery } from "../../schemas/spending.ts";
import { refuseField } from "../../core/refuse-field.ts";
import { readTime } from "../payments/history.ts";
import { conditionsOf, readWanted, SITE, type Wanted } from "../payments/search.ts";

/** Another grouping is one more line here, and one in the schema. */
const KEYS: Record<SpendingGroup, (paidAt: Prisma.Sql) => Prisma.Sql> = {
  payee: () => Prisma.sql`p.counterparty`,
  site: () => SITE,
  agent: () => Prisma.sql`p.agent_id`,
  task: () => Prisma.sql`p.task_id`,
  day: (paidAt) => Prisma.sql`(${paidAt} AT TIME ZONE 'UTC')::date`,
};

export interface SpendingRequest {
  by: SpendingGroup;
  from: Date;
  to: Date;
  wanted: Wanted;
  limit: number;
  after: { charged: bigint; key: string } | undefined;
}

const DEFAULT_HOURS = 30 * 24;

export function readSpendingRequest(query: SpendingQuery, now: Date): SpendingRequest {
  const { by, cursor, limit } = query;
  const to = readTime(query.to, "query.to") ?? now;
  const after = cursor === undefined ? undefined : decodeCursor(cursor);
  if (cursor !== undefined && after === undefined)
    throw refuseField("validation_failed", "query.cursor", "is not a cursor of this list");
  return {
    by,
    from: readTime(query.from, "query.from") ?? hoursBefore(to, DEFAULT_HOURS),
    to,
    wanted: readWanted(query),
    limit: limit === undefined ? DEFAULT_PAGE_SIZE : Number(limit),
    after,
  };
}

const encodeCursor = (charged: bigint, key: string): string =>
  Buffer.from(JSON.stringify([charged.toString(), key])).toString("base64url");

function decodeCursor(cursor: string): SpendingRequest["after"] {
  const text = Buffer.from(cursor, "base64url").toString("utf8");
  const read = readForeignJson(() => JSON.parse(text) as unknown);
  if (!read.ok || !Array.isArray(read.value) || read.value.length !== 2) return undefined;
  const [charged, key] = read.value as unknown[];
  if (typeof charged !== "string" || !/^\d{1,78}$/.test(charged)) return undefined;
  return typeof key === "string" ? { charged: BigInt(charged), key } : undefined;
}

/** Payments that were made, of the row named `p`: through a channel, if the charge is known. Deposits are not spent. */
const IS_SPENT = Prisma.sql`p.kind IN ('spend', 'x402') AND p.status = 'settled'
  AND (p.ceiling IS NULL OR p.charged IS NOT NULL)`;

/**
 * Refunds that arrived at these wallets: `i` is the transfer, `r` the seller's refund, `p` the payment that it returns. A
 * transfer that no refund of this service explains is incoming money.
 */
export const refundsOf = (agentIds: readonly string[], from: Date, to: Date): Prisma.Sql =>
  Prisma.sql`payments i
    JOIN agents a ON a.id = i.agent_id
    JOIN refunds r ON r.from_address = i.counterparty AND r.chain_id = i.chain_id AND r.asset = i.asset
    JOIN settlements s ON s.from_address = r.from_address AND s.chain_id = r.chain_id AND s.asset = r.asset
     AND s.nonce = r.nonce AND s.status = 'settled' AND s.tx_hash = i.tx_hash AND s.value = i.amount
     AND s.to_address = lower(a.wallet_address)
    JOIN payments p ON p.agent_id = i.agent_id AND p.id = r.settlement_id
   WHERE i.agent_id = ANY(${agentIds}::text[]) AND i.kind = 'incoming' AND i.status = 'settled'
     AND i.settled_at >= ${from} AND i.settled_at < ${to}`;

interface SumRow {
  place: number;
  key: string | null;
  charged: Prisma.Decimal;
  refunded: Prisma.Decimal;
  payments: number;
  rows: number;
}

/** Row 0 is the total, the rows of the page follow, and the last one is the rest. */
async function readSums(
  db: Db,
  agentIds: readonly string[],
  request: SpendingRequest,
): Promise<SumRow[]> {
  const { by, from, to, limit, after } = request;
  const where = conditionsOf(request.wanted);
  const key = KEYS[by];
  const isByDay = by === "day";
  const order = isByDay ? Prisma.sql`g.key DESC` : Prisma.sql`g.charged DESC, g.key`;
  const later =
    after === undefined
      ? Prisma.sql`TRUE`
      : isByDay
        ? Prisma.sql`g.key < ${after.key}`
        : Prisma.sql`(g.charged < ${decimalOf(after.charged)}::numeric
            OR (g.charged = ${decimalOf(after.charged)}::numeric AND g.key > ${after.key}))`;
  // SQL: sums over groups, with the rest of them in one row.
  return db.$queryRaw<SumRow[]>`
    WITH moved AS (
      SELECT ${key(Prisma.sql`p.settled_at`)} AS key,
             CASE WHEN p.ceiling IS NULL THEN p.amount ELSE p.charged END AS charged, 0::numeric AS refunded
        FROM payments p
       WHERE p.agent_id = ANY(${agentIds}::text[]) AND ${IS_SPENT}
         AND p.settled_at >= ${from} AND p.settled_at < ${to} AND ${where}
       UNION ALL
      SELECT f.key, 0, f.value FROM (
        SELECT DISTINCT ON (r.id) ${key(Prisma.sql`i.settled_at`)} AS key, s.value
          FROM ${refundsOf(agentIds, from, to)} AND ${where}) AS f
    ), sums AS MATERIALIZED (
      SELECT COALESCE(m.key::text, '') COLLATE "C" AS key, sum(m.charged) AS charged, sum(m.refunded) AS refunded,
             count(*) FILTER (WHERE m.charged > 0) AS payments
        FROM moved m GROUP BY m.key
    ), ranked AS (
      SELECT g.*, LEAST(row_number() OVER (ORDER BY ${order}), ${limit}::int + 1)::int AS place
        FROM sums g WHERE ${later}
    )
    SELECT 0 AS place, NULL AS key, COALESCE(sum(charged), 0) AS charged, COALESCE(sum(refunded), 0) AS refunded,
           COALESCE(sum(payments), 0)::int AS payments, count(*)::int AS rows FROM sums
     UNION ALL
    SELECT place, min(key), sum(charged), sum(refunded), sum(payments)::int, count(*)::int
      FROM ranked GROUP BY place ORDER BY place`;
}

interface OpenRow {
  payments: number;
  amount: Prisma.Decimal;
  notKnown: number;
}

async function readOpen(
  db: Db,
  agentIds: readonly string[],
  { wanted, from, to }: SpendingRequest,
): Promise<OpenRow> {
  const where = conditionsOf(wanted);
  // SQL: counts and sums of two indexes in one round trip.
  const rows = await db.$queryRaw<OpenRow[]>`
    SELECT o.*, n.* FROM (
      SELECT count(*)::int AS payments, COALESCE(sum(p.amount), 0) AS amount FROM payments p
       WHERE p.agent_id = ANY(${agentIds}::text[]) AND p.outstanding AND p.kind IN ('spend', 'x402')
         AND p.created_at < ${to} AND ${where}) AS o,
     (SELECT count(*)::int AS "notKnown" FROM payments p
       WHERE p.agent_id = ANY(${agentIds}::text[]) AND p.status = 'settled' AND p.ceiling IS NOT NULL AND p.charged IS NULL
         AND p.settled_at >= ${from} AND p.settled_at < ${to} AND ${where}) AS n`;
  return rows[0] as OpenRow;
}

const present = ({ charged, refunded, payments }: SumRow) => ({
  charged: formatAtomic(atomicOf(charged)),
  refunded: formatAtomic(atomicOf(refunded)),
  payments,
});

export async function readSpending(
  db: Db,
  agentIds: readonly string[],
  request: SpendingRequest,
): Promise<Spending> {
  const { by, limit } = request;
  const rows = await readSums(db, agentIds, request);
  const open = await readOpen(db, agentIds, request);
  const items = rows.filter(({ place }) => place > 0 && place <= limit);
  const rest = rows.find(({ place }) => place > limit);
  const last = items.at(-1);
  const keys = items.map(({ key }) => key ?? "");
  const names = await namesOf(db, by, agentIds, keys);
  return {
    by,
    from: request.from.toISOString(),
    to: request.to.toISOString(),
    total: present(rows[0] as SumRow),
    items: items.map((row) => ({
      key: row.key === "" || row.key === null ? null : readable(row.key),
      name: names.get(row.key ?? "") ?? null,
      ...present(row),
    })),
    others: rest ? { rows: rest.rows, ...present(rest) } : null,
    open: { payments: open.payments, amount: formatAtomic(atomicOf(open.amount)) },
    chargeNotKnown: open.notKnown,
    nextCursor: rest && last ? encodeCursor(atomicOf(last.charged), last.key ?? "") : null,
  };
}

const readable = (key: string): string =>
  isAddress(key, { strict: false }) ? getAddress(key) : key;

/** Names that the owner gave: of agents, and of payees in the rules of these agents. */
async function namesOf(
  db: Db,
  by: SpendingGroup,
  agentIds: readonly string[],
  keys: string[],
): Promise<Map<string, string>> {
  if (by === "agent") {
    const agents = await db.agent.findMany({
      where: { id: { in: keys } },
      select: { id: true, name: true },
    });
    return new Map(agents.map(({ id, name }) => [id, name]));
  }
  if (by !== "payee") return new Map();
  const labels = await db.allowlistEntry.findMany({
    where: { agentId: { in: [...agentIds] }, address: { in: keys }, label: { not: "" } },
    select: { address: true, label: true },
    distinct: ["address"],
    orderBy: [{ address: "asc" }, { createdAt: "desc" }],
  });
  return new Map(labels.map(({ address, label }) => [address, label]));
}
