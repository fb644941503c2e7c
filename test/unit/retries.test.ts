// Goal: retries become less frequent, stay within their bounds and end; a request that may have had effects is never repeated.
import * as fc from "fast-check";
import t from "tap";
import { AgentLock } from "../../server/plugins/guardrails/agent-lock.ts";
import { nextProbeInMs, probeRound } from "../../server/plugins/marketplace/round.ts";
import { delayAfter, readAnswer, restAfter } from "../../server/plugins/notifications/message.ts";
import { initialFees, replacementFees, type Fees } from "../../server/plugins/settlement/batch.ts";
import { sendAtMostTwice, type ProofResponse } from "../../server/plugins/x402-client/deliver.ts";
import type { TargetRequest } from "../../server/plugins/x402-client/request.ts";

/** A value of Math.random: never 1. */
const chance = fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true });
const MINUTE_MS = 60_000;
const HOUR_SECONDS = 3_600;

t.test("a webhook is retried ten times, each later than the last, all within a day", async () => {
  fc.assert(
    fc.property(fc.array(chance, { minLength: 12, maxLength: 12 }), (dice) => {
      const delays: number[] = [];
      for (let attempts = 1; ; attempts += 1) {
        const delay = delayAfter(attempts, dice[attempts]);
        if (delay === undefined) break;
        delays.push(delay);
        if (attempts > 100) return false;
      }
      const sum = delays.reduce((total, delay) => total + delay, 0);
      return (
        delays.length === 10 &&
        delays.every((delay, index) => delay > (delays[index - 1] ?? 0)) &&
        sum <= 24 * HOUR_SECONDS &&
        sum > 23 * HOUR_SECONDS
      );
    }),
    { numRuns: 1_000 },
  );
});

t.test("the jitter of a delay makes it up to a fifth earlier, never later", async () => {
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 10 }), chance, (attempts, dice) => {
      const latest = delayAfter(attempts, 0) ?? 0;
      const delay = delayAfter(attempts, dice) ?? 0;
      return delay <= latest && delay >= latest * 0.8;
    }),
    { numRuns: 1_000 },
  );
});

t.test("a target rests longer the more often it failed, and at most five minutes", async () => {
  fc.assert(
    fc.property(fc.nat({ max: 100_000 }), fc.nat({ max: 20 }), (failures, more) => {
      const rest = restAfter(failures);
      return rest >= 1 && rest <= 300 && restAfter(failures + more) >= rest;
    }),
    { numRuns: 1_000 },
  );
});

t.test("only a status of success is a delivery, and only 410 ends it", async () => {
  fc.assert(
    fc.property(fc.integer({ min: 100, max: 999 }), (status) => {
      const read = readAnswer(status);
      if (read.kind === "delivered") return status >= 200 && status <= 299;
      return (status < 200 || status > 299) && read.isGone === (status === 410);
    }),
    { numRuns: 1_000 },
  );
});

t.test("a failing listing is probed ever less, but at least every seven hours", async (t) => {
  fc.assert(
    fc.property(fc.nat({ max: 10_000 }), chance, chance, (failures, one, other) => {
      const wait = nextProbeInMs(failures, () => one);
      const base = failures === 0 ? 15 : Math.min(2 ** Math.min(failures - 1, 30), 360);
      const isNear = wait >= base * MINUTE_MS * 0.899 && wait <= base * MINUTE_MS * 1.101;
      // Where the jitter ranges of two delays do not overlap, the later delay is longer.
      const isGrowing =
        failures === 0 || base >= 360 || nextProbeInMs(failures + 2, () => other) > wait;
      return isNear && isGrowing && Number.isSafeInteger(wait);
    }),
    { numRuns: 2_000 },
  );
  t.ok(nextProbeInMs(20) < 7 * 60 * MINUTE_MS);
});

const wei = fc.bigInt({ min: 0n, max: 10n ** 12n });
const caps = fc.record({ maxFeeWei: wei, priorityFeeWei: wei });

t.test("fees: never above the caps, and the tip within the maximum fee", async () => {
  fc.assert(
    fc.property(wei, wei, caps, (base, tip, caps) => {
      const fees = initialFees(base, tip, caps);
      return (
        fees.maxFeeWei <= caps.maxFeeWei &&
        fees.priorityFeeWei <= caps.priorityFeeWei &&
        fees.priorityFeeWei <= fees.maxFeeWei &&
        fees.priorityFeeWei <= tip &&
        fees.maxFeeWei <= 2n * base + tip
      );
    }),
    { numRuns: 2_000 },
  );
});

