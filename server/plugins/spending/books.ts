/**
 * The sums of agents' wallets and channels at both ends of a time, and whether the chain proves the one at the end: the
 * balance that reconciliation read at a block equals the sum of all movements up to that block, and everything before the
 * end is older than that block.
 */
import { atomicOf, Prisma, type Db } from "../../infra/db/prisma.ts";
import type { LedgerState } from "../../schemas/overview.ts";
import type { AgentBooks } from "./beancount.ts";
import { CHANNEL_CONTRACT, type ExportedAgent, type Span } from "./movements.ts";

interface WalletRow {
  agentId: string;
  before: Prisma.Decimal;
  atEnd: Prisma.Decimal;
  /** Null: no balance was read. */
  agrees: boolean | null;
  isLater: boolean;
}

export async function readBooks(
  db: Db,
  agents: readonly ExportedAgent[],
  span: Span,
  ledger: readonly LedgerState[],
): Promise<AgentBooks[]> {
  const ids = agents.map(({ id }) => id);
  const wallets = await readWallets(db, ids, span);
  const channels = await readChannels(db, ids, span.from);
  const open = await withOpenPayments(db, ids, span.to);
  const isCompared = ledger.every(({ asOf }) => asOf !== null && new Date(asOf) >= span.to);
  const differing = new Set(
    ledger.flatMap(({ differences }) => differences.map(({ agentId }) => agentId)),
  );
  return agents.map((agent) => {
    // One row for each chain.
    const own = wallets.filter(({ agentId }) => agentId === agent.id);
    const sum = (read: (row: WalletRow) => Prisma.Decimal): bigint =>
      own.reduce((total, row) => total + atomicOf(read(row)), 0n);
    return {
      agent,
      walletBeforeAtomic: sum(({ before }) => before),
      walletAtEndAtomic: sum(({ atEnd }) => atEnd),
      channelsBeforeAtomic: channels.get(agent.id) ?? 0n,
      notProven: whyNotProven({
        isCompared,
        differs: differing.has(agent.id),
        isOpen: open.has(agent.id),
        wallets: own,
      }),
    };
  });
}

function whyNotProven(facts: {
  isCompared: boolean;
  differs: boolean;
  isOpen: boolean;
  wallets: readonly WalletRow[];
}): string | null {
  if (facts.isOpen) return "a payment before the end is not decided yet";
  if (facts.differs) return "the ledger differs from the chain";
  if (facts.wallets.length === 0) return "nothing moved up to now";
  const isRead = facts.wallets.every(({ agrees, isLater }) => agrees !== null && !isLater);
  if (!facts.isCompared || !isRead)
    return "the ledger was not compared with the chain up to the end yet";
  return facts.wallets.every(({ agrees }) => agrees)
    ? null
    : "the ledger does not have all movements of this wallet";
}

function readWallets(db: Db, ids: readonly string[], { from, to }: Span): Promise<WalletRow[]> {
  const signed = Prisma.sql`CASE WHEN p.kind = 'incoming' THEN p.amount ELSE -p.amount END`;
  // SQL: sums with conditions, beside what reconciliation read.
  return db.$queryRaw<WalletRow[]>`
    SELECT p.agent_id AS "agentId",
           COALESCE(sum(${signed}) FILTER (WHERE p.settled_at < ${from}), 0) AS before,
           COALESCE(sum(${signed}) FILTER (WHERE p.settled_at < ${to}), 0) AS "atEnd",
           COALESCE(sum(${signed}) FILTER (WHERE p.block_number <= b.block_number), 0) = min(b.balance) AS agrees,
           COALESCE(bool_or(p.block_number IS NULL OR p.block_number > b.block_number)
                      FILTER (WHERE p.settled_at < ${to}), FALSE) AS "isLater"
      FROM payments p JOIN agents a ON a.id = p.agent_id
      LEFT JOIN ledger_balances b ON b.chain_id = p.chain_id AND b.wallet = lower(a.wallet_address)
     WHERE p.agent_id = ANY(${ids}::text[]) AND p.status = 'settled' AND p.ceiling IS NULL
     GROUP BY p.agent_id, p.chain_id`;
}

/** Deposits, less what was charged, less what came back. */
async function readChannels(
  db: Db,
  ids: readonly string[],
  from: Date,
): Promise<Map<string, bigint>> {
  // SQL: a sum with cases.
  const rows = await db.$queryRaw<{ agentId: string; sum: Prisma.Decimal }[]>`
    SELECT p.agent_id AS "agentId",
           sum(CASE WHEN p.kind = 'deposit' THEN p.amount WHEN p.kind = 'incoming' THEN -p.amount
                    ELSE -COALESCE(p.charged, 0) END) AS sum
      FROM payments p
     WHERE p.agent_id = ANY(${ids}::text[]) AND p.status = 'settled' AND p.settled_at < ${from}
       AND (p.kind = 'deposit' OR p.ceiling IS NOT NULL OR (p.kind = 'incoming' AND p.counterparty = ${CHANNEL_CONTRACT}))
     GROUP BY p.agent_id`;
  return new Map(rows.map(({ agentId, sum }) => [agentId, atomicOf(sum)]));
}

/** Agents with a payment from the wallet that was requested before the end, and may still move money. */
async function withOpenPayments(db: Db, ids: readonly string[], to: Date): Promise<Set<string>> {
  const rows = await db.payment.findMany({
    where: { agentId: { in: [...ids] }, outstanding: true, ceiling: null, createdAt: { lt: to } },
    select: { agentId: true },
    distinct: ["agentId"],
  });
  return new Set(rows.map(({ agentId }) => agentId));
}
