/** Finds payments of all agents of an owner. Reads the owner's rows only, for a limited time. */
import type { Address } from "viem";
import { parseAddress } from "../../core/foreign-text.ts";
import { parseDecimal } from "../../core/money.ts";
import { type PageRequest, readPage } from "../../core/paging.ts";
import { ApiError } from "../../errors.ts";
import { isStatementTimeout } from "../../infra/db/pool.ts";
import {
  type Db,
  decimalOf,
  escapeLike,
  Prisma,
  type PrismaClient,
} from "../../infra/db/prisma.ts";
import type { OwnerPaymentFilters } from "../../schemas/spending.ts";
import { refuseField } from "../../core/refuse-field.ts";
import { readTime } from "./history.ts";
import { findPayments, type PaymentRow } from "./store.ts";

/** What a payment is found by, as it was read and checked. */
export interface Wanted {
  agentId?: string;
  statuses?: readonly string[];
  kinds?: readonly string[];
  task?: string;
  payee?: Address;
  site?: string;
  minAtomic?: bigint;
  maxAtomic?: bigint;
  text?: SearchText;
}

/** Several meanings of one text: any of them is enough. */
interface SearchText {
  hash?: string;
  address?: string;
  id?: string;
  atomic?: bigint;
  words: readonly string[];
}

const MOST_WORDS = 8;

function readSearch(text: string): SearchText {
  const trimmed = text.trim();
  const words = trimmed.split(/\s+/).filter((word) => word !== "");
  if (/^0x[0-9a-fA-F]{64}$/.test(trimmed)) return { hash: trimmed.toLowerCase(), words: [] };
  if (/^0x[0-9a-fA-F]{40}$/.test(trimmed)) return { address: trimmed.toLowerCase(), words: [] };
  const amount = parseDecimal(trimmed);
  return {
    words: words.slice(0, MOST_WORDS),
    ...(/^pay_[a-z0-9]+$/.test(trimmed) && { id: trimmed }),
    ...(amount.ok && { atomic: amount.atomic }),
  };
}

type Asked = Omit<OwnerPaymentFilters, "limit" | "cursor" | "from" | "to">;

export function readWanted(query: Asked): Wanted {
  const exact = readAmount(query.amount, "query.amount");
  return {
    agentId: query.agentId,
    statuses: query.status?.split(","),
    kinds: query.kind?.split(","),
    task: query.task,
    payee: readPayee(query.payee),
    site: query.site?.trim().toLowerCase(),
    minAtomic: exact ?? readAmount(query.minAmount, "query.minAmount"),
    maxAtomic: exact ?? readAmount(query.maxAmount, "query.maxAmount"),
    text: query.search === undefined ? undefined : readSearch(query.search),
  };
}

function readAmount(text: string | undefined, path: string): bigint | undefined {
  if (text === undefined) return undefined;
  const amount = parseDecimal(text);
  if (!amount.ok) throw refuseField("invalid_amount", path, amount.reason);
  return amount.atomic;
}

function readPayee(text: string | undefined): Address | undefined {
  if (text === undefined) return undefined;
  const parsed = parseAddress(text);
  if (!parsed.ok) throw refuseField("invalid_address", "query.payee", parsed.reason);
  return parsed.address;
}

/** The origin of a paid URL; null where there is none. Of the row that is named `p`. A stored URL has its usual form. */
export const SITE = Prisma.sql`CASE WHEN p.url LIKE 'http%://%'
  THEN lower(split_part(p.url, '/', 1) || '//' || split_part(split_part(p.url, '/', 3), '?', 1)) END`;

/** What a payment cost: through a channel, what was charged. */
const COST = Prisma.sql`COALESCE(p.charged, p.amount)`;

/** Conditions on the row that is named `p`; the agents and the time are conditions of the caller. */
export function conditionsOf(wanted: Wanted): Prisma.Sql {
  const { statuses, kinds, task, payee, site, minAtomic, maxAtomic, text } = wanted;
  const all = [
    statuses && Prisma.sql`p.status = ANY(${statuses}::text[])`,
    kinds && Prisma.sql`p.kind = ANY(${kinds}::text[])`,
    task !== undefined && Prisma.sql`p.task_id = ${task}`,
    payee && Prisma.sql`p.counterparty = ${payee}`,
    site !== undefined && ofSite(site),
    minAtomic !== undefined && Prisma.sql`${COST} >= ${decimalOf(minAtomic)}::numeric`,
    maxAtomic !== undefined && Prisma.sql`${COST} <= ${decimalOf(maxAtomic)}::numeric`,
    text && ofText(text),
  ].filter((condition) => condition instanceof Prisma.Sql);
  return all.length === 0 ? Prisma.sql`TRUE` : Prisma.join(all, " AND ");
}

const ofSite = (site: string): Prisma.Sql =>
  site.includes("://")
    ? Prisma.sql`(${SITE}) = ${site.replace(/\/+$/, "")}`
    : Prisma.sql`(${SITE}) IN (${`https://${site}`}, ${`http://${site}`})`;

