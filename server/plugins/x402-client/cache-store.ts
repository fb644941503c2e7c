/**
 * Cache of paid responses in the database: for repeats by the same agent only, up to a quota of bytes, for at
 * most a day.
 */
import { randomUUID } from "node:crypto";
import type { Sql } from "../../infra/db/pool.ts";
import { databaseNow, hoursBefore, type Db } from "../../infra/db/prisma.ts";

export interface CacheKey {
  agentId: string;
  key: Uint8Array;
}

export type Looked =
  | { kind: "fresh"; cachedAt: Date; ageSeconds: number; paymentId: string | null }
  /** This caller must fetch it now, under this claim. */
  | { kind: "claimed"; claim: string }
  /** Another call is fetching it. */
  | { kind: "busy" }
  /** The agent is paused or has expired: nothing is returned from the cache. */
  | { kind: "none" };

interface LookedRow {
  isActive: boolean;
  isMine: boolean;
  cachedAt: Date | null;
  ageSeconds: number | null;
  paymentId: string | null;
}

/** Returns a fresh response, or lets the first caller fetch it for all concurrent callers on every replica. */
export async function readOrClaim(
  sql: Sql,
  { agentId, key }: CacheKey,
  { maxAgeSeconds, claimSeconds }: { maxAgeSeconds: number; claimSeconds: number },
): Promise<Looked> {
  const claim = randomUUID();
  // SQL: looks up and claims in one statement; the row decides between two concurrent claims.
  const { rows } = await sql.query<LookedRow>(
    `WITH agent AS (
       SELECT 1 FROM agents a WHERE a.id = $1 AND a.status = 'active'
          AND (a.expires_at IS NULL OR a.expires_at > clock_timestamp())),
     fresh AS (
       SELECT c.cached_at, c.payment_id FROM cached_answers c, agent
        WHERE c.agent_id = $1 AND c.key = $2
          AND c.cached_at > clock_timestamp() - make_interval(secs => $3)),
     mine AS (
       INSERT INTO cached_answers AS c (agent_id, key, claim, claimed_until)
       SELECT $1, $2, $4, clock_timestamp() + make_interval(secs => $5)
         FROM agent WHERE NOT EXISTS (SELECT 1 FROM fresh)
       ON CONFLICT (agent_id, key) DO UPDATE
          SET claim = EXCLUDED.claim, claimed_until = EXCLUDED.claimed_until, created_at = clock_timestamp()
        WHERE (c.claim IS NULL OR c.claimed_until < clock_timestamp())
          AND (c.cached_at IS NULL OR c.cached_at <= clock_timestamp() - make_interval(secs => $3))
       RETURNING 1)
     SELECT EXISTS (SELECT 1 FROM agent) AS "isActive", EXISTS (SELECT 1 FROM mine) AS "isMine",
            fresh.cached_at AS "cachedAt", fresh.payment_id AS "paymentId",
            greatest(0, floor(extract(epoch FROM clock_timestamp() - fresh.cached_at)))::int AS "ageSeconds"
       FROM (SELECT 1) AS one LEFT JOIN fresh ON true`,
    [agentId, Buffer.from(key), maxAgeSeconds, claim, claimSeconds],
  );
  const row = rows[0];
  if (row?.isActive !== true) return { kind: "none" };
  const { cachedAt, ageSeconds, paymentId } = row;
  if (cachedAt !== null && ageSeconds !== null)
    return { kind: "fresh", cachedAt, ageSeconds, paymentId };
  return row.isMine ? { kind: "claimed", claim } : { kind: "busy" };
}

/**
 * Reads the response that was found, or a newer one that replaced it. Undefined if it was deleted meanwhile.
 */
export async function readCached(
  db: Db,
  { agentId, key, cachedAt }: CacheKey & { cachedAt: Date },
): Promise<string | undefined> {
  const row = await db.cachedAnswer.findFirst({
    where: { agentId, key: Uint8Array.from(key), cachedAt: { gte: cachedAt } },
    select: { answer: true },
  });
  return row?.answer ?? undefined;
}

/** Per agent; the oldest are deleted first. */
export const CACHED_BYTES = 64 * 1024 * 1024;
const CACHED_ANSWERS = 1_000;

export async function keepCached(
  db: Db,
  { agentId, key, claim }: CacheKey & { claim: string },
  { answer, paymentId }: { answer: string; paymentId: string },
): Promise<void> {
  const bytes = Buffer.byteLength(answer);
  if (bytes > CACHED_BYTES) return;
  const now = await databaseNow(db);
  await db.cachedAnswer.updateMany({
    where: { agentId, key: Uint8Array.from(key), claim },
    data: {
      answer,
      bytes,
      paymentId,
      cachedAt: now,
      createdAt: now,
      claim: null,
      claimedUntil: null,
    },
  });
  const kept = await db.cachedAnswer.findMany({
    where: { agentId, cachedAt: { not: null } },
    select: { key: true, bytes: true, cachedAt: true },
    orderBy: { cachedAt: "desc" },
    take: CACHED_ANSWERS + 1,
  });
  let total = 0;
  const last = kept.findIndex((one, index) => {
    total += Number(one.bytes);
    return total > CACHED_BYTES || index === CACHED_ANSWERS;
  });
  const tooOld = kept[last]?.cachedAt;
  if (tooOld)
    await db.cachedAnswer.deleteMany({
      where: { agentId, cachedAt: { lte: tooOld }, claim: null },
    });
}

/**
 * Called when the response was not bought: the next call fetches it. An older response stays, for callers that
 * accept its age.
 */
export async function releaseClaim(
  db: Db,
  { agentId, key, claim }: CacheKey & { claim: string },
): Promise<void> {
  const where = { agentId, key: Uint8Array.from(key), claim };
  await db.cachedAnswer.deleteMany({ where: { ...where, answer: null } });
  await db.cachedAnswer.updateMany({ where, data: { claim: null, claimedUntil: null } });
}

/** The longest `maxAge`. */
const KEPT_HOURS = 24;
const BATCH = 500;

export async function forgetCached(db: Db): Promise<number> {
  const before = hoursBefore(await databaseNow(db), KEPT_HOURS);
  let forgotten = 0;
  for (;;) {
    const old = await db.cachedAnswer.findMany({
      where: { createdAt: { lt: before } },
      select: { agentId: true, key: true },
      orderBy: { createdAt: "asc" },
      take: BATCH,
    });
    const OR = old.map(({ agentId, key }) => ({ agentId, key }));
    if (OR.length > 0)
      forgotten += (await db.cachedAnswer.deleteMany({ where: { OR, createdAt: { lt: before } } }))
        .count;
    if (old.length < BATCH) return forgotten;
  }
}
