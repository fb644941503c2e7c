/** Copies the rows of owners from one cell's database to another's, in one transaction of the new one. */
import type { PoolClient } from "pg";
import { inTransaction, type Sql } from "../infra/db/pool.ts";
import { addressOf } from "../core/signatures.ts";
import { actAsOperatorIn } from "../plugins/audit/operators.ts";
import { NOBODY } from "../plugins/audit/store.ts";
import { newId } from "../core/ids.ts";
import { handOver, type WalletName } from "../plugins/custody/envelope.ts";
import { createSecretBox } from "../plugins/custody/secret-box.ts";
import { purposeOf } from "../plugins/notifications/webhooks.ts";
import type { Move } from "./cells.ts";
import { withIds, type Moving } from "./moving.ts";
import { openWork } from "./owners.ts";
import { MOVED, type MovedTable } from "./tables.ts";

export interface Counted {
  rows: bigint;
  /** The sum of the rows' hashes, without the columns that change. */
  digest: bigint;
}

/** Something is open again: nothing was copied. */
export class NotQuiet extends Error {
  override name = "NotQuiet";
}

const BATCH = 200;

/** Reads it all in one snapshot of the old cell in which nothing is open. */
export async function copyOwners(
  { from, to }: Move,
  moving: Moving,
  moveId: string,
): Promise<Map<string, Counted>> {
  return readSnapshot(from.pool, async (old) => {
    const open = await openWork(old, moving);
    if (open.length > 0) throw new NotQuiet(open.join("; "));
    return inTransaction(to.pool, async (tx) => {
      await beginCopy(tx, moveId);
      const copied = new Map<string, Counted>();
      for (const table of MOVED)
        copied.set(table.table, await copyTable({ from, to }, moving, { old, tx, table }));
      await endCopy({ from, to }, moving, { old, tx, moveId, copied });
      return copied;
    });
  });
}

async function readSnapshot<T>(pool: Move["from"]["pool"], work: (sql: PoolClient) => Promise<T>) {
  const client = await pool.connect();
  try {
    // SQL: one snapshot for all tables.
    await client.query("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY");
    return await work(client);
  } finally {
    // SQL: nothing was written.
    await client.query("ROLLBACK").then(
      () => client.release(),
      (error: Error) => client.release(error),
    );
  }
}

/** This row decides between a copy and a cancellation: both change it, and the second one sees the first. */
async function beginCopy(tx: Sql, moveId: string): Promise<void> {
  // SQL: this whole file copies rows of any table.
  const { rowCount } = await tx.query(
    "UPDATE owner_moves SET state = 'copied', updated_at = clock_timestamp() WHERE id = $1 AND state = 'began'",
    [moveId],
  );
  if (rowCount !== 1)
    throw new Error(
      "this move did not begin with the database of TO_DATABASE_URL, or was canceled",
    );
  // Copied rows are not new: no trigger notifies anybody, counts gas or writes audit entries.
  await tx.query("SET LOCAL session_replication_role = replica");
}

interface Copying {
  old: PoolClient;
  tx: PoolClient;
  table: MovedTable;
}

async function copyTable(
  move: Move,
  moving: Moving,
  { old, tx, table }: Copying,
): Promise<Counted> {
  const { table: name, rows, mayExist } = table;
  const columns = await columnsOf(tx, name);
  if (columns.join() !== (await columnsOf(old, name)).join())
    throw new Error(`${name} has other columns in the new cell`);
  const key = mayExist ? await keyOf(tx, name) : [];
  const kept: Counted = { rows: 0n, digest: 0n };
  await old.query(
    withIds(
      `DECLARE moved NO SCROLL CURSOR FOR SELECT to_jsonb(t)::text AS row FROM ${name} t WHERE ${rows}`,
      moving,
    ),
  );
  for (;;) {
    const { rows: batch } = await old.query<{ row: string }>(`FETCH ${BATCH} FROM moved`);
    if (batch.length === 0) break;
    const texts = await Promise.all(
      batch.map(({ row }) => changed(move, { old, table: name, row })),
    );
    const json = `[${texts.join(",")}]`;
    if (mayExist) {
      const both = key.map((column) => `s.${column} = t.${column}`).join(" AND ");
      const found = await digestOf(
        tx,
        `jsonb_populate_recordset(NULL::${name}, $1::jsonb) t WHERE EXISTS (SELECT FROM ${name} s WHERE ${both})`,
        table,
        [json],
      );
      kept.rows += found.rows;
      kept.digest += found.digest;
    }
    await tx.query(
      `INSERT INTO ${name} (${columns.join(", ")}) SELECT ${columns.join(", ")}
         FROM jsonb_populate_recordset(NULL::${name}, $1::jsonb) ${mayExist ? "ON CONFLICT DO NOTHING" : ""}`,
      [json],
    );
  }
  await old.query("CLOSE moved");
  return compare(table, {
    kept,
    was: await count(old, table, moving),
    is: await count(tx, table, moving),
  });
}

