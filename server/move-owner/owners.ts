/** Which owners move together, what prevents a move for good, and what a move has to wait for. */
import type { Sql } from "../infra/db/pool.ts";
import { createSecretBox } from "../plugins/custody/secret-box.ts";
import { nameOf } from "../plugins/custody/shared-secret.ts";
import type { Move, Side } from "./cells.ts";
import { withIds, type Moving } from "./moving.ts";
import { reasonsOfPasskeys, SIGNED_BY_PASSKEYS } from "./passkeys.ts";

export interface OwnerRow {
  id: string;
  address: string;
  chainId: bigint;
  teamName: string | null;
  movedTo: string | null;
  movedAt: Date | null;
}

const OWNER = `o.id, o.address, o.chain_id AS "chainId", o.team_name AS "teamName", o.moved_to AS "movedTo", o.moved_at AS "movedAt"`;

/** By its id or address. */
export async function findOwners(sql: Sql, named: string): Promise<OwnerRow[]> {
  // SQL: this file reads both cells' databases by its own pools.
  const { rows } = await sql.query<OwnerRow>(
    `SELECT ${OWNER} FROM owners o WHERE o.id = $1 OR o.address = lower($1) ORDER BY o.id`,
    [named],
  );
  return rows;
}

/**
 * The owners that cannot be in different cells: a team and its members, and those who gave agents to one another with
 * signed orders.
 */
export async function tiedTo(sql: Sql, ownerId: string): Promise<OwnerRow[]> {
  // SQL: recursive over three relations.
  const { rows } = await sql.query<OwnerRow>(
    `WITH RECURSIVE tied (id) AS (
       SELECT $1::text
       UNION
       SELECT n.id FROM tied, LATERAL (
         SELECT m.team_id AS id FROM team_members m JOIN owners p ON p.address = m.address AND p.chain_id = m.chain_id
          WHERE p.id = tied.id
         UNION ALL
         SELECT p.id FROM team_members m JOIN owners p ON p.address = m.address AND p.chain_id = m.chain_id
          WHERE m.team_id = tied.id
         UNION ALL
         SELECT a.owner_id FROM owner_orders r JOIN agents a ON a.id = r.agent_id
          WHERE r.owner_id = tied.id AND r.used_at IS NOT NULL
         UNION ALL
         SELECT r.owner_id FROM agents a JOIN owner_orders r ON r.agent_id = a.id AND r.used_at IS NOT NULL
          WHERE a.owner_id = tied.id) AS n)
     SELECT ${OWNER} FROM owners o JOIN tied ON tied.id = o.id ORDER BY o.id`,
    [ownerId],
  );
  return rows;
}

export async function movingOf(sql: Sql, owners: readonly string[]): Promise<Moving> {
  // SQL: as above.
  const { rows } = await sql.query<{ id: string; wallet: string }>(
    "SELECT id, wallet_address AS wallet FROM agents WHERE owner_id = ANY ($1::text[]) ORDER BY id",
    [owners],
  );
  return {
    owners: [...owners],
    agents: rows.map(({ id }) => id),
    wallets: rows.map(({ wallet }) => wallet),
  };
}

/** Why these owners cannot move; empty if they can. Nothing is changed. */
export async function reasonsAgainst(move: Move, moving: Moving): Promise<string[]> {
  const { from, to } = move;
  const reasons = [...(await sameRelease(move)), ...(await keysOfNewCell(move))];
  const count = async (side: Side, text: string): Promise<number> => {
    // SQL: conditions on the ids that move.
    const { rows } = await side.pool.query<{ count: bigint }>(withIds(text, moving));
    return Number(rows[0]?.count ?? 0);
  };
  const add = (found: number, reason: string): void => {
    if (found > 0) reasons.push(reason);
  };
  reasons.push(...(await reasonsOfPasskeys(move, moving)));
  for (const { what, sql, hint } of SIGNED_BY_PASSKEYS)
    add(await count(from, sql), `there are ${what}: ${hint}`);
  add(
    await count(
      from,
      "SELECT count(*) FROM channels c WHERE c.agent_id = ANY ($agents) AND c.status <> 'closed'",
    ),
    "an agent has payment channels that are not closed: this cell's keys sign their vouchers. The owner can close them",
  );
  add(
    await count(
      from,
      "SELECT count(*) FROM ledger_differences d WHERE d.agent_id = ANY ($agents) AND d.healed_at IS NULL",
    ),
    "the ledger of an agent differs from the chain: see `npm run operator -- heal-difference`",
  );
  const { rows: accounts } = await from.pool.query<{ id: string; address: string; chain: bigint }>(
    // SQL: as above.
    withIds(
      "SELECT o.id, o.address, o.chain_id AS chain FROM owners o WHERE o.id = ANY ($owners)",
      moving,
    ),
  );
  for (const { id, address, chain } of accounts) {
    // SQL: as above.
    const { rowCount } = await to.pool.query(
      "SELECT 1 FROM owners WHERE id = $1 OR (address = $2 AND chain_id = $3)",
      [id, address, String(chain)],
    );
    add(rowCount ?? 0, `the new cell has an account with the address of ${id}, or had this one`);
  }
  const { rows: networks } = await from.pool.query<{ network: string }>(
    // SQL: as above.
    withIds("SELECT DISTINCT network FROM agents WHERE id = ANY ($agents)", moving),
  );
  for (const { network } of networks)
    if (!to.config.networks.some(({ id }) => id === network))
      reasons.push(`the new cell's NETWORKS do not have ${network}`);
  return reasons;
}

