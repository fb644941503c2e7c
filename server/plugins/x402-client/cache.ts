/**
 * `maxAge`: returns a GET that this agent paid for recently, instead of paying again.
 * The key contains everything that we send of the caller's choice (method, URL, forwarded headers), so it
 * covers whatever the target's Vary names. The target's Cache-Control is ignored: the response is returned only
 * to the agent that paid for it.
 */
import { createHash, randomUUID } from "node:crypto";
import { formatAtomic } from "../../core/money.ts";
import type { Sql } from "../../infra/db/pool.ts";
import { databaseNow, type Db } from "../../infra/db/prisma.ts";
import { contentMembers, keptForm, storedContent, type UpstreamContent } from "./content.ts";
import type { TargetRequest } from "./request.ts";

interface CacheKey {
  agentId: string;
  key: Uint8Array;
}

type CacheState =
  | { kind: "fresh"; cachedAt: Date; ageSeconds: number; paymentId: string | null }
  /** This caller must fetch it now, under this claim. */
  | { kind: "claimed"; claim: string }
  /** Another call is fetching it. */
  | { kind: "busy" }
  /** The agent is paused or has expired: nothing is returned from the cache. */
  | { kind: "none" };

type FoundAnswer = Extract<CacheState, { kind: "fresh" }> & { answer: string };

const FIRST_PAUSE_MS = 50;
const LONGEST_PAUSE_MS = 500;

function cacheKey(agentId: string, { method, url, headers }: TargetRequest): CacheKey {
  const sent = Object.entries(headers).sort(([left], [right]) => (left < right ? -1 : 1));
  const key = createHash("sha256")
    .update(JSON.stringify([method, url.href, sent]))
    .digest();
  return { agentId, key };
}

/** One lookup in the cache, and the claim to fill it. */
export class CacheLookup {
  readonly #pool: Sql;
  readonly #db: Db;
  readonly #key: CacheKey;
  readonly #target: TargetRequest;
  #claim: string | undefined;

  constructor({ pool, db }: { pool: Sql; db: Db }, agentId: string, target: TargetRequest) {
    this.#pool = pool;
    this.#db = db;
    this.#target = target;
    this.#key = cacheKey(agentId, target);
  }

  /**
   * Returns a fresh response, also one that another call is fetching now. Undefined: this call must fetch it.
   */
  async look(
    ages: { maxAgeSeconds: number; claimSeconds: number },
    room: () => Promise<void>,
  ): Promise<FoundAnswer | undefined> {
    // A repeated lookup by the same call, because the call it joined ended without a payment: the claim is held
    // already.
    if (this.#claim !== undefined) return undefined;
    // A claim of a dead process expires.
    for (let pauseMs = FIRST_PAUSE_MS; ; pauseMs = Math.min(pauseMs * 2, LONGEST_PAUSE_MS)) {
      const state = await readOrClaim(this.#pool, this.#key, ages);
      if (state.kind === "fresh") {
        await room();
        const answer = await readCached(this.#db, { ...this.#key, cachedAt: state.cachedAt });
        if (answer !== undefined) return { ...state, answer };
        // It was just deleted.
        continue;
      }
      if (state.kind === "claimed") this.#claim = state.claim;
      if (state.kind !== "busy") return undefined;
      await new Promise((resolve) => setTimeout(resolve, pauseMs));
    }
  }

  /** Caches only complete, successful responses. */
  async keep(seen: UpstreamContent, paymentId: string): Promise<void> {
    if (this.#claim === undefined || seen.truncated || seen.status < 200 || seen.status >= 300)
      return;
    const answer = JSON.stringify(keptForm(seen));
    await keepCached(this.#db, { ...this.#key, claim: this.#claim }, { answer, paymentId });
    this.#claim = undefined;
  }

  async release(): Promise<void> {
    if (this.#claim !== undefined)
      await releaseClaim(this.#db, { ...this.#key, claim: this.#claim });
  }

  bodyOf(
    { answer, cachedAt, ageSeconds, paymentId }: FoundAnswer,
    remaining: bigint,
  ): Record<string, unknown> {
    return {
      success: true,
      paid: false,
      amountPaid: "0",
      txHash: null,
      ...contentMembers(this.#target, storedContent(answer)),
      network: null,
      payTo: null,
      paymentId: null,
      delivered: true,
      cached: true,
      cachedAt: cachedAt.toISOString(),
      ageSeconds,
      ...(paymentId === null ? {} : { cachedPaymentId: paymentId }),
      remaining: formatAtomic(remaining),
    };
  }
}

interface CacheRow {
  isActive: boolean;
  isMine: boolean;
  cachedAt: Date | null;
  ageSeconds: number | null;
  paymentId: string | null;
}

/** Returns a fresh response, or lets the first caller fetch it for all concurrent callers on every replica. */
async function readOrClaim(
  sql: Sql,
  { agentId, key }: CacheKey,
  { maxAgeSeconds, claimSeconds }: { maxAgeSeconds: number; claimSeconds: number },
): Promise<CacheState> {
  const claim = randomUUID();
  // SQL: looks up and claims in one statement; the row decides between two concurrent claims.
  const { rows } = await sql.query<CacheRow>(
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
async function readCached(
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

async function keepCached(
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
async function releaseClaim(
  db: Db,
  { agentId, key, claim }: CacheKey & { claim: string },
): Promise<void> {
  const where = { agentId, key: Uint8Array.from(key), claim };
  await db.cachedAnswer.deleteMany({ where: { ...where, answer: null } });
  await db.cachedAnswer.updateMany({ where, data: { claim: null, claimedUntil: null } });
}
