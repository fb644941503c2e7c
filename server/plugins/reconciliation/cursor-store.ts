/** How far each chain has been read: the cursor with its lease, and what a range adds to the ledger. */
import type { Address, Hex } from "viem";
import { newId } from "../../core/ids.ts";
import {
  databaseNow,
  decimalOf,
  secondsAfter,
  type Db,
  type PrismaClient,
} from "../../infra/db/prisma.ts";

export interface CursorKey {
  chainId: number;
  asset: Address;
}

export interface Cursor {
  nextBlock: bigint;
  /** The hash of the last block read; a different hash there now means a reorganisation. */
  lastHash: Hex | null;
  /** Blocks below this were read before, perhaps on a branch that no longer exists. */
  readBefore: bigint | null;
}

export const idOf = ({ chainId, asset }: CursorKey) => ({ chainId: BigInt(chainId), asset });

/** The cursor, if this process gets the lease; undefined while another process has it. */
export async function leaseCursor(
  db: Db,
  key: CursorKey,
  args: { owner: string; leaseSeconds: number; firstBlock: bigint },
): Promise<Cursor | undefined> {
  const { owner, leaseSeconds, firstBlock } = args;
  const now = await databaseNow(db);
  await db.ledgerCursor.createMany({
    data: [{ ...idOf(key), nextBlock: firstBlock, leaseUntil: now, updatedAt: now }],
    skipDuplicates: true,
  });
  const [leased] = await db.ledgerCursor.updateManyAndReturn({
    where: { ...idOf(key), OR: [{ leaseOwner: owner }, { leaseUntil: { lte: now } }] },
    data: { leaseOwner: owner, leaseUntil: secondsAfter(now, leaseSeconds) },
    select: { nextBlock: true, lastHash: true, readBefore: true },
  });
  return leased && { ...leased, lastHash: leased.lastHash as Hex | null };
}

export async function releaseCursor(db: Db, key: CursorKey, owner: string): Promise<void> {
  await db.ledgerCursor.updateMany({
    where: { ...idOf(key), leaseOwner: owner },
    data: { leaseUntil: await databaseNow(db) },
  });
}

export interface IncomingRow {
  agentId: string;
  from: Address;
  amountAtomic: bigint;
  txHash: Hex;
  logIndex: number;
  blockNumber: bigint;
  settledAt: Date;
}

/** What a range of blocks adds to the ledger. */
export interface SpanRead {
  nextBlock: bigint;
  lastHash: Hex;
  lastAt: Date;
  readBefore: bigint | null;
  incoming: readonly IncomingRow[];
  balances: readonly { wallet: Address; atomic: bigint }[];
}

/**
 * Stores the transfers and moves the cursor in one transaction, and only under the lease: nothing is missed or reported
 * twice, whichever process reads next. False if the lease was lost meanwhile.
 */
export async function storeSpan(
  prisma: PrismaClient,
  key: CursorKey,
  owner: string,
  span: SpanRead,
): Promise<boolean> {
  const { nextBlock, lastHash, lastAt, readBefore, incoming, balances } = span;
  return prisma.$transaction(async (tx) => {
    const now = await databaseNow(tx);
    const moved = await tx.ledgerCursor.updateMany({
      where: { ...idOf(key), leaseOwner: owner, leaseUntil: { gt: now } },
      data: { nextBlock, lastHash, lastAt, readBefore, updatedAt: now },
    });
    if (moved.count !== 1) return false;
    await insertIncoming(tx, key, incoming);
    for (const { wallet, atomic } of balances) {
      const id = { chainId: BigInt(key.chainId), wallet };
      const known = { balance: decimalOf(atomic), blockNumber: nextBlock - 1n };
      await tx.ledgerBalance.upsert({
        where: { chainId_wallet: id },
        create: { ...id, ...known },
        update: known,
      });
    }
    return true;
  });
}

export async function insertIncoming(
  db: Db,
  key: CursorKey,
  incoming: readonly IncomingRow[],
): Promise<void> {
  if (incoming.length === 0) return;
  await db.payment.createMany({
    data: incoming.map(({ from, amountAtomic, ...transfer }) => ({
      ...transfer,
      ...idOf(key),
      id: newId("pay"),
      kind: "incoming",
      status: "settled",
      counterparty: from,
      amount: decimalOf(amountAtomic),
      finalAt: transfer.settledAt,
    })),
    skipDuplicates: true,
  });
}

