/**
 * The buckets that count requests. A bucket holds `perMinute` requests and refills evenly (GCRA, which stores one
 * number: the time at which the bucket is full again), so waiting for the next minute gains nothing.
 */
import { Coalescer } from "../../core/shared-answers.ts";
import type { Sql } from "../../infra/db/pool.ts";

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
function verdictOf(perMinute: number, fullAtMs: number, nowMs: number, allowed: boolean): Verdict {
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

export interface LeaseRequest {
  key: string;
  wanted: number;
  perMinute: number;
}
export interface Lease {
  granted: number;
  /** The time until the bucket in Postgres is full again. */
  fullInMs: number;
}

interface Bucket {
  /** Leased and not used yet. */
  left: number;
  leasedAtMs: number;
  /** As of the last lease. */
  fullAtMs: number;
  /** The bucket was empty: no request is allowed before this time. */
  emptyUntilMs: number;
  nextSize: number;
  waiting: number;
  leasing: Promise<void> | undefined;
}

/** An unused lease expires after this: a process that was suspended must not use old requests when it resumes. */
const LEASE_MS = 10_000;
/** A lease used up sooner than this doubles the next one. */
const SOON_MS = 1_000;
const FIRST_LEASE = 8;
/** A process leases at most this fraction of a bucket. */
const MAX_SHARE = 16;
const MAX_BUCKETS = 100_000;

/**
 * Buckets that all replicas share exactly: every request that a process allows was first taken from the bucket's row
 * in Postgres. A process takes a few at a time (a lease), more for a busy caller, and requests the next lease before
 * the last one is used up. So a busy caller's requests wait for no round trip, and a rare caller's for one.
 */
export class SharedBuckets {
  readonly #lease: (request: LeaseRequest) => Promise<Lease>;
  readonly #onTrouble: (error: unknown) => void;
  readonly #buckets = new Map<string, Bucket>();
  /** Used while Postgres is unavailable: payments need Postgres anyway, and everything else is counted per process. */
  readonly #own = new OwnBuckets();

  constructor(
    lease: (request: LeaseRequest) => Promise<Lease>,
    onTrouble: (error: unknown) => void,
  ) {
    this.#lease = lease;
    this.#onTrouble = onTrouble;
  }

  /** Synchronous if a lease is available, otherwise after the next one. */
  take(key: string, perMinute: number): Verdict | Promise<Verdict> {
    return this.#takeLeft(this.#bucket(key), key, perMinute) ?? this.#takeLater(key, perMinute);
  }

  #takeLeft(bucket: Bucket, key: string, perMinute: number): Verdict | undefined {
    const nowMs = performance.now();
    if (nowMs - bucket.leasedAtMs > LEASE_MS) bucket.left = 0;
    if (bucket.left > 0) {
      bucket.left -= 1;
      if (bucket.left * 4 < bucket.nextSize && bucket.nextSize > FIRST_LEASE)
        void this.#renew(bucket, key, perMinute).catch(() => undefined);
      const verdict = verdictOf(perMinute, bucket.fullAtMs, nowMs, true);
      return { ...verdict, remaining: verdict.remaining + bucket.left };
    }
    if (nowMs < bucket.emptyUntilMs) return verdictOf(perMinute, bucket.fullAtMs, nowMs, false);
    return undefined;
  }

  async #takeLater(key: string, perMinute: number): Promise<Verdict> {
    const bucket = this.#bucket(key);
    bucket.waiting += 1;
    try {
      for (;;) {
        await this.#renew(bucket, key, perMinute);
        const verdict = this.#takeLeft(bucket, key, perMinute);
        if (verdict !== undefined) return verdict;
      }
    } catch (error) {
      this.#onTrouble(error);
      return this.#own.take(key, perMinute);
    } finally {
      bucket.waiting -= 1;
    }
  }

  /** One renewal at a time per bucket; concurrent requests wait for it. */
  #renew(bucket: Bucket, key: string, perMinute: number): Promise<void> {
    bucket.leasing ??= this.#requestLease(bucket, key, perMinute).finally(() => {
      bucket.leasing = undefined;
    });
    return bucket.leasing;
  }

  async #requestLease(bucket: Bucket, key: string, perMinute: number): Promise<void> {
    const requestedAtMs = performance.now();
    const most = Math.max(1, Math.floor(perMinute / MAX_SHARE));
    const wasSoon = requestedAtMs - bucket.leasedAtMs < SOON_MS;
    bucket.nextSize = Math.min(most, wasSoon ? bucket.nextSize * 2 : FIRST_LEASE);
    const wanted = Math.max(1, Math.min(most, Math.max(bucket.nextSize, bucket.waiting)));
    const { granted, fullInMs } = await this.#lease({ key, wanted, perMinute });
    const nowMs = performance.now();
    // The rest of a lease that was renewed early is used as well.
    bucket.left = granted + (nowMs - bucket.leasedAtMs > LEASE_MS ? 0 : bucket.left);
    bucket.leasedAtMs = requestedAtMs;
    bucket.fullAtMs = nowMs + fullInMs;
    const { retryAfterMs } = verdictOf(perMinute, bucket.fullAtMs, nowMs, false);
    bucket.emptyUntilMs = granted === 0 ? nowMs + retryAfterMs : 0;
  }

  /** In the order of last use; the bucket unused for longest makes room. */
  #bucket(key: string): Bucket {
    const known = this.#buckets.get(key);
    const bucket = known ?? {
      left: 0,
      leasedAtMs: -Infinity,
      fullAtMs: 0,
      emptyUntilMs: 0,
      nextSize: FIRST_LEASE,
      waiting: 0,
      leasing: undefined,
    };
    if (known) this.#buckets.delete(key);
    this.#buckets.set(key, bucket);
    if (this.#buckets.size > MAX_BUCKETS)
      for (const oldest of this.#buckets.keys()) {
        this.#buckets.delete(oldest);
        break;
      }
    return bucket;
  }
}

const TOGETHER = { maxBatch: 64, maxInFlight: 2 };

/** Concurrent lease requests share one statement. */
export function bucketLeases(sql: Sql): (request: LeaseRequest) => Promise<Lease> {
  const leases = new Coalescer<LeaseRequest, Lease>(async (requests) => {
    // SQL: a decision under the bucket's row lock, on the payment path; a prepared function call.
    const { rows } = await sql.query<{ key: string; granted: number; full_in_ms: number }>({
      name: "rate-lease",
      text: "SELECT key, granted, full_in_ms FROM purser_rate_lease($1, $2, $3)",
      values: [
        requests.map(({ key }) => key),
        requests.map(({ wanted }) => wanted),
        requests.map(({ perMinute }) => perMinute),
      ],
    });
    const byKey = new Map(rows.map((row) => [row.key, row]));
    return requests.map(({ key }) => {
      const row = byKey.get(key);
      return { granted: row?.granted ?? 0, fullInMs: row?.full_in_ms ?? 0 };
    });
  }, TOGETHER);
  return (request) => leases.fetch(request);
}