function ofText({ hash, address, id, atomic, words }: SearchText): Prisma.Sql {
  if (hash !== undefined)
    return Prisma.sql`(p.tx_hash = ${hash} OR p.channel_id = ${hash} OR p.nonce = ${hash})`;
  if (address !== undefined) return Prisma.sql`p.counterparty = ${address}`;
  const inWords = words.map((word) => {
    const pattern = `%${escapeLike(word)}%`;
    return Prisma.sql`(p.memo ILIKE ${pattern} OR p.url ILIKE ${pattern})`;
  });
  const any = [
    words.length > 0 && Prisma.sql`(${Prisma.join(inWords, " AND ")})`,
    id !== undefined && Prisma.sql`p.id = ${id}`,
    atomic !== undefined && Prisma.sql`${COST} = ${decimalOf(atomic)}::numeric`,
  ].filter((condition) => condition instanceof Prisma.Sql);
  // Only spaces: they match everything.
  return any.length === 0 ? Prisma.sql`TRUE` : Prisma.sql`(${Prisma.join(any, " OR ")})`;
}

/** Of this owner: one agent, or all of them, archived ones too. Somebody else's agent is not found. */
export async function agentsOf(
  db: Db,
  args: { ownerId: string; agentId: string | undefined },
): Promise<string[]> {
  const { ownerId, agentId } = args;
  const found = await db.agent.findMany({
    where: { ownerId, ...(agentId !== undefined && { id: agentId }) },
    select: { id: true },
  });
  if (agentId !== undefined && found.length === 0)
    throw new ApiError("not_found", { detail: "You have no agent with this id." });
  return found.map(({ id }) => id);
}

const MOST_STATEMENTS = 5;

/** Runs a read that may take long over many rows, and refuses it in plain words if it takes too long. */
export async function withinTime<T>(
  prisma: PrismaClient,
  timeoutMs: number,
  read: (tx: Db) => Promise<T>,
): Promise<T> {
  try {
    return await prisma.$transaction(
      async (tx) => {
        await tx.$executeRaw`SELECT set_config('statement_timeout', ${`${timeoutMs}ms`}, TRUE)`;
        return read(tx);
      },
      // A read has a few statements, each of which may take that long.
      { timeout: timeoutMs * MOST_STATEMENTS },
    );
  } catch (error) {
    if (isStatementTimeout(error))
      throw new ApiError("too_much_to_read", {
        detail:
          "These are more payments than can be read at once. Choose a shorter time or one agent.",
        cause: error,
      });
    throw error;
  }
}

export interface PaymentSearch extends Wanted {
  /** `from` is inclusive, `to` is exclusive: when the payment was requested. */
  from?: Date;
  to?: Date;
  page: PageRequest;
}

export function readPaymentSearch(query: OwnerPaymentFilters): PaymentSearch {
  return {
    ...readWanted(query),
    from: readTime(query.from, "query.from"),
    to: readTime(query.to, "query.to"),
    page: readPage(query),
  };
}

/** The instant of a cursor, with the database's microseconds. */
export const instantOf = (micros: bigint): Prisma.Sql =>
  Prisma.sql`(timestamptz 'epoch' + ${micros}::bigint * interval '1 microsecond')`;

export const MICROS_OF = (column: Prisma.Sql): Prisma.Sql =>
  Prisma.sql`(extract(epoch FROM ${column}) * 1000000)::bigint`;

/** Newest first. One row more than the page, to show whether there is another page. */
export async function searchPayments(
  db: Db,
  agentIds: readonly string[],
  search: PaymentSearch,
): Promise<PaymentRow[]> {
  const { from, to, page } = search;
  const { after } = page;
  const take = page.limit + 1;
  // SQL: the newest rows of each agent by its index, then the newest of those. Prisma would sort all rows of the owner.
  const found = await db.$queryRaw<{ agentId: string; paymentId: string; micros: bigint }[]>`
    SELECT x.agent_id AS "agentId", x.id AS "paymentId", ${MICROS_OF(Prisma.sql`x.created_at`)} AS micros
      FROM unnest(${agentIds}::text[]) AS a (id)
     CROSS JOIN LATERAL (
       SELECT p.agent_id, p.id, p.created_at FROM payments p
        WHERE p.agent_id = a.id AND ${conditionsOf(search)}
          AND ${from === undefined ? Prisma.sql`TRUE` : Prisma.sql`p.created_at >= ${from}`}
          AND ${to === undefined ? Prisma.sql`TRUE` : Prisma.sql`p.created_at < ${to}`}
          AND ${after === undefined ? Prisma.sql`TRUE` : Prisma.sql`(p.created_at, p.id) < (${instantOf(after.createdAtMicros)}, ${after.id})`}
        ORDER BY p.created_at DESC, p.id DESC LIMIT ${take}) AS x
     ORDER BY x.created_at DESC, x.id DESC LIMIT ${take}`;
  if (found.length === 0) return [];
  const rows = new Map(
    (await findPayments(db, found)).map((row) => [`${row.agentId} ${row.id}`, row]),
  );
  return found.flatMap(({ agentId, paymentId, micros }) => {
    const row = rows.get(`${agentId} ${paymentId}`);
    return row === undefined ? [] : { ...row, createdAtMicros: micros };
  });
}
