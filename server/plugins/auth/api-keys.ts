import { createHash, randomBytes } from "node:crypto";
import { crc32 } from "node:zlib";
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

/**
 * Agent keys: `purser_`, 192 random bits in 33 base-62 digits, then a CRC-32 in 6 more. The checksum
 * refuses typos and truncated pastes without asking the database, and lets secret scanners be sure.
 */
export const API_KEY_PREFIX = "purser_";
const SECRET_BYTES = 24;
const SECRET_DIGITS = 33;
const CHECKSUM_DIGITS = 6;
const SHAPE = new RegExp(`^${API_KEY_PREFIX}[0-9A-Za-z]{${SECRET_DIGITS + CHECKSUM_DIGITS}}$`);
const ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

export interface NewApiKey {
  /** Shown once, never stored. */
  apiKey: string;
  keyHash: Buffer;
  /** What a person may recognize it by. */
  prefix: string;
  last4: string;
}

export function createApiKey(): NewApiKey {
  const secret = toBase62(BigInt(`0x${randomBytes(SECRET_BYTES).toString("hex")}`), SECRET_DIGITS);
  const apiKey = `${API_KEY_PREFIX}${secret}${checksum(secret)}`;
  return {
    apiKey,
    keyHash: hashApiKey(apiKey),
    prefix: apiKey.slice(0, API_KEY_PREFIX.length + 4),
    last4: apiKey.slice(-4),
  };
}

/** Could this be one of ours? False means: certainly not, no query needed. */
export function isApiKeyShape(text: string): boolean {
  if (!SHAPE.test(text)) return false;
  const secret = text.slice(API_KEY_PREFIX.length, -CHECKSUM_DIGITS);
  return checksum(secret) === text.slice(-CHECKSUM_DIGITS);
}

/** A key has 192 random bits, so a plain hash cannot be searched backwards. */
export const hashApiKey = (apiKey: string): Buffer => createHash("sha256").update(apiKey).digest();

const checksum = (secret: string): string =>
  toBase62(BigInt(crc32(`${API_KEY_PREFIX}${secret}`)), CHECKSUM_DIGITS);

function toBase62(value: bigint, digits: number): string {
  let rest = value;
  let text = "";
  for (let index = 0; index < digits; index += 1) {
    text = (ALPHABET[Number(rest % 62n)] ?? "") + text;
    rest /= 62n;
  }
  return text;
}

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
  /** sites: x402-fetch reaches its payees' sites and nothing else. */
  fetch: "any" | "sites";
  expiresAt: Date | null;
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

/** The one query of every agent request: by the unique index of the hash, prepared once per connection. */
const SHARED = { maxBatch: 64, maxInFlight: 2 };
const FIND_HOLDERS = {
  name: "api-key-holders",
  text: `SELECT k.key_hash AS "keyHash", k.id AS "apiKeyId", k.revoked_at IS NOT NULL AS revoked,
                coalesce(k.expires_at <= now(), false) AS "keyExpired",
                coalesce(k.last_used_at < now() - interval '1 minute', true) AS "isUseStale",
                a.id, a.owner_id AS "ownerId", a.name, a.wallet_address AS "walletAddress",
                a.network, a.status, a.fetch_scope AS fetch, a.expires_at AS "expiresAt"
           FROM api_keys k JOIN agents a ON a.id = k.agent_id
          WHERE k.key_hash = ANY($1::bytea[])`,
};

/** Requests that come together share a statement; each waits for one that began after it came. */
export function keyHolders(sql: Sql): (keyHash: Buffer) => Promise<KeyHolder | undefined> {
  const lookups = new Coalescer<Buffer, KeyHolder | undefined>(async (hashes) => {
    // SQL: every request of an agent asks it; prepared, joined, and for all who ask together.
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
  // SQL: SKIP LOCKED, so that a busy key's requests never wait for one another.
  await sql.query(
    `UPDATE api_keys SET last_used_at = now()
      WHERE id = (SELECT id FROM api_keys
                   WHERE id = $1 AND coalesce(last_used_at < now() - interval '1 minute', true)
                     FOR UPDATE SKIP LOCKED)`,
    [apiKeyId],
  );
}

const HIDDEN = { keyHash: true } as const;
type Stored = Prisma.ApiKeyGetPayload<{ omit: typeof HIDDEN }>;

const rowOf = (stored: Stored, now: Date): ApiKeyRow => ({
  ...stored,
  ...placeOf(stored),
  expired: stored.expiresAt !== null && stored.expiresAt <= now,
});

export interface NewKeyRow {
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

/** Inside a change of the agent, whose row is held: every change of a key goes through there. */
export async function findApiKey(
  tx: Db,
  agentId: string,
  keyId: string,
): Promise<ApiKeyRow | undefined> {
  const stored = await tx.apiKey.findUnique({ where: { id: keyId, agentId }, omit: HIDDEN });
  return stored === null ? undefined : rowOf(stored, await databaseNow(tx));
}

/** One key, or all of the agent. Answers those that this ended. */
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

/** The old key of a rotation: ends after the grace, or at its own expiry if that comes first. */
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
      where: { agentId, ...where },
      omit: HIDDEN,
      ...order,
    }),
  );
  return rows.map((row) => rowOf(row, now));
}
