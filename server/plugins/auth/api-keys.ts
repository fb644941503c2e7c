import { randomBytes } from "node:crypto";
import type { Address } from "viem";
import type { PageRequest, Place } from "../../core/paging.ts";
import { Coalescer } from "../../core/shared-answers.ts";
import {
  placeOf,
  readKeyset,
  databaseNow,
  secondsAfter,
  type Db,
  type Prisma,
} from "../../infra/db/prisma.ts";
import type { Sql } from "../../infra/db/pool.ts";
import { API_KEY_PREFIX, createKey } from "./secrets.ts";

interface NewSecret {
  keyHash: Buffer;
  /** The parts by which a person can recognize the key. */
  prefix: string;
  last4: string;
}

interface NewApiKey extends NewSecret {
  /** Shown once, never stored. */
  apiKey: string;
}

export function createApiKey(cell?: string): NewApiKey {
  const { key: apiKey, facts } = createKey(API_KEY_PREFIX, cell);
  return { apiKey, ...facts };
}

/** A placeholder key of an OAuth connection: its tokens are used instead. The hash is random, so no key matches it. */
export const createConnectionKey = (): NewSecret => ({
  keyHash: randomBytes(32),
  prefix: "oauth",
  last4: "",
});

/** The agent that a key belongs to, and the state of the key. */
export interface KeyHolder {
  apiKeyId: string;
  revoked: boolean;
  keyExpired: boolean;
  /** Its last use was recorded more than a minute ago, or never. */
  isUseStale: boolean;
  id: string;
  ownerId: string;
  name: string;
  walletAddress: Address;
  network: string;
  status: "active" | "paused" | "archived";
  /** sites: x402-fetch may only request its payees' sites. */
  fetch: "any" | "sites";
  /** Its owner allows money in payment channels. */
  usesChannels: boolean;
  /** Its owner never pays some payee or site. */
  hasDenied: boolean;
  expiresAt: Date | null;
  /** The cell to which its owner moves or moved, and that cell's pages. */
  movedTo: string | null;
  movedUrl: string | null;
}

export interface ApiKeyRow extends Place {
  agentId: string;
  label: string;
  prefix: string;
  last4: string;
  createdAt: Date;
  expiresAt: Date | null;
  revokedAt: Date | null;
  lastUsedAt: Date | null;
  rotatedToId: string | null;
  expired: boolean;
}

const SHARED = { maxBatch: 64, maxInFlight: 2 };
const HOLDER = `k.id AS "apiKeyId", k.revoked_at IS NOT NULL AS revoked,
                coalesce(k.last_used_at < now() - interval '1 minute', true) AS "isUseStale",
                a.id, a.owner_id AS "ownerId", a.name, a.wallet_address AS "walletAddress",
                a.network, a.status, a.fetch_scope AS fetch, a.channel_held > 0 AS "usesChannels",
                EXISTS (SELECT FROM denied_payees d WHERE d.owner_id = a.owner_id) AS "hasDenied",
                a.expires_at AS "expiresAt", o.moved_to AS "movedTo", o.moved_url AS "movedUrl"`;
/** The query of every agent request: by the unique index of the hash, prepared once per connection. */
const BY_KEY = {
  name: "api-key-holders",
  text: `SELECT k.key_hash AS "hash", coalesce(k.expires_at <= now(), false) AS "keyExpired", ${HOLDER}
           FROM api_keys k JOIN agents a ON a.id = k.agent_id JOIN owners o ON o.id = a.owner_id
          WHERE k.key_hash = ANY($1::bytea[])`,
};
/** The same for an access token, which belongs to a key and expires before it. */
const BY_TOKEN = {
  name: "access-token-holders",
  text: `SELECT t.hash, t.expires_at <= now() OR coalesce(k.expires_at <= now(), false) AS "keyExpired", ${HOLDER}
           FROM oauth_tokens t JOIN api_keys k ON k.id = t.key_id JOIN agents a ON a.id = k.agent_id
           JOIN owners o ON o.id = a.owner_id
          WHERE t.hash = ANY($1::bytea[]) AND t.kind = 'access'`,
};

type FindHolder = (hash: Buffer) => Promise<KeyHolder | undefined>;

export const keyHolders = (sql: Sql): FindHolder => holders(sql, BY_KEY);
export const tokenHolders = (sql: Sql): FindHolder => holders(sql, BY_TOKEN);