function compare(
  { table }: MovedTable,
  { was, is, kept }: { was: Counted; is: Counted; kept: Counted },
): Counted {
  if (was.rows - kept.rows === is.rows && was.digest - kept.digest === is.digest) return is;
  throw new Error(
    `${table} differs after it was copied: ${was.rows} rows became ${is.rows}. Nothing was kept`,
  );
}

/** How many rows of a table move, and their hash. */
export const count = (sql: Sql, table: MovedTable, moving: Moving): Promise<Counted> =>
  digestOf(sql, withIds(`${table.table} t WHERE ${table.rows}`, moving), table);

async function digestOf(
  sql: Sql,
  rows: string,
  { changed = [] }: MovedTable,
  values: string[] = [],
): Promise<Counted> {
  const compared = `to_jsonb(t) - ARRAY[${changed.map((column) => `'${column}'`).join(", ")}]::text[]`;
  const found = await sql.query<Counted>(
    `SELECT count(*) AS rows, coalesce(sum(('x' || left(md5((${compared})::text), 15))::bit(60)::bigint), 0) AS digest FROM ${rows}`,
    values,
  );
  return found.rows[0] as Counted;
}

/** All that are written; generated ones are not. */
async function columnsOf(sql: Sql, table: string): Promise<string[]> {
  const { rows } = await sql.query<{ name: string }>(
    `SELECT quote_ident(attname) AS name FROM pg_attribute
      WHERE attrelid = $1::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = '' ORDER BY attname`,
    [table],
  );
  return rows.map(({ name }) => name);
}

async function keyOf(sql: Sql, table: string): Promise<string[]> {
  const { rows } = await sql.query<{ name: string }>(
    `SELECT quote_ident(a.attname) AS name FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
      WHERE i.indrelid = $1::regclass AND i.indisprimary`,
    [table],
  );
  return rows.map(({ name }) => name);
}

interface Row {
  old: Sql;
  table: string;
  row: string;
}

/** The row as it is in the new cell. Only these tables have secrets or the mark of the move. */
async function changed(move: Move, { old, table, row }: Row): Promise<string> {
  if (table === "owners")
    return JSON.stringify({ ...JSON.parse(row), moved_to: null, moved_url: null, moved_at: null });
  if (table === "agent_wallets") return walletFor(move, old, JSON.parse(row) as WalletRow);
  if (table === "webhooks") return webhookFor(move, JSON.parse(row) as WebhookRow);
  return row;
}

interface WalletRow {
  agent_id: string;
  address: string;
  kid: string;
  wrapped_data_key: string;
  ciphertext: string;
  policy_digest: WalletName["policyDigest"];
  rules_digest: WalletName["rulesDigest"];
  revision: number;
}

const bytesOf = (text: string): Buffer => Buffer.from(text.slice(2), "hex");
const textOf = (bytes: Uint8Array): string => `\\x${Buffer.from(bytes).toString("hex")}`;

/** Sealed again for the same owner and rules, under the new cell's master key. */
async function walletFor({ from, to }: Move, old: Sql, row: WalletRow): Promise<string> {
  const { rows } = await old.query<{ address: string; chainId: number }>(
    `SELECT o.address, o.chain_id::int AS "chainId" FROM owners o JOIN agents a ON a.owner_id = o.id WHERE a.id = $1`,
    [row.agent_id],
  );
  const [owner] = rows;
  if (!owner) throw new Error(`${row.agent_id} has no owner`);
  const wallet: WalletName = {
    agentId: row.agent_id,
    address: row.address,
    ownerAddress: owner.address,
    ownerChainId: owner.chainId,
    policyDigest: row.policy_digest,
    rulesDigest: row.rules_digest,
    revision: row.revision,
  };
  const sealed = {
    kid: row.kid,
    wrappedDataKey: bytesOf(row.wrapped_data_key),
    ciphertext: bytesOf(row.ciphertext),
  };
  const rings = { from: from.ring, to: to.ring };
  const { kid, wrappedDataKey } = await handOver(rings, wallet, sealed, addressOf);
  return JSON.stringify({ ...row, kid, wrapped_data_key: textOf(wrappedDataKey) });
}

