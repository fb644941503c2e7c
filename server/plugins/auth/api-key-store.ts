import type { Address } from "viem";
import type { PageRequest } from "../../core/paging.ts";
import { beforePlace, newestFirst, placeParams } from "../../infra/db/keyset.ts";
import { Coalescer } from "../../infra/chain/coalesced-reads.ts";
import type { Sql } from "../../infra/db/pool.ts";

/** What a request's key says about who is asking. */
export interface KeyHolder {
  apiKeyId: string;
  revoked: boolean;
  keyExpired: boolean;
  /** Its last use was noted more than a minute ago, or never. */
  isUseStale: boolean;
  id: string;
  ownerId: string;
  name: string;
  walletAddress: Address;
  network: string;
  status: "active" | "paused" | "archived";
  expiresAt: Date | null;
}

export interface ApiKeyRow {
  id: string;
  agentId: string;
  label: string;
  prefix: string;
  last4: string;
  createdAt: Date;
  createdAtMicros: bigint;
  expiresAt: Date | null;
  revokedAt: Date | null;
  lastUsedAt: Date | null;
  rotatedToId: string | null;
  expired: boolean;
}

/** The one query of every agent request: by the unique index of the hash, prepared once per connection. */
const SHARED = { maxBatch: 64, maxInFlight: 2 };
const FIND_HOLDERS = {
  name: "api-key-holders",
  text: `SELECT k.key_hash AS "keyHash", k.id AS "apiKeyId", k.revoked_at IS NOT NULL AS revoked,
                coalesce(k.expires_at <= now(), false) AS "keyExpired",
                coalesce(k.last_used_at < now() - interval '1 minute', true) AS "isUseStale",
                a.id, a.owner_id AS "ownerId", a.name, a.wallet_address AS "walletAddress",
                a.network, a.status, a.expires_at AS "expiresAt"
           FROM api_keys k JOIN agents a ON a.id = k.agent_id
          WHERE k.key_hash = ANY($1::bytea[])`,
};

/** Requests that come together share a statement; each waits for one that began after it came. */
export function keyHolders(sql: Sql): (keyHash: Buffer) => Promise<KeyHolder | undefined> {
  const lookups = new Coalescer<Buffer, KeyHolder | undefined>(async (hashes) => {
    const { rows } = await sql.query<KeyHolder & { keyHash: Buffer }>({
      ...FIND_HOLDERS,
      values: [hashes],
    });
    const byHash = new Map(
      rows.map(({ keyHash, ...holder }) => [keyHash.toString("hex"), holder] as const),
    );
    return hashes.map((hash) => byHash.get(hash.toString("hex")));
  }, SHARED);
  return (keyHash) => lookups.ask(keyHash);
}

/** At most once a minute per key, whoever asks; never waits for a row that somebody holds. */
export async function noteKeyUse(sql: Sql, apiKeyId: string): Promise<void> {
  await sql.query(
    `UPDATE api_keys SET last_used_at = now()
      WHERE id = (SELECT id FROM api_keys
                   WHERE id = $1 AND coalesce(last_used_at < now() - interval '1 minute', true)
                     FOR UPDATE SKIP LOCKED)`,
    [apiKeyId],
  );
}

const COLUMNS = `k.agent_id AS "agentId", k.label, k.prefix, k.last4, k.created_at AS "createdAt",
  k.expires_at AS "expiresAt", k.revoked_at AS "revokedAt", k.last_used_at AS "lastUsedAt",
  k.rotated_to_id AS "rotatedToId", coalesce(k.expires_at <= now(), false) AS expired,
  (extract(epoch FROM k.created_at) * 1000000)::bigint AS "createdAtMicros", k.id`;

export interface NewKeyRow {
  id: string;
  agentId: string;
  keyHash: Buffer;
  prefix: string;
  last4: string;
  label: string;
  expiresAt: Date | null;
}

export async function insertApiKey(sql: Sql, key: NewKeyRow): Promise<ApiKeyRow> {
  const { rows } = await sql.query<ApiKeyRow>(
    `INSERT INTO api_keys AS k (id, agent_id, key_hash, prefix, last4, label, expires_at)
     VALUES ($1, $2, $3, $4, $5, $6, $7) RETURNING ${COLUMNS}`,
    [key.id, key.agentId, key.keyHash, key.prefix, key.last4, key.label, key.expiresAt],
  );
  return rows[0] as ApiKeyRow;
}

export async function findApiKey(
  sql: Sql,
  agentId: string,
  keyId: string,
): Promise<ApiKeyRow | undefined> {
  const { rows } = await sql.query<ApiKeyRow>(
    `SELECT ${COLUMNS} FROM api_keys k WHERE k.agent_id = $1 AND k.id = $2 FOR UPDATE`,
    [agentId, keyId],
  );
  return rows[0];
}

export async function revokeApiKeys(
  sql: Sql,
  agentId: string,
  keyId: string | undefined,
): Promise<ApiKeyRow[]> {
  const { rows } = await sql.query<ApiKeyRow>(
    `UPDATE api_keys k SET revoked_at = now()
      WHERE k.agent_id = $1 AND ($2::text IS NULL OR k.id = $2) AND k.revoked_at IS NULL
      RETURNING ${COLUMNS}`,
    [agentId, keyId ?? null],
  );
  return rows;
}

/** The old key of a rotation: ends after the grace, or at its own expiry if that comes first. */
export async function replaceApiKey(
  sql: Sql,
  args: { keyId: string; newKeyId: string; graceSeconds: number },
): Promise<ApiKeyRow> {
  const { rows } = await sql.query<ApiKeyRow>(
    `UPDATE api_keys k
        SET rotated_to_id = $2,
            expires_at = CASE WHEN $3 > 0 THEN least(k.expires_at, now() + make_interval(secs => $3)) ELSE k.expires_at END,
            revoked_at = CASE WHEN $3 > 0 THEN k.revoked_at ELSE now() END
      WHERE k.id = $1 RETURNING ${COLUMNS}`,
    [args.keyId, args.newKeyId, args.graceSeconds],
  );
  return rows[0] as ApiKeyRow;
}

export async function listApiKeys(
  sql: Sql,
  agentId: string,
  page: PageRequest,
): Promise<ApiKeyRow[]> {
  const { rows } = await sql.query<ApiKeyRow>(
    `SELECT ${COLUMNS} FROM api_keys k WHERE k.agent_id = $1 AND ${beforePlace("k", 2)}
      ${newestFirst("k")} LIMIT $4`,
    [agentId, ...placeParams(page), page.limit + 1],
  );
  return rows;
}
