/**
 * The steps of a move, each of which can be repeated. The order makes sure that at no time both cells accept anything of
 * the owner, whenever this process dies:
 *
 * 1. mark: the old cell refuses everything of the owner (`other_cell`), from one commit on.
 * 2. wait: what was accepted before ends.
 * 3. copy: one transaction of the new cell. Before its commit nobody accepts, after it the new cell does.
 * 4. end: the old cell deletes the keys and whatever would act by itself.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { newId } from "../core/ids.ts";
import { inTransaction, type Sql } from "../infra/db/pool.ts";
import { actAsOperatorIn } from "../plugins/audit/operators.ts";
import type { Move } from "./cells.ts";
import { copyOwners, NotQuiet } from "./copy.ts";
import { withIds, type Moving } from "./moving.ts";
import { openWork } from "./owners.ts";
import { ENDED, MOVED } from "./tables.ts";

type Print = (line: string) => void;

export interface BegunMove {
  id: string;
  ownerIds: string[];
  toCell: string;
  state: "began" | "copied" | "canceled" | "ended";
}

const ROW = `id, owner_ids AS "ownerIds", to_cell AS "toCell", state`;

/** The newest move of this owner away from here that was not canceled. */
export async function findMove({ from }: Move, ownerId: string): Promise<BegunMove | undefined> {
  // SQL: this file changes both cells' databases by its own pools.
  const { rows } = await from.pool.query<BegunMove>(
    `SELECT ${ROW} FROM owner_moves WHERE $1 = ANY (owner_ids) AND from_cell = $2 AND state <> 'canceled'
      ORDER BY created_at DESC LIMIT 1`,
    [ownerId, from.cell],
  );
  return rows[0];
}

export async function stateInNewCell(
  { to }: Move,
  id: string,
): Promise<BegunMove["state"] | undefined> {
  // SQL: as above.
  const { rows } = await to.pool.query<BegunMove>(`SELECT ${ROW} FROM owner_moves WHERE id = $1`, [
    id,
  ]);
  return rows[0]?.state;
}

/** The new cell knows of the move first: so it is copied into the database with which it began, or not at all. */
export async function mark({ from, to }: Move, owners: readonly string[]): Promise<BegunMove> {
  const id = newId("mov");
  // SQL: as above.
  const insert = (sql: Sql) =>
    sql.query(
      "INSERT INTO owner_moves (id, owner_ids, from_cell, to_cell) VALUES ($1, $2, $3, $4)",
      [id, owners, from.cell, to.cell],
    );
  await insert(to.pool);
  await inTransaction(from.pool, async (tx) => {
    // These rows and no others: purser_assert_not_moved shares them in the middle of other transactions.
    await tx.query("SELECT 1 FROM owners WHERE id = ANY ($1::text[]) ORDER BY id FOR UPDATE", [
      owners,
    ]);
    const { rowCount } = await tx.query(
      "UPDATE owners SET moved_to = $2, moved_url = $3 WHERE id = ANY ($1::text[]) AND moved_to IS NULL",
      [owners, to.cell, to.config.publicUrl],
    );
    if (rowCount !== owners.length) throw new Error("another move of these accounts has begun");
    await insert(tx);
    const what = { moveId: id, owners, from: from.cell, to: to.cell };
    await actAsOperatorIn(tx, from.config, "owner.move_began", what);
  });
  return { id, ownerIds: [...owners], toCell: to.cell, state: "began" };
}

/** Returns when nothing is open; false if something still is at the end of the time. */
export async function waitUntilQuiet(
  { from }: Move,
  moving: Moving,
  { waitMs, say }: { waitMs: number; say: Print },
): Promise<boolean> {
  // A payment that is being reserved has its agent's lock, and may have read the owner before the mark.
  await inTransaction(from.pool, (tx) =>
    tx.query(
      withIds("SELECT 1 FROM agents WHERE id = ANY ($agents) ORDER BY id FOR UPDATE", moving),
    ),
  );
  const untilMs = performance.now() + waitMs;
  for (let last = ""; ;) {
    const open = await openWork(from.pool, moving);
    if (open.length === 0) return true;
    const line = `Waiting for ${open.join("; ")}.`;
    if (line !== last) say(line);
    last = line;
    if (performance.now() > untilMs) return false;
    await sleep(500);
  }
}

export async function copy(move: Move, moving: Moving, id: string): Promise<number | undefined> {
  try {
    const copied = await copyOwners(move, moving, id);
    return [...copied.values()].reduce((sum, { rows }) => sum + Number(rows), 0);
  } catch (error) {
    if (error instanceof NotQuiet) return undefined;
    throw error;
  }
}

/** The new cell has it. Here only the history stays, and the answer where the owner is. */
export async function end({ from, to }: Move, moving: Moving, id: string): Promise<void> {
  await inTransaction(from.pool, async (tx) => {
    const { rowCount } = await tx.query(
      "UPDATE owner_moves SET state = 'ended', updated_at = clock_timestamp() WHERE id = $1 AND state = 'began'",
      [id],
    );
    if (rowCount !== 1) return;
    await tx.query("UPDATE owners SET moved_at = clock_timestamp() WHERE id = ANY ($1::text[])", [
      moving.owners,
    ]);
    for (const { table, rows } of [...ENDED, ...MOVED.filter(({ ends }) => ends).toReversed()])
      await tx.query(withIds(`DELETE FROM ${table} t WHERE ${rows}`, moving));
    const what = { moveId: id, owners: moving.owners, from: from.cell, to: to.cell };
    await actAsOperatorIn(tx, from.config, "owner.move_ended", what);
  });
}

/** False if the new cell has copied already: then the move can only be finished. */
export async function cancel({ from, to }: Move, begun: BegunMove): Promise<boolean> {
  // SQL: as above. Waits for a copy that is about to commit.
  await to.pool.query(
    "UPDATE owner_moves SET state = 'canceled', updated_at = clock_timestamp() WHERE id = $1 AND state = 'began'",
    [begun.id],
  );
  if ((await stateInNewCell({ from, to }, begun.id)) !== "canceled") return false;
  await inTransaction(from.pool, async (tx) => {
    const { rowCount } = await tx.query(
      "UPDATE owner_moves SET state = 'canceled', updated_at = clock_timestamp() WHERE id = $1 AND state = 'began'",
      [begun.id],
    );
    if (rowCount !== 1) return;
    await tx.query(
      "UPDATE owners SET moved_to = NULL, moved_url = NULL WHERE id = ANY ($1::text[]) AND moved_at IS NULL",
      [begun.ownerIds],
    );
    const what = { moveId: begun.id, owners: begun.ownerIds, from: from.cell, to: to.cell };
    await actAsOperatorIn(tx, from.config, "owner.move_canceled", what);
  });
  return true;
}
