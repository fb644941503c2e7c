// Goal: a token bucket allows exactly its limit at any pace, and reports truly how long to wait.
import * as fc from "fast-check";
import t from "tap";
import { addressBucket, readTrust } from "../../server/core/client-address.ts";
import { RATE_LIMITS, readRateLimits, type LimitName } from "../../server/core/rate-limits.ts";
import { outcomeOf } from "../helpers/outcome-of.ts";
import { OwnBuckets } from "../../server/plugins/http/rate-buckets.ts";

const MINUTE_MS = 60_000;
/** Limits at which one request costs a whole number of milliseconds, so that the model needs no fractions. */
const perMinute = fc.constantFrom(1, 2, 3, 6, 60, 300, 6_000);
const RUNS = { numRuns: 500 };

/** A reference model: its tokens are milliseconds of refill. */
class Naive {
  #level = MINUTE_MS;
  #atMs = 0;
  take(nowMs: number, costMs: number): boolean {
    this.#level = Math.min(MINUTE_MS, this.#level + nowMs - this.#atMs);
    this.#atMs = nowMs;
    if (this.#level < costMs) return false;
    this.#level -= costMs;
    return true;
  }
  get level(): number {
    return this.#level;
  }
}

const pace = fc.oneof(
  { weight: 3, arbitrary: fc.nat({ max: 3 }) },
  fc.nat({ max: 20_000 }),
  fc.nat({ max: 200_000 }),
);

t.test("equals a bucket that refills continuously", async () => {
  fc.assert(
    fc.property(perMinute, fc.array(pace, { maxLength: 60, size: "max" }), (perMinute, gaps) => {
      let nowMs = 1_000_000;
      const buckets = new OwnBuckets(100, () => nowMs);
      const naive = new Naive();
      const costMs = MINUTE_MS / perMinute;
      return gaps.every((gapMs) => {
        nowMs += gapMs;
        const { allowed, limit, remaining, resetMs, retryAfterMs } = buckets.take("a", perMinute);
        const isAllowed = naive.take(nowMs, costMs);
        return (
          allowed === isAllowed &&
          limit === perMinute &&
          remaining === Math.floor(naive.level / costMs) &&
          resetMs === MINUTE_MS - naive.level &&
          retryAfterMs === (allowed ? 0 : costMs - naive.level)
        );
      });
    }),
    RUNS,
  );
});

t.test("a caller that waits for the returned time is let through, and not sooner", async () => {
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 100_000 }), fc.nat({ max: 50 }), (perMinute, early) => {
      let nowMs = 5_000;
      const buckets = new OwnBuckets(100, () => nowMs);
      let { allowed, retryAfterMs } = buckets.take("a", perMinute);
      for (let count = 1; count < perMinute && count < 200; count += 1)
        ({ allowed, retryAfterMs } = buckets.take("a", perMinute));
      if (!allowed) return false;
      if (perMinute > 200) return true;
      ({ allowed, retryAfterMs } = buckets.take("a", perMinute));
      if (allowed || retryAfterMs <= 0) return false;
      const startMs = nowMs;
      nowMs = startMs + Math.max(retryAfterMs - 1 - early, 0);
      if (retryAfterMs > 1 && buckets.take("a", perMinute).allowed) return false;
      nowMs = startMs + retryAfterMs;
      return buckets.take("a", perMinute).allowed;
    }),
    RUNS,
  );
});

t.test("keys do not share tokens, and one given back is one more", async () => {
  fc.assert(
    fc.property(
      fc.integer({ min: 1, max: 40 }),
      fc.array(fc.tuple(fc.constantFrom("a", "b"), fc.boolean()), { maxLength: 80, size: "max" }),
      (perMinute, steps) => {
        const buckets = new OwnBuckets(100, () => 7);
        const used = { a: 0, b: 0 } as Record<string, number>;
        return steps.every(([key, gives]) => {
          const count = used[key] ?? 0;
          if (gives && count > 0) {
            buckets.giveBack(key, perMinute);
            used[key] = count - 1;
            return true;
          }
          const isAllowed = buckets.take(key, perMinute).allowed;
          if (isAllowed) used[key] = count + 1;
          return isAllowed === count < perMinute;
        });
      },
    ),
    RUNS,
  );
});

t.test("memory is bounded: only the least recently used key is evicted", async () => {
  fc.assert(
    fc.property(
      fc.array(fc.nat({ max: 9 }), { maxLength: 60 }),
      fc.integer({ min: 1, max: 6 }),
      (keys, most) => {
        const buckets = new OwnBuckets(most, () => 0);
        const recent: number[] = [];
        const counts = new Map<number, number>();
        return keys.every((key) => {
          const { remaining } = buckets.take(String(key), 100);
          const count = (counts.get(key) ?? 0) + 1;
          counts.set(key, count);
          if (recent.includes(key)) recent.splice(recent.indexOf(key), 1);
          recent.push(key);
          if (recent.length > most) counts.delete(recent.shift() ?? -1);
          return remaining === 100 - count && buckets.size === recent.length;
        });
      },
    ),
    RUNS,
  );
});

