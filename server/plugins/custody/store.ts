import type { Address } from "viem";
import type { StoredWallet } from "./custody.ts";
import type { SealedWallet } from "./envelope.ts";
import { Coalescer } from "../../infra/chain/coalesced-reads.ts";
import type { Sql } from "../../infra/db/pool.ts";

const SHARED = { maxBatch: 64, maxInFlight: 2 };

export async function insertWallet(
  sql: Sql,
  args: { agentId: string; address: Address; sealed: SealedWallet },
): Promise<void> {
  const { kid, wrappedDataKey, ciphertext } = args.sealed;
  await sql.query(
    `INSERT INTO agent_wallets (agent_id, address, kid, wrapped_data_key, ciphertext)
     VALUES ($1, $2, $3, $4, $5)`,
    [args.agentId, args.address, kid, wrappedDataKey, ciphertext],
  );
}

const COLUMNS = `address, kid, wrapped_data_key AS "wrappedDataKey", ciphertext`;

/** Read anew for each signature; signatures that are wanted together share a statement. */
export function walletsOf(sql: Sql): (agentId: string) => Promise<StoredWallet | undefined> {
  const lookups = new Coalescer<string, StoredWallet | undefined>(async (agentIds) => {
    const { rows } = await sql.query<StoredWallet & { agentId: string }>({
      name: "agent-wallets",
      text: `SELECT agent_id AS "agentId", ${COLUMNS} FROM agent_wallets WHERE agent_id = ANY($1::text[])`,
      values: [agentIds],
    });
    const byAgent = new Map(rows.map(({ agentId, ...wallet }) => [agentId, wallet] as const));
    return agentIds.map((agentId) => byAgent.get(agentId));
  }, SHARED);
  return (agentId) => lookups.ask(agentId);
}

export interface WalletToRewrap extends StoredWallet {
  agentId: string;
}

/** Some wallets not yet under the active key, locked; those another run holds are skipped. */
export async function lockWalletsNotUnder(
  sql: Sql,
  activeKid: string,
  limit: number,
): Promise<WalletToRewrap[]> {
  const { rows } = await sql.query<WalletToRewrap>(
    `SELECT agent_id AS "agentId", ${COLUMNS} FROM agent_wallets
      WHERE kid <> $1 ORDER BY agent_id LIMIT $2 FOR UPDATE SKIP LOCKED`,
    [activeKid, limit],
  );
  return rows;
}

/** Only the wrappings change, and only of what was read. */
export async function updateWrappings(
  sql: Sql,
  wallets: readonly { agentId: string; fromKid: string; sealed: SealedWallet }[],
): Promise<void> {
  const { rowCount } = await sql.query(
    `UPDATE agent_wallets w SET kid = r.kid, wrapped_data_key = r.wrapped, updated_at = now()
       FROM unnest($1::text[], $2::text[], $3::text[], $4::bytea[]) AS r (agent_id, from_kid, kid, wrapped)
      WHERE w.agent_id = r.agent_id AND w.kid = r.from_kid`,
    [
      wallets.map(({ agentId }) => agentId),
      wallets.map(({ fromKid }) => fromKid),
      wallets.map(({ sealed }) => sealed.kid),
      wallets.map(({ sealed }) => sealed.wrappedDataKey),
    ],
  );
  if (rowCount !== wallets.length) throw new Error("a wallet changed while it was locked");
}

export async function countWalletsByKid(sql: Sql): Promise<Map<string, number>> {
  const { rows } = await sql.query<{ kid: string; count: bigint }>(
    "SELECT kid, count(*) AS count FROM agent_wallets GROUP BY kid",
  );
  return new Map(rows.map(({ kid, count }) => [kid, Number(count)]));
}

/** The master keys wallets are under, by as many index steps as there are keys. */
export async function kidsInUse(sql: Sql): Promise<string[]> {
  const { rows } = await sql.query<{ kid: string }>(
    `WITH RECURSIVE kids AS (
       SELECT min(kid) AS kid FROM agent_wallets
       UNION ALL
       SELECT (SELECT min(w.kid) FROM agent_wallets w WHERE w.kid > kids.kid) FROM kids WHERE kids.kid IS NOT NULL
     ) SELECT kid FROM kids WHERE kid IS NOT NULL`,
  );
  return rows.map(({ kid }) => kid);
}