interface WebhookRow {
  id: string;
  secret: string;
  previous_secret: string | null;
}

async function webhookFor({ from, to }: Move, row: WebhookRow): Promise<string> {
  const [old, anew] = [createSecretBox(from.ring), createSecretBox(to.ring)];
  const seal = async (sealed: string): Promise<string> => {
    const secret = await old.open(purposeOf(row.id), bytesOf(sealed));
    return textOf(await anew.seal(purposeOf(row.id), secret));
  };
  return JSON.stringify({
    ...row,
    secret: await seal(row.secret),
    previous_secret: row.previous_secret && (await seal(row.previous_secret)),
    secret_kid: to.ring.active.kid,
  });
}

interface Copied {
  old: Sql;
  tx: Sql;
  moveId: string;
  copied: ReadonlyMap<string, Counted>;
}

async function endCopy({ from, to }: Move, moving: Moving, { old, tx, moveId, copied }: Copied) {
  // Programs that are connected over OAuth know the old cell's address: their connections end.
  const { rows: connections } = await old.query<{ id: string }>(
    withIds(
      "SELECT k.id FROM oauth_connections c JOIN api_keys k ON k.id = c.key_id WHERE k.agent_id = ANY ($agents)",
      moving,
    ),
  );
  await tx.query(
    "UPDATE api_keys SET revoked_at = coalesce(revoked_at, clock_timestamp()) WHERE id = ANY ($1::text[])",
    [connections.map(({ id }) => id)],
  );
  await readChainAgain(old, tx);
  // From here on it is this cell's own work, with its triggers.
  await tx.query("SET LOCAL session_replication_role = origin");
  const what = { moveId, owners: moving.owners, from: from.cell, to: to.cell };
  for (const ownerId of moving.owners)
    await tx.query(
      "INSERT INTO audit_notes (owner_id, id, actor, action, before, after, request_id) VALUES ($1, $2, $3, 'owner.changed_cell', $4, $5, $6)",
      [
        ownerId,
        newId("aud"),
        NOBODY,
        JSON.stringify({ cell: from.cell }),
        JSON.stringify({ cell: to.cell, connectionsEnded: connections.length }),
        moveId,
      ],
    );
  const rows = Object.fromEntries([...copied].map(([table, { rows }]) => [table, Number(rows)]));
  await actAsOperatorIn(tx, to.config, "owner.move_copied", { ...what, rows });
  // Last, because reconciliation looks for those that came within its margin.
  await tx.query("UPDATE owners SET arrived_at = clock_timestamp() WHERE id = ANY ($1::text[])", [
    moving.owners,
  ]);
}

/** What the old cell has not read yet of the wallets' transfers, the new cell may have passed without knowing them. */
async function readChainAgain(old: Sql, tx: Sql): Promise<void> {
  const { rows } = await old.query<{ chainId: bigint; asset: string; nextBlock: bigint }>(
    `SELECT chain_id AS "chainId", asset, next_block AS "nextBlock" FROM ledger_cursors`,
  );
  for (const { chainId, asset, nextBlock } of rows) {
    const values = [String(chainId), asset, String(nextBlock)];
    // As reconciliation's readAgainFrom: a process that is reading now loses the lease.
    const { rowCount } = await tx.query(
      `UPDATE ledger_cursors SET next_block = $3, last_hash = NULL, lease_owner = NULL, lease_until = clock_timestamp()
        WHERE chain_id = $1 AND asset = $2 AND next_block > $3`,
      values,
    );
    if (rowCount === 1)
      await tx.query("DELETE FROM ledger_balances WHERE chain_id = $1 AND block_number >= $2", [
        values[0],
        values[2],
      ]);
  }
}
