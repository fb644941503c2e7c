/** The hold of hold.ts as rows: of the cursor it waits for, and of the lanes that showed it. */
import type { Sql } from "../../infra/db/pool.ts";
import { databaseNow, type Db, type PrismaClient } from "../../infra/db/prisma.ts";
import { idOf, type CursorKey } from "./cursor-store.ts";
import { SOME_BLOCK, type HoldRow } from "./hold.ts";

export async function readHold(sql: Sql, key: CursorKey): Promise<HoldRow | undefined> {
  // SQL: the port waits for it, and would wait for Prisma's query compiler.
  const { rows } = await sql.query<HoldRow>(
    `SELECT hold_until_block AS "untilBlock", hold_generation AS generation, next_block AS "nextBlock"
       FROM ledger_cursors WHERE chain_id = $1 AND asset = $2`,
    [key.chainId, key.asset],
  );
  return rows[0];
}

/** Never shorter than one that is there: that one's generation stays then. */
export async function beginHold(
  prisma: PrismaClient,
  key: CursorKey,
  untilBlock: bigint,
  lanes: readonly { address: string; used: bigint }[],
): Promise<void> {
  const chainId = BigInt(key.chainId);
  await prisma.$transaction(async (tx) => {
    const now = await databaseNow(tx);
    // The lanes before the cursor, as the engine's transaction locks them (purser_hold_begin).
    for (const { address, used } of lanes)
      await tx.relayerLane.updateMany({
        where: { chainId, address, lookedNonce: { lt: used } },
        data: { lookedNonce: used },
      });
    // Where nothing was ever read, that one block is.
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
  // Nothing was ever read: that one block is. First, or the hold would seem to be read past.
  await db.ledgerCursor.updateMany({
    where: { ...where, nextBlock: SOME_BLOCK },
    data: { nextBlock: untilBlock },
  });
  await db.ledgerCursor.updateMany({
    where,
    data: { holdUntilBlock: untilBlock },
  });
}

/** False where it is another one by now, or has been lifted. */
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