/** Concurrent requests share a statement; each waits for one that started after the request arrived. */
function holders(sql: Sql, statement: { name: string; text: string }): FindHolder {
  const lookups = new Coalescer<Buffer, KeyHolder | undefined>(async (hashes) => {
    // SQL: part of every agent request; prepared, joined, and shared by concurrent requests.
    const { rows } = await sql.query<KeyHolder & { hash: Buffer }>({
      ...statement,
      values: [hashes],
    });
    const byHash = new Map(
      rows.map(({ hash, ...holder }) => [hash.toString("hex"), holder] as const),
    );
    return hashes.map((hash) => byHash.get(hash.toString("hex")));
  }, SHARED);
  return (hash) => lookups.fetch(hash);
}

/** At most once a minute per key; never waits for a locked row. */
export async function noteKeyUse(sql: Sql, apiKeyId: string): Promise<void> {
  // SQL: SKIP LOCKED, so that a busy key's requests never wait for one another.
  await sql.query(
    `UPDATE api_keys SET last_used_at = now()
      WHERE id = (SELECT id FROM api_keys
                   WHERE id = $1 AND coalesce(last_used_at < now() - interval '1 minute', true)
                     FOR UPDATE SKIP LOCKED)`,
    [apiKeyId],
  );
}

export const HIDDEN = { keyHash: true } as const;
type Stored = Prisma.ApiKeyGetPayload<{ omit: typeof HIDDEN }>;

export const rowOf = (stored: Stored, now: Date): ApiKeyRow => ({
  ...stored,
  ...placeOf(stored),
  expired: stored.expiresAt !== null && stored.expiresAt <= now,
});

interface NewKeyRow {
  id: string;
  agentId: string;
  keyHash: Buffer;
  prefix: string;
  last4: string;
  label: string;
  expiresAt: Date | null;
}

export async function insertApiKey(db: Db, key: NewKeyRow): Promise<ApiKeyRow> {
  const now = await databaseNow(db);
  const stored = await db.apiKey.create({
    data: { ...key, keyHash: Uint8Array.from(key.keyHash), createdAt: now },
    omit: HIDDEN,
  });
  return rowOf(stored, now);
}

/** An API key, but not the key of a connection. Runs in a change of the agent, whose row is locked. */
export async function findApiKey(
  tx: Db,
  agentId: string,
  keyId: string,
): Promise<ApiKeyRow | undefined> {
  const where = { id: keyId, agentId, connection: null };
  const stored = await tx.apiKey.findUnique({ where, omit: HIDDEN });
  return stored === null ? undefined : rowOf(stored, await databaseNow(tx));
}

/** Revokes one key, or all keys of the agent. Returns those that were revoked now. */
export async function revokeApiKeys(
  db: Db,
  agentId: string,
  keyId: string | undefined,
): Promise<ApiKeyRow[]> {
  const now = await databaseNow(db);
  const stored = await db.apiKey.updateManyAndReturn({
    where: { agentId, revokedAt: null, ...(keyId === undefined ? {} : { id: keyId }) },
    data: { revokedAt: now },
    omit: HIDDEN,
  });
  return stored.map((key) => rowOf(key, now));
}

/** The old key of a rotation: expires after the grace period, or at its own expiry if that comes first. */
export async function replaceApiKey(
  tx: Db,
  args: { old: ApiKeyRow; newKeyId: string; graceSeconds: number },
): Promise<ApiKeyRow> {
  const { old, newKeyId, graceSeconds } = args;
  const now = await databaseNow(tx);
  const graceEnd = secondsAfter(now, graceSeconds);
  const expiresAt = old.expiresAt !== null && old.expiresAt < graceEnd ? old.expiresAt : graceEnd;
  const stored = await tx.apiKey.update({
    where: { id: old.id },
    data: { rotatedToId: newKeyId, ...(graceSeconds > 0 ? { expiresAt } : { revokedAt: now }) },
    omit: HIDDEN,
  });
  return rowOf(stored, now);
}

export async function listApiKeys(
  db: Db,
  agentId: string,
  page: PageRequest,
): Promise<ApiKeyRow[]> {
  const now = await databaseNow(db);
  const rows = await readKeyset(page, (where, order) =>
    db.apiKey.findMany({
      where: { agentId, connection: null, ...where },
      omit: HIDDEN,
      ...order,
    }),
  );
  return rows.map((row) => rowOf(row, now));
}
