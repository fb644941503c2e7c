/**
 * `maxAge`: returns a GET that this agent paid for recently, instead of paying again.
 * The key contains everything that we send of the caller's choice (method, URL, forwarded headers), so it
 * covers whatever the target's Vary names. The target's Cache-Control is ignored: the response is returned only
 * to the agent that paid for it.
 */
import { createHash } from "node:crypto";
import { formatAtomic } from "../../core/money.ts";
import { contentMembers } from "./answers.ts";
import type { CacheKey, Looked } from "./cache-store.ts";
import { keptForm, storedContent, type UpstreamContent } from "./content.ts";
import type { TargetRequest } from "./request.ts";

export interface AnswerCache {
  look(key: CacheKey, ages: { maxAgeSeconds: number; claimSeconds: number }): Promise<Looked>;
  read(found: CacheKey & { cachedAt: Date }): Promise<string | undefined>;
  keep(
    key: CacheKey & { claim: string },
    bought: { answer: string; paymentId: string },
  ): Promise<void>;
  release(key: CacheKey & { claim: string }): Promise<void>;
}

type FoundAnswer = Extract<Looked, { kind: "fresh" }> & { answer: string };

const FIRST_PAUSE_MS = 50;
const LONGEST_PAUSE_MS = 500;

export function cacheKey(agentId: string, { method, url, headers }: TargetRequest): CacheKey {
  const sent = Object.entries(headers).sort(([left], [right]) => (left < right ? -1 : 1));
  const key = createHash("sha256")
    .update(JSON.stringify([method, url.href, sent]))
    .digest();
  return { agentId, key };
}

/** One lookup in the cache, and the claim to fill it. */
export class CacheLookup {
  readonly #cache: AnswerCache;
  readonly #key: CacheKey;
  readonly #target: TargetRequest;
  #claim: string | undefined;

  constructor(cache: AnswerCache, agentId: string, target: TargetRequest) {
    this.#cache = cache;
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
      const looked = await this.#cache.look(this.#key, ages);
      if (looked.kind === "fresh") {
        await room();
        const answer = await this.#cache.read({ ...this.#key, cachedAt: looked.cachedAt });
        if (answer !== undefined) return { ...looked, answer };
        // It was just deleted.
        continue;
      }
      if (looked.kind === "claimed") this.#claim = looked.claim;
      if (looked.kind !== "busy") return undefined;
      await new Promise((resolve) => setTimeout(resolve, pauseMs));
    }
  }

  /** Caches only complete, successful responses. */
  async keep(seen: UpstreamContent, paymentId: string): Promise<void> {
    if (this.#claim === undefined || seen.truncated || seen.status < 200 || seen.status >= 300)
      return;
    const answer = JSON.stringify(keptForm(seen));
    await this.#cache.keep({ ...this.#key, claim: this.#claim }, { answer, paymentId });
    this.#claim = undefined;
  }

  async release(): Promise<void> {
    if (this.#claim !== undefined) await this.#cache.release({ ...this.#key, claim: this.#claim });
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
