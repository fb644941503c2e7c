// The cost of a verification, with many in flight and with one.
import { cpus } from "node:os";
import type { BenchContext, BenchRow, Server, World, WorldOptions } from "../context.ts";
import { confine, familyOf } from "../cpu.ts";
import { load, verifyOutcome } from "../load.ts";
import { alone, atMost, figure, inRounds, timesAsMuch, type Samples } from "../rounds.ts";
import { makePayers, signedBodies } from "../signed.ts";

/** V8 still compiles in the first seconds: a verify then costs up to twice as much. */
const WARM_UP_MS = 8_000;
const DURATION_MS = 4_000;
/**
 * The CPU share of each process: on a machine with two cores, two processes leave the same share to the
 * client and the chain.
 */
const SHARE_OF_CORE = 0.35;

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
  // More payers than the server's cache of signers has entries, so that every signature is verified.
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
  options: WorldOptions = {},
): Promise<Samples<Measured>> {
  const world = await context.world(options);
  const bodies = await bodiesFor(world);
  return inRounds(world, (name) =>
    verifyAt(world.servers[name] ?? world.servers.ours, bodies, inFlight),
  );
}

const rate = (measured: Samples<Measured>) =>
  figure(measured, {
    what: "rate",
    unit: "/s",
    better: "more",
    of: ({ perSecond }) => perSecond,
    target: {
      label: ">= 8x reference, >= 1.5x peer",
      reached: ({ ours, reference, peer }) =>
        timesAsMuch(ours, reference) >= 8 && (peer === undefined || ours >= 1.5 * peer),
    },
  });

const cpuEach = (measured: Samples<Measured>, most: number, share: number) =>
  figure(measured, {
    what: "processor each",
    unit: "ms",
    better: "less",
    of: ({ cpuMsEach }) => cpuMsEach,
    target: atMost(most, "ms", share),
  });

export const rows: BenchRow[] = [
  {
    name: "verify, 64 in flight",
    async run(context) {
      const measured = await measure(context, 64);
      return [rate(measured), cpuEach(measured, 0.25, 0.06)];
    },
  },
  {
    // The default of `WORKERS` in production.
    name: "verify, 64 in flight, a process for each core",
    async run(context) {
      return [rate(await measure(context, 64, { env: { WORKERS: String(cpus().length) } }))];
    },
  },
  {
    name: "verify by one process and by two, each with 128 in flight and 0.35 of a core",
    async run(context) {
      const ways = [];
      for (const workers of ["1", "2"]) {
        const world = await context.world({ oursAlone: true, env: { WORKERS: workers } });
        const way = { server: world.servers.ours, bodies: await bodiesFor(world) };
        // Warms up before the CPU is limited.
        await verifyAt(way.server, way.bodies, 64);
        ways.push({ ...way, pids: world.pids.flatMap(familyOf) });
      }
      const [one, two] = ways;
      if (!one || !two) return [];
      const letGo = confine([...one.pids, ...two.pids], SHARE_OF_CORE);
      const measured = await alone(async () => ({
        one: await verifyAt(one.server, one.bodies, 128),
        two: await verifyAt(two.server, two.bodies, 256),
      })).finally(letGo);
      const rateOf = (what: string, of: (each: (typeof measured.ours)[number]) => number) =>
        figure(measured, { what, unit: "/s", better: "more", of });
      return [
        rateOf("one", (each) => each.one.perSecond),
        rateOf("two", (each) => each.two.perSecond),
        figure(measured, {
          what: "two as one",
          unit: "x",
          better: "more",
          of: (each) => each.two.perSecond / each.one.perSecond,
          target: { label: ">= 1.8x", reached: ({ ours }) => ours >= 1.8 },
        }),
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
          target: atMost(0.8, "ms", 0.19),
        }),
        cpuEach(measured, 0.5, 0.12),
      ];
    },
  },
  {
    name: "verify, RPC 30 ms away, 1 in flight",
    async run(context) {
      const measured = await measure(context, 1, { rpcDelayMs: 30 });
      return [
        figure(measured, {
          what: "p50",
          unit: "ms",
          better: "less",
          of: ({ p50Ms }) => p50Ms,
          target: {
            label: "<= 0.45x reference",
            reached: ({ ours, reference }) => timesAsMuch(ours, reference) <= 0.45,
          },
        }),
      ];
    },
  },
];
