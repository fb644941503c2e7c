/**
 * What moved in the wallets and channels of an owner's agents, one agent after another, the oldest first. Read in chunks,
 * so that an export of any size needs little memory.
 */
import { plainWords } from "../../core/foreign-text.ts";
import { atomicOf, Prisma, type Db } from "../../infra/db/prisma.ts";
import type { Reading } from "../../infra/db/read-replica.ts";
import { CHANNELS } from "../../schemes/batch-settlement/index.ts";
import { csvCell } from "../payments/history.ts";
import { formatAtomic } from "../../core/money.ts";
import { instantOf, MICROS_OF, SITE } from "../payments/search.ts";
import { refundsOf } from "./sums.ts";

export type Category =
  | "payment"
  | "withdrawal"
  | "channel deposit"
  | "channel return"
  | "refund"
  | "funding";

export interface Movement {
  id: string;
  at: Date;
  agent: ExportedAgent;
  kind: string;
  category: Category;
  /** The account whose balance changes by the amount. A deposit is money that left the wallet for a channel. */
  account: "wallet" | "channel";
  /** Less than zero: it left the account. */
  amountAtomic: bigint;
  chainId: number;
  /** The other side; of a refund, the payee of the payment. */
  payee: string;
  site: string | null;
  memo: string | null;
  task: string | null;
  hash: string | null;
  /** Of a refund: the payment that it returns. */
  refundOf: string | null;
}

export interface ExportedAgent {
  id: string;
  name: string;
}

const CHUNK = 500;
export const CHANNEL_CONTRACT = CHANNELS.toLowerCase();

interface Row {
  id: string;
  micros: bigint;
  at: Date;
  kind: string;
  isVoucher: boolean;
  amount: Prisma.Decimal;
  chainId: bigint;
  counterparty: string;
  site: string | null;
  memo: string | null;
  task: string | null;
  hash: string | null;
}

export interface Span {
  from: Date;
  to: Date;
}

export async function* movementsOf(
  reading: Reading,
  agents: readonly ExportedAgent[],
  span: Span,
): AsyncGenerator<Movement[]> {
  for (const agent of agents) {
    let after: Row | undefined;
    do {
      const last = after;
      const { rows, refunds } = await reading(async (prisma) => {
        const chunk = await readChunk(prisma, agent.id, span, last);
        return { rows: chunk, refunds: await readRefunds(prisma, agent.id, chunk) };
      });
      yield rows.map((row) => asMovement(agent, row, refunds));
      after = rows.length === CHUNK ? rows.at(-1) : undefined;
    } while (after);
  }
}

function readChunk(db: Db, agentId: string, span: Span, after: Row | undefined): Promise<Row[]> {
  const later = after
    ? Prisma.sql`(p.settled_at, p.id) > (${instantOf(after.micros)}, ${after.id})`
    : Prisma.sql`TRUE`;
  // SQL: Prisma has no comparison of two columns at once.
  return db.$queryRaw<Row[]>`
    SELECT p.id, ${MICROS_OF(Prisma.sql`p.settled_at`)} AS micros, p.settled_at AS at, p.kind,
           p.ceiling IS NOT NULL AS "isVoucher", COALESCE(p.charged, p.amount) AS amount, p.chain_id AS "chainId",
           p.counterparty, ${SITE} AS site, p.memo, p.task_id AS task, p.tx_hash AS hash
      FROM payments p
     WHERE p.agent_id = ${agentId} AND p.status = 'settled'
       AND p.settled_at >= ${span.from} AND p.settled_at < ${span.to} AND ${later}
       AND (p.ceiling IS NULL OR p.charged > 0)
     ORDER BY p.settled_at, p.id LIMIT ${CHUNK}`;
}

interface FoundRefund {
  hash: string;
  value: Prisma.Decimal;
  paymentId: string;
  payee: string;
  site: string | null;
  task: string | null;
}

type Refunds = Map<string, FoundRefund[]>;
const refundKey = (hash: string | null, value: bigint): string => `${hash} ${value}`;