/** Rows are copied as they are, so both databases must have the same tables and functions. */
async function sameRelease({ from, to }: Move): Promise<string[]> {
  const read = async ({ pool }: Side): Promise<string> => {
    // SQL: the migrator's own tables.
    const { rows } = await pool.query<{ release: string }>(
      `SELECT (SELECT string_agg(migration_name, ',' ORDER BY migration_name) FROM _prisma_migrations)
           || (SELECT string_agg(name || checksum, ',' ORDER BY name) FROM purser_functions) AS release`,
    );
    return rows[0]?.release ?? "";
  };
  return (await read(from)) === (await read(to))
    ? []
    : ["the two cells run different releases: upgrade both first"];
}

/** The settings must be those with which the new cell runs, or it could not open the wallets. */
async function keysOfNewCell({ from, to }: Move): Promise<string[]> {
  // SQL: as above.
  const read = ({ pool }: Side) =>
    pool.query<{ purpose: string; sealed: Buffer }>(
      "SELECT purpose, sealed FROM service_secrets ORDER BY purpose",
    );
  const { rows } = await read(to);
  const { rows: own } = await read(from);
  if (rows.length === 0) return ["the new cell has never run with this database: start it first"];
  if (own.some(({ sealed }) => rows.some((row) => row.sealed.equals(sealed))))
    return ["DATABASE_URL and TO_DATABASE_URL are one database, or one is a copy of the other"];
  const box = createSecretBox(to.ring);
  try {
    for (const { purpose, sealed } of rows) await box.open(nameOf(purpose), sealed);
  } catch {
    return ["TO_MASTER_KEYS does not open what the new cell has sealed: it runs with other keys"];
  }
  // SQL: as above.
  const { rows: rights } = await to.pool.query<{ may: boolean }>(
    "SELECT has_parameter_privilege('session_replication_role', 'SET') AS may",
  );
  return rights[0]?.may
    ? []
    : [
        "the role of TO_DATABASE_URL may not set session_replication_role, without which copied rows would be taken for new ones: GRANT SET ON PARAMETER session_replication_role",
      ];
}

/** A call that takes longer has lost its process. */
const RECENT = "now() - interval '10 minutes'";
/** Older rows were written before their finality was recorded. */
const FINALITY = "now() - interval '7 days'";
const NOT_ENDED = `s.status IN ('queued', 'submitted') OR (s.status = 'settled' AND s.final_at IS NULL AND s.settled_at > ${FINALITY})`;

const OPEN: readonly (readonly [what: string, sql: string])[] = [
  [
    "payments and withdrawals whose outcome is not known yet",
    "SELECT count(*) FROM payments p WHERE p.agent_id = ANY ($agents) AND p.outstanding",
  ],
  [
    "transfers that are not final on the chain yet",
    `SELECT count(*) FROM settlements s WHERE s.from_address = ANY ($wallets) AND s.agent_id = ANY ($agents) AND (${NOT_ENDED})`,
  ],
  [
    "refunds whose outcome is not known yet",
    `SELECT count(*) FROM refunds r LEFT JOIN settlements s ON s.from_address = r.from_address AND s.chain_id = r.chain_id
        AND s.asset = r.asset AND s.nonce = r.nonce
      WHERE r.owner_id = ANY ($owners) AND (${NOT_ENDED} OR (s.id IS NULL AND r.created_at > ${RECENT}))`,
  ],
  [
    "calls that are being answered",
    `SELECT count(*) FROM idempotency_keys k WHERE k.subject_id = ANY ($owners || $agents) AND k.status_code IS NULL AND k.created_at > ${RECENT}`,
  ],
  [
    "fetches that are running",
    `SELECT count(*) FROM fetches f WHERE f.agent_id = ANY ($agents) AND f.outcome = 'running' AND f.created_at > ${RECENT}`,
  ],
  // Those that came after the look at what prevents a move.
  ...SIGNED_BY_PASSKEYS.map(({ what, sql }) => [what, sql] as const),
];

/** What is not ended yet, each as "3 payments ...". */
export async function openWork(sql: Sql, moving: Moving): Promise<string[]> {
  const found: string[] = [];
  for (const [what, text] of OPEN) {
    // SQL: as above.
    const { rows } = await sql.query<{ count: bigint }>(withIds(text, moving));
    const count = Number(rows[0]?.count ?? 0);
    if (count > 0) found.push(`${count} ${what}`);
  }
  return found;
}

/** For a proxy: the public beginning of each key that works, unless another key has it too. */
export async function keyPrefixes(
  sql: Sql,
  moving: Moving,
): Promise<{ prefix: string; isShared: boolean }[]> {
  // SQL: over both kinds of keys.
  const { rows } = await sql.query<{ prefix: string; isShared: boolean }>(
    withIds(
      `WITH works AS (
         SELECT k.prefix, a.owner_id = ANY ($owners) AS moves FROM api_keys k JOIN agents a ON a.id = k.agent_id
          WHERE k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > now())
            AND NOT EXISTS (SELECT FROM oauth_connections c WHERE c.key_id = k.id) AND k.prefix <> 'oauth'
         UNION ALL
         SELECT k.prefix, k.owner_id = ANY ($owners) FROM merchant_keys k WHERE k.revoked_at IS NULL)
       SELECT prefix, NOT bool_and(moves) AS "isShared" FROM works GROUP BY prefix HAVING bool_or(moves) ORDER BY prefix`,
      moving,
    ),
  );
  return rows;
}
