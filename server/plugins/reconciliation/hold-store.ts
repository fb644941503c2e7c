/** Stored holds of hold.ts: in the cursor that a hold waits for, and in the lanes that caused it. */
import type { Sql } from "../../infra/db/pool.ts";
import { databaseNow, type Db, type PrismaClient } from "../../infra/db/prisma.ts";
import { idOf, type CursorKey } from "./cursor-store.ts";
import { SOME_BLOCK, type HoldRow } from "./hold.ts";

export async function readHold(sql: Sql, key: CursorKey): Promise<HoldRow | undefined> {
  // SQL: the server listens only after this, and would wait for Prisma's query compiler.
  const { rows } = await sql.query<HoldRow>(
    `SELECT hold_until_block AS "untilBlock", hold_generation AS generation, next_block AS "nextBlock"
       FROM ledger_cursors WHERE chain_id = $1 AND asset = $2`,
    [key.chainId, key.asset],
  );
  return rows[0];
}

/** Never shortens an existing hold, whose generation then stays. */
export async function beginHold(
  prisma: PrismaClient,
  key: CursorKey,
  untilBlock: bigint,
  lanes: readonly { address: string; used: bigint }[],
): Promise<void> {
  const chainId = BigInt(key.chainId);
  await prisma.$transaction(async (tx) => {
    const now = await databaseNow(tx);
    // Locks the lanes before the cursor, in the same order as the engine's transaction (purser_hold_begin).
    for (const { address, used } of lanes)
      await tx.relayerLane.updateMany({
        where: { chainId, address, lookedNonce: { lt: used } },
        data: { lookedNonce: used },
      });
    // If the chain was never read, reading starts at that block.
    await tx.ledgerCursor.createMany({
      data: [{ ...idOf(key), nextBlock: untilBlock, leaseUntil: now, updatedAt: now }],
      skipDuplicates: true,
    });
    await tx.ledgerCursor.updateMany({
      where: {
        ...idOf(key),
        OR: [{ holdUntilBlock: null }, { holdUntilBlock: { lt: untilBlock } }],
      },
      data: { holdUntilBlock: untilBlock, holdGeneration: { increment: 1 } },
    });
  });
}

interface HoldPlace {
  generation: bigint;
  untilBlock: bigint;
}

export async function placeHold(
  db: Db,
  key: CursorKey,
  { generation, untilBlock }: HoldPlace,
): Promise<void> {
  const where = { ...idOf(key), holdGeneration: generation, holdUntilBlock: SOME_BLOCK };
  // If the chain was never read, reading starts at that block. Done first, because otherwise the hold would count as
  // passed.
  await db.ledgerCursor.updateMany({
    where: { ...where, nextBlock: SOME_BLOCK },
    data: { nextBlock: untilBlock },
  });
  await db.ledgerCursor.updateMany({
    where,
    data: { holdUntilBlock: untilBlock },
  });
}

/** False if the hold was replaced by another one, or lifted. */
export async function liftHold(db: Db, key: CursorKey, generation: bigint): Promise<boolean> {
  const { count } = await db.ledgerCursor.updateMany({
    where: {
      ...idOf(key),
      holdGeneration: generation,
      holdUntilBlock: { lt: db.ledgerCursor.fields.nextBlock },
    },
    data: { holdUntilBlock: null },
  });
  return count === 1;
}
