import type { Address } from "viem";
import type { Sql } from "../../infra/db/pool.ts";

export interface AllowlistEntry {
  address: Address;
  label: string;
}

export interface AllowlistRow extends AllowlistEntry {
  agentId: string;
  createdAt: Date;
}

/** Entries of several agents at once, in the order they were added. */
export async function listAllowlists(
  sql: Sql,
  agentIds: readonly string[],
): Promise<Map<string, AllowlistRow[]>> {
  const { rows } = await sql.query<AllowlistRow>(
    `SELECT agent_id AS "agentId", address, label, created_at AS "createdAt"
       FROM allowlist_entries WHERE agent_id = ANY($1) ORDER BY created_at, address`,
    [agentIds],
  );
  const byAgent = new Map<string, AllowlistRow[]>(agentIds.map((id) => [id, []]));
  for (const row of rows) byAgent.get(row.agentId)?.push(row);
  return byAgent;
}

/** Adds entries; one that is there already gets the new label and keeps its date. */
export async function upsertAllowlist(
  sql: Sql,
  agentId: string,
  entries: readonly AllowlistEntry[],
): Promise<void> {
  await sql.query(
    `INSERT INTO allowlist_entries (agent_id, address, label)
     SELECT $1, entry.address, entry.label FROM unnest($2::text[], $3::text[]) AS entry (address, label)
     ON CONFLICT (agent_id, address) DO UPDATE SET label = excluded.label`,
    [agentId, entries.map(({ address }) => address), entries.map(({ label }) => label)],
  );
}

/** Removes all entries but these. */
export async function keepOnly(
  sql: Sql,
  agentId: string,
  addresses: readonly Address[],
): Promise<void> {
  await sql.query(
    "DELETE FROM allowlist_entries WHERE agent_id = $1 AND NOT (address = ANY($2::text[]))",
    [agentId, addresses],
  );
}

export async function removeFromAllowlist(
  sql: Sql,
  agentId: string,
  address: Address,
): Promise<boolean> {
  const { rowCount } = await sql.query(
    "DELETE FROM allowlist_entries WHERE agent_id = $1 AND address = $2",
    [agentId, address],
  );
  return rowCount === 1;
}