t.test("re-pricing: each is a valid replacement within the caps, and it ends", async (t) => {
  let longest = 0;
  fc.assert(
    fc.property(
      wei,
      wei,
      fc.oneof(caps, fc.constant({ maxFeeWei: 10n ** 15n, priorityFeeWei: 10n ** 14n })),
      // Either a low market price again, or any price.
      fc.array(fc.oneof(fc.constant([0n, 0n] as const), fc.tuple(wei, wei)), {
        minLength: 1,
        maxLength: 5,
      }),
      (base, tip, caps, market) => {
        const first = initialFees(base, tip, caps);
        let last: Fees = first;
        for (let count = 0; ; count += 1) {
          longest = Math.max(longest, count);
          // Each step adds at least an eighth, up to fifty times the first fee: far fewer steps than this.
          if (count > 80) return false;
          const [baseFeeWei, priorityFeeWei] = market[count % market.length] ?? [0n, 0n];
          const next = replacementFees({ first, last, baseFeeWei, priorityFeeWei, caps });
          if (!next) return true;
          const isHigher = (now: bigint, before: bigint) =>
            now * 1000n >= before * 1125n && now > before;
          if (!isHigher(next.maxFeeWei, last.maxFeeWei)) return false;
          if (!isHigher(next.priorityFeeWei, last.priorityFeeWei)) return false;
          if (next.maxFeeWei > caps.maxFeeWei || next.maxFeeWei > first.maxFeeWei * 50n)
            return false;
          if (next.priorityFeeWei > caps.priorityFeeWei) return false;
          if (next.priorityFeeWei > next.maxFeeWei) return false;
          last = next;
        }
      },
    ),
    { numRuns: 1_000 },
  );
  t.ok(longest > 10, `up to ${longest} replacements`);
});

const HOWS = ["delivered", "refused", "rejected", "timeout", "broken"] as const;
const shown = fc
  .record({ how: fc.constantFrom(...HOWS), neverSent: fc.boolean(), hasSeen: fc.boolean() })
  .map(({ how, neverSent, hasSeen }): ProofResponse => {
    const seen = { status: 200 } as never;
    if (how === "delivered") return { kind: "delivered", seen };
    return {
      kind: "failed",
      how,
      why: how,
      ...(hasSeen && { seen }),
      ...(neverSent && { neverSent: true as const }),
    };
  });

t.test("a signed payment is sent again only where that cannot act twice", async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(shown, { minLength: 3, maxLength: 3 }),
      fc.constantFrom("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"),
      fc.integer({ min: 1, max: 60_000 }),
      fc.integer({ min: 1, max: 60_000 }),
      async (answers, method, timeoutMs, secondMs) => {
        const calls: number[] = [];
        const show = async (target: TargetRequest) => {
          calls.push(target.timeoutMs);
          return answers[calls.length - 1] as ProofResponse;
        };
        const target = { method, timeoutMs, url: new URL("https://a.example") } as TargetRequest;
        const found = await sendAtMostTwice(show, target, secondMs);
        const [first, second] = answers as [ProofResponse, ProofResponse];
        const mayRepeat =
          first.kind === "failed" &&
          (first.how === "timeout" || first.how === "broken") &&
          (method === "GET" || method === "HEAD" || first.neverSent === true);
        const isBounded = (calls[1] ?? 0) <= Math.min(timeoutMs, secondMs);
        if (calls.length !== (mayRepeat ? 2 : 1) || calls[0] !== timeoutMs || !isBounded)
          return false;
        if (!mayRepeat) return found === first;
        if (second.kind === "delivered") return found === second;
        return (
          found.kind === "failed" &&
          found.how === first.how &&
          found.seen === (first.seen ?? second.seen)
        );
      },
    ),
    { numRuns: 1_000 },
  );
});

