// What a verify costs, many at once and one by one.
import type { BenchContext, BenchRow, Server, World } from "../context.ts";
import { load, verifyOutcome } from "../load.ts";
import { alone, figure, inRounds, timesAsMuch, type Samples } from "../rounds.ts";
import { makePayers, signedBodies } from "../signed.ts";

const WARM_UP_MS = 2_000;
const DURATION_MS = 4_000;

interface Measured {
  perSecond: number;
  p50Ms: number;
  cpuMsEach: number;
}

async function bodiesFor({ chain }: World): Promise<string[]> {
  const payers = makePayers(64);
  await chain.mint(
    payers.map(({ address }) => address),
    10n ** 9n,
  );
  // More than a server remembers the signers of: each is as if it had not been seen.
  return signedBodies({ chain, payers, payTo: chain.admin.address, count: 12_000 });
}

async function verifyAt(
  server: Server,
  bodies: readonly string[],
  inFlight: number,
): Promise<Measured> {
  const options = { url: `${server.url}/verify`, bodies, inFlight, outcomeOf: verifyOutcome };
  await load({ ...options, durationMs: WARM_UP_MS });
  const before = server.cpuMs();
  const { perSecond, p50Ms, count, outcomes } = await load({ ...options, durationMs: DURATION_MS });
  if (outcomes["valid"] !== count) throw new Error(JSON.stringify(outcomes));
  return { perSecond, p50Ms, cpuMsEach: (server.cpuMs() - before) / count };
}

async function measure(
  context: BenchContext,
  inFlight: number,
  rpcDelayMs?: number,
): Promise<Samples<Measured>> {
  const world = await context.world(rpcDelayMs === undefined ? {} : { rpcDelayMs });
  const bodies = await bodiesFor(world);
  return inRounds(world, (name) =>
    verifyAt(world.servers[name] ?? world.servers.ours, bodies, inFlight),
  );
}

const cpuEach = (measured: Samples<Measured>, most: number) =>
  figure(measured, {
    what: "processor each",
    unit: "ms",
    better: "less",
    of: ({ cpuMsEach }) => cpuMsEach,
    target: { says: `<= ${most} ms`, reached: ({ ours }) => ours <= most },
  });

export const rows: BenchRow[] = [
  {
    name: "verify, 64 in flight",
    async run(context) {
      const measured = await measure(context, 64);
      return [
        figure(measured, {
          what: "rate",
          unit: "/s",
          better: "more",
          of: ({ perSecond }) => perSecond,
          target: {
            says: ">= 8x reference, >= 1.5x peer",
            reached: ({ ours, reference, peer }) =>
              timesAsMuch(ours, reference) >= 8 && (peer === undefined || ours >= 1.5 * peer),
          },
        }),
        cpuEach(measured, 0.25),
      ];
    },
  },
  {
    name: "verify, 1 in flight",
    async run(context) {
      const measured = await measure(context, 1);
      return [
        figure(measured, {
          what: "p50",
          unit: "ms",
          better: "less",
          of: ({ p50Ms }) => p50Ms,
          target: { says: "<= 0.8 ms", reached: ({ ours }) => ours <= 0.8 },
        }),
        cpuEach(measured, 0.5),
      ];
    },
  },
  {
    name: "verify, RPC 30 ms away, 1 in flight",
    async run(context) {
      const measured = await measure(context, 1, 30);
      return [
        figure(measured, {
          what: "p50",
          unit: "ms",
          better: "less",
          of: ({ p50Ms }) => p50Ms,
          target: {
            says: "<= 0.45x reference",
            reached: ({ ours, reference }) => timesAsMuch(ours, reference) <= 0.45,
          },
        }),
      ];
    },
  },
  {
    name: "verify by 1 and 2 workers, 64 in flight",
    async run(context) {
      const one = await context.world({ oursAlone: true });
      const two = await context.world({ oursAlone: true, env: { WORKERS: "2" } });
      const bodies = [await bodiesFor(one), await bodiesFor(two)] as const;
      const measured = await alone(async () => ({
        one: await verifyAt(one.servers.ours, bodies[0], 64),
        two: await verifyAt(two.servers.ours, bodies[1], 64),
      }));
      const rate = { unit: "/s", better: "more" } as const;
      return [
        figure(measured, { ...rate, what: "rate of 1", of: ({ one }) => one.perSecond }),
        figure(measured, { ...rate, what: "rate of 2", of: ({ two }) => two.perSecond }),
      ];
    },
  },
];