t.test("an operator's text changes the named limits, or is a problem", async () => {
  const names = Object.keys(RATE_LIMITS) as LimitName[];
  const name = fc.oneof(
    { weight: 4, arbitrary: fc.constantFrom(...names) },
    fc.constantFrom("spends", "", "SPEND", "constructor", "toString", "__proto__"),
  );
  const count = fc.oneof(
    { weight: 3, arbitrary: fc.integer({ min: 1, max: 10_000_000 }).map(String) },
    fc.constantFrom("0", "-1", "1.5", "1e3", "", " 5", "10000001", "9999999999", "0x5", "5=6"),
  );
  const gap = fc.constantFrom("", " ", "  ");
  fc.assert(
    fc.property(fc.array(fc.tuple(name, count, gap), { maxLength: 5 }), (entries) => {
      const text = entries.map(([name, count, gap]) => `${gap}${name}=${count}${gap}`).join(",");
      const { value: limits, reasons } = outcomeOf(() => readRateLimits(text));
      const expected: Record<string, number> = {};
      for (const name of names) expected[name] = RATE_LIMITS[name].perMinute;
      let wrong = 0;
      for (const [name, count] of entries) {
        const isRight =
          names.includes(name as LimitName) &&
          /^[1-9][0-9]{0,7}$/.test(count) &&
          Number(count) <= 10_000_000;
        if (isRight) expected[name] = Number(count);
        else wrong += 1;
      }
      return (
        reasons.length === wrong &&
        names.every(
          (name) =>
            limits[name].perMinute === expected[name] &&
            limits[name].isShared === RATE_LIMITS[name].isShared,
        )
      );
    }),
    { numRuns: 1_000 },
  );
});

const word16 = fc.nat({ max: 0xffff });
const ipv6 = fc.array(word16, { minLength: 8, maxLength: 8 });
const spelt = (words: readonly number[]): string => words.map((one) => one.toString(16)).join(":");

t.test("a /64 IPv6 network is one caller in any spelling, and its neighbour another", async () => {
  fc.assert(
    fc.property(ipv6, ipv6, fc.nat({ max: 63 }), (words, others, bit) => {
      const full = words.map((one) => one.toString(16).padStart(4, "0").toUpperCase()).join(":");
      const inside = [...words.slice(0, 4), ...others.slice(4)];
      const outside = words.map((one, index) =>
        index === Math.floor(bit / 16) ? one ^ (1 << (bit % 16)) : one,
      );
      const isMapped = (list: readonly number[]) =>
        list.slice(0, 5).every((one) => one === 0) && list[5] === 0xffff;
      if ([words, inside, outside].some(isMapped)) return true;
      const bucket = addressBucket(spelt(words));
      return (
        bucket.endsWith("/64") &&
        addressBucket(full) === bucket &&
        addressBucket(spelt(inside)) === bucket &&
        addressBucket(spelt(outside)) !== bucket
      );
    }),
    { numRuns: 1_000 },
  );
  fc.assert(
    fc.property(fc.ipV4(), (address) => {
      const bucket = addressBucket(address);
      return bucket === address && addressBucket(`::ffff:${address}`) === address;
    }),
    { numRuns: 500 },
  );
});

t.test("exactly the named number of proxies is trusted, and never every address", async () => {
  fc.assert(
    fc.property(fc.nat({ max: 24 }), fc.nat({ max: 24 }), (hops, hop) => {
      const { value: trust, reasons } = outcomeOf(() => readTrust(String(hops)));
      if (hops > 10) return trust === undefined && reasons.length > 0;
      if (hops === 0) return trust === false;
      return typeof trust === "function" && trust("203.0.113.9", hop) === hop < hops;
    }),
    { numRuns: 500 },
  );
  const entry = fc.oneof(
    fc.ipV4(),
    fc.constantFrom(
      "10.0.0.0/8",
      "loopback",
      "::/0",
      "0.0.0.0/0",
      "everyone",
      "true",
      "10.0.0.0/33",
      "",
    ),
  );
  const BAD = new Set(["::/0", "0.0.0.0/0", "everyone", "true", "10.0.0.0/33", ""]);
  fc.assert(
    fc.property(fc.array(entry, { minLength: 1, maxLength: 4 }), (entries) => {
      const { value: trust, reasons } = outcomeOf(() => readTrust(entries.join(", ")));
      const isBad = entries.some((one) => BAD.has(one));
      return isBad
        ? trust === undefined && reasons.length > 0
        : Array.isArray(trust) && trust.length === entries.length;
    }),
    { numRuns: 500 },
  );
});