t.test("a round of probes: one at a time for each host, and every host in turn", async () => {
  const hosts = ["a", "b", "c", "d", "e"];
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.record({ host: fc.constantFrom(...hosts), ticks: fc.nat({ max: 4 }) }), {
        maxLength: 40,
      }),
      fc.integer({ min: 1, max: 4 }),
      fc.integer({ min: 1, max: 4 }),
      fc.nat({ max: 8 }),
      async (items, inFlight, perHost, claimTicks) => {
        const due = [...items];
        const running = new Map<string, number>();
        const probed = new Map<string, number>();
        let most = 0;
        const count = await probeRound(
          {
            claim: async (limit, except) => {
              const picked: typeof due = [];
              for (const item of due) {
                const isTaken = picked.some(({ host }) => host === item.host);
                if (picked.length < limit && !except.includes(item.host) && !isTaken)
                  picked.push(item);
              }
              for (const item of picked) due.splice(due.indexOf(item), 1);
              // A host that was busy at the claim may be free when the claim returns.
              for (let tick = 0; tick < claimTicks; tick += 1) await Promise.resolve();
              return picked;
            },
            probe: async ({ host, ticks }) => {
              const now = (running.get(host) ?? 0) + 1;
              running.set(host, now);
              if (now > 1) throw new Error("twice at a time");
              most = Math.max(
                most,
                [...running.values()].reduce((sum, one) => sum + one, 0),
              );
              for (let tick = 0; tick < ticks; tick += 1) await Promise.resolve();
              running.set(host, now - 1);
              probed.set(host, (probed.get(host) ?? 0) + 1);
            },
            isStopping: () => false,
          },
          { inFlight, roundMs: 600_000, perHost, slowMs: 600_000 },
        );
        const wanted = hosts.map((host) =>
          Math.min(items.filter((item) => item.host === host).length, perHost),
        );
        return (
          most <= inFlight &&
          count === wanted.reduce((sum, one) => sum + one, 0) &&
          hosts.every((host, index) => (probed.get(host) ?? 0) === wanted[index])
        );
      },
    ),
    { numRuns: 200 },
  );
});

t.test("a round continues when a busy host became free during the claim", async (t) => {
  const calls: (readonly string[])[] = [];
  let end: () => void = () => undefined;
  const ended = new Promise<void>((resolve) => (end = resolve));
  const count = await probeRound(
    {
      claim: async (_limit, except) => {
        calls.push(except);
        if (calls.length === 1) return [{ host: "a" }, { host: "b" }];
        if (calls.length !== 2) return calls.length === 3 ? [{ host: "a" }] : [];
        end();
        // Wait until the probe has ended and its host is marked as free.
        for (let tick = 0; tick < 20; tick += 1) await Promise.resolve();
        return [];
      },
      probe: async ({ host }) => (host === "a" ? ended : undefined),
      isStopping: () => false,
    },
    { inFlight: 2, roundMs: 600_000, perHost: 10, slowMs: 600_000 },
  );
  t.same(calls.slice(0, 3), [[], ["a"], []]);
  t.equal(count, 3);
});

t.test("the agent lock runs one statement at a time, and refuses beyond its queue", async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.record({ agent: fc.constantFrom("a", "b"), fails: fc.boolean() }), {
        minLength: 1,
        maxLength: 12,
      }),
      fc.integer({ min: 0, max: 4 }),
      async (calls, maxWaiting) => {
        const lock = new AgentLock({ maxWaiting, maxWaitMs: 600_000 });
        const inside = new Map<string, number>();
        const began: number[] = [];
        const ends = await Promise.allSettled(
          calls.map(({ agent, fails }, index) =>
            lock.take(agent, async () => {
              const now = (inside.get(agent) ?? 0) + 1;
              inside.set(agent, now);
              began.push(index);
              await Promise.resolve();
              inside.set(agent, now - 1);
              if (now > 1) throw new Error("two at once");
              if (fails) throw new Error("as it should");
            }),
          ),
        );
        return ["a", "b"].every((agent) => {
          const own = calls.flatMap((call, index) => (call.agent === agent ? [index] : []));
          // One runs, `maxWaiting` wait, and the others are refused at once without having started.
          const served = own.slice(0, maxWaiting + 1);
          const inOrder = began.filter((index) => own.includes(index));
          return (
            inOrder.join() === served.join() &&
            own.every((index) => {
              const end = ends[index];
              const message = end?.status === "rejected" ? String(end.reason) : "";
              if (!served.includes(index)) return /agent_busy|busy/i.test(message);
              return calls[index]?.fails ? message.includes("as it should") : message === "";
            })
          );
        });
      },
    ),
    { numRuns: 300 },
  );
});
