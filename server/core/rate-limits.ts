/**
 * Rate limits: the table of limits, and the bucket that counts requests. A bucket holds `perMinute` requests and
 * refills evenly (GCRA, which stores one number: the time at which the bucket is full again), so waiting for the next
 * minute gains nothing.
 */

export interface RateLimit {
  perMinute: number;
  /** Counted in Postgres, for all replicas together. The others protect one process from a flood. */
  isShared: boolean;
}

const own = (perMinute: number): RateLimit => ({ perMinute, isShared: false });
const shared = (perMinute: number): RateLimit => ({ perMinute, isShared: true });

export const RATE_LIMITS = {
  /** Requests without credentials, by address. */
  address: own(3_000),
  /** Credentials that are not verified yet, by address; checked before the database is read. */
  unproven: own(300),
  agent: own(6_000),
  session: own(3_000),
  spend: shared(6_000),
  fetch: shared(3_000),
  verify: shared(600_000),
  settle: shared(120_000),
  /** Settlements that one payer signed, from any client. Gas is accounted for separately. */
  payer: own(30_000),
  "sign-in": shared(300),
  probe: shared(120),
  /** Requests that send something to a webhook, or change one. */
  webhook: shared(60),
  /** Clients that register themselves (OAuth), by address. */
  register: shared(60),
  /** Renewals of one connection's tokens. */
  renewal: own(60),
  faucet: own(600),
} as const satisfies Record<string, RateLimit>;

export type LimitName = keyof typeof RATE_LIMITS;
export type RateLimits = Record<LimitName, RateLimit>;

const MAX_PER_MINUTE = 10_000_000;

/** `spend=600,verify=60000`: an operator's changes to the table. */
export function readRateLimits(text: string | undefined): {
  limits: RateLimits;
  problems: string[];
} {
  const limits: RateLimits = { ...RATE_LIMITS };
  const problems: string[] = [];
  for (const entry of (text ?? "").split(",").map((part) => part.trim())) {
    if (entry === "") continue;
    const [, name = "", count = ""] = /^([a-z-]+)=([0-9]{1,9})$/.exec(entry) ?? [];
    const perMinute = Number(count);
    if (!Object.hasOwn(RATE_LIMITS, name))
      problems.push(
        `RATE_LIMITS has "${entry}"; it lists name=requests per minute of ${Object.keys(RATE_LIMITS).join(", ")}`,
      );
    else if (perMinute < 1 || perMinute > MAX_PER_MINUTE)
      problems.push(`RATE_LIMITS: ${name} must be from 1 to ${MAX_PER_MINUTE} a minute`);
    else limits[name as LimitName] = { ...limits[name as LimitName], perMinute };
  }
  return { limits, problems };
}

export interface Verdict {
  allowed: boolean;
  limit: number;
  remaining: number;
  /** The time until the bucket is full again. */
  resetMs: number;
  /** The time until one more request fits; 0 if this one was allowed. */
  retryAfterMs: number;
}

const MINUTE_MS = 60_000;

/** The state of a bucket that will be full at `fullAtMs`. */
export function verdictOf(
  perMinute: number,
  fullAtMs: number,
  nowMs: number,
  allowed: boolean,
): Verdict {
  const intervalMs = MINUTE_MS / perMinute;
  const resetMs = Math.max(0, fullAtMs - nowMs);
  return {
    allowed,
    limit: perMinute,
    remaining: Math.max(0, Math.floor((MINUTE_MS - resetMs) / intervalMs)),
    resetMs,
    retryAfterMs: allowed ? 0 : Math.max(1, resetMs + intervalMs - MINUTE_MS),
  };
}

/** Buckets of this process. Full ones, and those unused for longest, make room for new ones. */
export class OwnBuckets {
  readonly #fullAtMs = new Map<string, number>();
  readonly #maxBuckets: number;
  readonly #nowMs: () => number;

  constructor(maxBuckets = 100_000, nowMs: () => number = () => performance.now()) {
    this.#maxBuckets = maxBuckets;
    this.#nowMs = nowMs;
  }

  take(key: string, perMinute: number): Verdict {
    const nowMs = this.#nowMs();
    const intervalMs = MINUTE_MS / perMinute;
    const fullAtMs = Math.max(this.#fullAtMs.get(key) ?? 0, nowMs);
    // A tolerance, so that rounding does not cost the last request of a bucket.
    if (fullAtMs + intervalMs - nowMs > MINUTE_MS + 1e-6)
      return verdictOf(perMinute, fullAtMs, nowMs, false);
    this.#keep(key, fullAtMs + intervalMs);
    return verdictOf(perMinute, fullAtMs + intervalMs, nowMs, true);
  }

  /** Returns one request to the bucket, if it turns out not to count. */
  giveBack(key: string, perMinute: number): void {
    const fullAtMs = this.#fullAtMs.get(key);
    if (fullAtMs !== undefined) this.#fullAtMs.set(key, fullAtMs - MINUTE_MS / perMinute);
  }

  get size(): number {
    return this.#fullAtMs.size;
  }

  /** Keeps the map in the order of last use. */
  #keep(key: string, fullAtMs: number): void {
    this.#fullAtMs.delete(key);
    this.#fullAtMs.set(key, fullAtMs);
    if (this.#fullAtMs.size <= this.#maxBuckets) return;
    for (const oldest of this.#fullAtMs.keys()) {
      this.#fullAtMs.delete(oldest);
      return;
    }
  }
}
