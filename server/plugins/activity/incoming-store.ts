import type { Address, Hex } from "viem";
import { decimalOf } from "../../infra/db/decimal.ts";
import { databaseNow, secondsAfter, type Db, type PrismaClient } from "../../infra/db/prisma.ts";

export interface CursorKey {
  chainId: number;
  asset: Address;
}

export interface Cursor {
  nextBlock: bigint;
  /** Of the last block read; another hash there now means the chain was rolled back. */
  lastHash: Hex | null;
}

const idOf = ({ chainId, asset }: CursorKey) => ({ chainId: BigInt(chainId), asset });

/** The cursor, if this process may read for a while; undefined while another one does. */
export async function leaseCursor(
  db: Db,
  key: CursorKey,
  args: { owner: string; leaseSeconds: number; firstBlock: bigint },
): Promise<Cursor | undefined> {
  const { owner, leaseSeconds, firstBlock } = args;
  const now = await databaseNow(db);
  await db.incomingCursor.createMany({
    data: [{ ...idOf(key), nextBlock: firstBlock, leaseUntil: now, updatedAt: now }],
    skipDuplicates: true,
  });
  const [leased] = await db.incomingCursor.updateManyAndReturn({
    where: { ...idOf(key), OR: [{ leaseOwner: owner }, { leaseUntil: { lte: now } }] },
    data: { leaseOwner: owner, leaseUntil: secondsAfter(now, leaseSeconds) },
    select: { nextBlock: true, lastHash: true },
  });
  return leased && { ...leased, lastHash: leased.lastHash as Hex | null };
}

export async function releaseCursor(db: Db, key: CursorKey, owner: string): Promise<void> {
  await db.incomingCursor.updateMany({
    where: { ...idOf(key), leaseOwner: owner },
    data: { leaseUntil: await databaseNow(db) },
  });
}

export interface IncomingRow {
  id: string;
  to: Address;
  from: Address;
  amountAtomic: bigint;
  txHash: Hex;
  logIndex: number;
  blockNumber: bigint;
  settledAt: Date;
}

/**
 * The transfers and the cursor move in one transaction, and only under the lease: nothing is missed
 * or told twice, whoever reads next. False when the lease was lost meanwhile.
 */
export async function storeIncoming(
  prisma: PrismaClient,
  key: CursorKey,
  args: { owner: string; rows: IncomingRow[]; nextBlock: bigint; lastHash: Hex | null },
): Promise<boolean> {
  const { owner, rows, nextBlock, lastHash } = args;
  return prisma.$transaction(async (tx) => {
    const now = await databaseNow(tx);
    const moved = await tx.incomingCursor.updateMany({
      where: { ...idOf(key), leaseOwner: owner, leaseUntil: { gt: now } },
      data: { nextBlock, lastHash, updatedAt: now },
    });
    if (moved.count !== 1) return false;
    if (rows.length === 0) return true;
    const agents = await tx.agent.findMany({
      where: { walletAddress: { in: [...new Set(rows.map(({ to }) => to))] } },
      select: { id: true, walletAddress: true },
    });
    const agentOf = new Map(agents.map(({ id, walletAddress }) => [walletAddress, id]));
    await tx.payment.createMany({
      data: rows.flatMap(({ to, from, amountAtomic, ...transfer }) => {
        const agentId = agentOf.get(to);
        if (agentId === undefined) return [];
        return {
          ...transfer,
          ...idOf(key),
          agentId,
          kind: "incoming",
          status: "settled",
          counterparty: from,
          amount: decimalOf(amountAtomic),
        };
      }),
      skipDuplicates: true,
    });
    return true;
  });
}

/** For rows whose transaction committed late. */
const MARGIN_SECONDS = 600;

/** Wallets made since, with a margin. */
export async function walletsSince(
  db: Db,
  since: Date | undefined,
): Promise<{ wallets: Address[]; now: Date }> {
  const now = await databaseNow(db);
  const agents = await db.agent.findMany({
    where: since === undefined ? {} : { createdAt: { gt: secondsAfter(since, -MARGIN_SECONDS) } },
    select: { walletAddress: true },
  });
  return { wallets: agents.map(({ walletAddress }) => walletAddress as Address), now };
}