/** Which transfers of these transactions to these agents are in the ledger, by hash and log index. */
export async function recordedIncoming(
  db: Db,
  chainId: number,
  transfers: { agentIds: readonly string[]; txHashes: readonly Hex[] },
): Promise<{ txHash: string | null; logIndex: number | null }[]> {
  return db.payment.findMany({
    where: {
      agentId: { in: [...transfers.agentIds] },
      chainId: BigInt(chainId),
      kind: "incoming",
      txHash: { in: [...transfers.txHashes] },
    },
    select: { txHash: true, logIndex: true },
  });
}

/** After a reorganisation: moves the cursor back and deletes balances of the lost branch. */
export async function rewindCursor(
  prisma: PrismaClient,
  key: CursorKey,
  args: { owner: string; nextBlock: bigint; readBefore: bigint },
): Promise<void> {
  const { owner, nextBlock, readBefore } = args;
  await prisma.$transaction([
    prisma.ledgerCursor.updateMany({
      where: { ...idOf(key), leaseOwner: owner },
      data: { nextBlock, lastHash: null, readBefore },
    }),
    prisma.ledgerBalance.deleteMany({
      where: { chainId: BigInt(key.chainId), blockNumber: { gte: nextBlock } },
    }),
  ]);
}

/**
 * An operator's command: everything from a block on is read again. A process that is reading now loses the lease, so
 * that it does not move the cursor back again. Returns where it was: nothing is changed if that is before the block.
 * Undefined if this chain was never read.
 */
export async function readAgainFrom(
  db: Db,
  key: CursorKey,
  nextBlock: bigint,
): Promise<bigint | undefined> {
  const before = await readNextBlock(db, key);
  if (before === undefined || nextBlock > before) return before;
  await db.ledgerCursor.updateMany({
    where: idOf(key),
    data: { nextBlock, lastHash: null, leaseOwner: null, leaseUntil: await databaseNow(db) },
  });
  // They already include what is read again.
  await db.ledgerBalance.deleteMany({
    where: { chainId: BigInt(key.chainId), blockNumber: { gte: nextBlock } },
  });
  return before;
}

/** After a reorganisation: voids incoming transfers in these blocks that the chain no longer has. */
export async function voidGoneIncoming(
  db: Db,
  chainId: number,
  span: { from: bigint; to: bigint; seen: ReadonlySet<string> },
): Promise<{ id: string; agentId: string; txHash: Hex | null; blockNumber: bigint | null }[]> {
  const rows = await db.payment.findMany({
    where: {
      chainId: BigInt(chainId),
      kind: "incoming",
      status: "settled",
      blockNumber: { gte: span.from, lte: span.to },
    },
    select: { id: true, agentId: true, txHash: true, logIndex: true, blockNumber: true },
  });
  const gone = rows.filter(({ txHash, logIndex }) => !span.seen.has(`${txHash}:${logIndex}`));
  for (const { agentId, id } of gone)
    await db.payment.update({
      where: { agentId_id: { agentId, id } },
      // Without its log index, so that the same transfer may be recorded again.
      data: {
        status: "voided",
        logIndex: null,
        failureCode: "reorganised",
        failureDetail: "A chain reorganisation reversed this transfer.",
        updatedAt: await databaseNow(db),
      },
    });
  return gone.map(({ txHash, ...row }) => ({ ...row, txHash: txHash as Hex | null }));
}

async function readNextBlock(db: Db, key: CursorKey): Promise<bigint | undefined> {
  const cursor = await db.ledgerCursor.findUnique({
    where: { chainId_asset: idOf(key) },
    select: { nextBlock: true },
  });
  return cursor?.nextBlock;
}

/** The state of reconciliation per chain. */
export async function readCursors(
  db: Db,
): Promise<Map<number, { asOfBlock: bigint | null; asOf: Date | null }>> {
  const rows = await db.ledgerCursor.findMany({
    select: { chainId: true, nextBlock: true, lastHash: true, lastAt: true },
  });
  return new Map(
    rows.map(({ chainId, nextBlock, lastHash, lastAt }) => [
      Number(chainId),
      lastHash === null
        ? { asOfBlock: null, asOf: null }
        : { asOfBlock: nextBlock - 1n, asOf: lastAt },
    ]),
  );
}