/** The refunds among these rows, by transaction and amount. */
async function readRefunds(db: Db, agentId: string, rows: readonly Row[]): Promise<Refunds> {
  const refunds: Refunds = new Map();
  const [first] = rows;
  const last = rows.at(-1);
  if (!first || !last || !rows.some(({ kind }) => kind === "incoming")) return refunds;
  const to = new Date(last.at.getTime() + 1);
  const found = await db.$queryRaw<FoundRefund[]>`
    SELECT DISTINCT ON (r.id) s.tx_hash AS hash, s.value, p.id AS "paymentId", p.counterparty AS payee, ${SITE} AS site,
           p.task_id AS task
      FROM ${refundsOf([agentId], first.at, to)}`;
  for (const refund of found) {
    const key = refundKey(refund.hash, atomicOf(refund.value));
    refunds.set(key, [...(refunds.get(key) ?? []), refund]);
  }
  return refunds;
}

function asMovement(agent: ExportedAgent, row: Row, refunds: Refunds): Movement {
  const amount = atomicOf(row.amount);
  const refund =
    row.kind === "incoming" ? refunds.get(refundKey(row.hash, amount))?.shift() : undefined;
  return {
    id: row.id,
    at: row.at,
    agent,
    kind: row.kind,
    category: categoryOf(row, refund),
    account: row.isVoucher ? "channel" : "wallet",
    amountAtomic: row.kind === "incoming" ? amount : -amount,
    chainId: Number(row.chainId),
    payee: refund?.payee ?? row.counterparty,
    site: refund?.site ?? row.site,
    memo: row.memo === null ? null : plainWords(row.memo, 300),
    task: refund?.task ?? row.task,
    hash: row.hash,
    refundOf: refund?.paymentId ?? null,
  };
}

function categoryOf(row: Row, refund: FoundRefund | undefined): Category {
  if (row.kind === "withdrawal") return "withdrawal";
  if (row.kind === "deposit") return "channel deposit";
  if (row.kind !== "incoming") return "payment";
  if (refund) return "refund";
  return row.counterparty === CHANNEL_CONTRACT ? "channel return" : "funding";
}

/** A line for each movement (RFC 4180), protected against formula injection. Nobody charges agents for gas: no fee is known. */
const COLUMNS: readonly [string, (movement: Movement, networkOf: NetworkOf) => string | null][] = [
  ["time", ({ at }) => at.toISOString()],
  ["agent", ({ agent }) => agent.name],
  ["agentId", ({ agent }) => agent.id],
  ["kind", ({ kind }) => kind],
  ["category", ({ category }) => category],
  ["account", ({ account }) => account],
  ["amount", ({ amountAtomic }) => formatAtomic(amountAtomic)],
  ["fee", () => null],
  ["network", ({ chainId }, networkOf) => networkOf(chainId)],
  ["payee", ({ payee }) => payee],
  ["site", ({ site }) => site],
  ["memo", ({ memo }) => memo],
  ["txHash", ({ hash }) => hash],
  ["id", ({ id }) => id],
  ["refundOf", ({ refundOf }) => refundOf],
  ["task", ({ task }) => task],
];

type NetworkOf = (chainId: number) => string;

export async function* movementsCsv(
  chunks: AsyncGenerator<Movement[]>,
  networkOf: NetworkOf,
): AsyncGenerator<string> {
  yield `${COLUMNS.map(([name]) => name).join(",")}\r\n`;
  for await (const movements of chunks)
    yield movements.map((movement) => csvLine(movement, networkOf)).join("");
}

function csvLine(movement: Movement, networkOf: NetworkOf): string {
  const cells = COLUMNS.map(([name, read]) => {
    const text = read(movement, networkOf) ?? "";
    // A number of ours: an apostrophe before its minus would make it text.
    return name === "amount" ? text : csvCell(text);
  });
  return `${cells.join(",")}\r\n`;
}
