// The duration of a settlement, its cost, and its RPC calls.
import { setTimeout as sleep } from "node:timers/promises";
import type { Hex } from "viem";
import type { BenchRow, Name, Server, World } from "../context.ts";
import { databaseCpuMs } from "../cpu.ts";
import { load, settleOutcome } from "../load.ts";
import { atMost, figure, inRounds, median, timesAsMuch } from "../rounds.ts";
import { sentBy, type Sent } from "../sent.ts";
import { makePayers, signedBodies } from "../signed.ts";

const BLOCK_SECONDS = 2;
const LOOK_EVERY_MS = 3;
/** V8 compiles most of what a settle needs in its first thousand or so; before, a payment costs up to twice as much. */
const WARM_UP = { count: 1_000, inFlight: 500 };

async function freshBodies(
  { chain }: World,
  count: number,
  payTo = chain.admin.address,
): Promise<string[]> {
  const payers = makePayers(count);
  await chain.mint(
    payers.map(({ address }) => address),
    10n ** 6n,
  );
  return signedBodies({ chain, payers, payTo, count });
}

const serverOf = (world: World, name: Name): Server => world.servers[name] ?? world.servers.ours;

/** As a server in use has settled some. */
async function warmUp(world: World): Promise<void> {
  for (const server of Object.values(world.servers))
    await load({
      url: `${server.url}/settle`,
      bodies: await freshBodies(world, WARM_UP.count),
      inFlight: WARM_UP.inFlight,
      outcomeOf: settleOutcome,
    });
}

/** Records when each block was first seen, by polling continuously. */
function watchBlocks({ chain }: World) {
  const watched = { seenAtMs: new Map<bigint, number>(), newest: 0n, isOver: false };
  const watching = (async () => {
    while (!watched.isOver) {
      const height = await chain.publicClient.getBlockNumber();
      if (height > watched.newest) watched.seenAtMs.set(height, performance.now());
      watched.newest = height;
      await sleep(LOOK_EVERY_MS);
    }
  })();
  return {
    watched,
    /** Waits until this long after a block. */
    async phase(afterMs: number): Promise<void> {
      while (watched.newest === 0n) await sleep(LOOK_EVERY_MS);
      const height = watched.newest;
      while (watched.newest === height) await sleep(LOOK_EVERY_MS);
      await sleep(afterMs);
    },
    async end(): Promise<void> {
      watched.isOver = true;
      await watching;
    },
  };
}

type Watch = ReturnType<typeof watchBlocks>;

interface Lone {
  totalMs: number;
  afterBlockMs: number;
  /** The payment was not in the next block but in the one after it. */
  isLate: boolean;
}

async function settleOne(world: World, server: Server, watch: Watch, body: string): Promise<Lone> {
  const height = watch.watched.newest;
  const startMs = performance.now();
  const answer = await fetch(`${server.url}/settle`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body,
  });
  const settled = (await answer.json()) as { success: boolean; transaction: Hex };
  const endMs = performance.now();
  if (!settled.success) throw new Error(JSON.stringify(settled));
  const { blockNumber } = await world.chain.publicClient.getTransactionReceipt({
    hash: settled.transaction,
  });
  while (!watch.watched.seenAtMs.has(blockNumber)) await sleep(LOOK_EVERY_MS);
  return {
    totalMs: endMs - startMs,
    afterBlockMs: endMs - (watch.watched.seenAtMs.get(blockNumber) ?? 0),
    isLate: blockNumber > height + 1n,
  };
}

const LONE = 10;
/**
 * Our idle server polls the chain every 4 and every 10 s, and once more for earlier settlements: these times
 * cover whole cycles.
 */
const REST_MS = 12_000;
const IDLE_MS = 20_000;

/** The JSON-RPC calls per millisecond of each idle server, all measured over the same time. */
async function idleRates({ servers }: World): Promise<Map<Server, number>> {
  await sleep(REST_MS);
  const rate = async (server: Server): Promise<[Server, number]> => {
    const startMs = performance.now();
    const before = await server.rpcCalls();
    await sleep(IDLE_MS);
    const calls = (await server.rpcCalls()) - before;
    return [server, calls / (performance.now() - startMs)];
  };
  return new Map(await Promise.all(Object.values(servers).map(rate)));
}

const lone: BenchRow = {
  name: "settle, one payment at a time, 2 s blocks",
  async run(context) {
    const world = await context.world({ blockTimeSeconds: BLOCK_SECONDS, rpcDelayMs: 0 });
    await warmUp(world);
    const idle = await idleRates(world);
    const watch = watchBlocks(world);
    const measured = await inRounds(world, async (name) => {
      const server = serverOf(world, name);
      const bodies = await freshBodies(world, LONE);
      await sleep(BLOCK_SECONDS * 1_000);
      const startMs = performance.now();
      const atStart = await server.rpcCalls();
      const each: Lone[] = [];
      for (const [turn, body] of bodies.entries()) {
        // Covers all points between two blocks evenly, except the last 100 ms, because making a block takes
        // time.
        await watch.phase((BLOCK_SECONDS * 1_000 - 100) * (((turn * 7) % LONE) / LONE));
        each.push(await settleOne(world, server, watch, body));
      }
      const idleCalls = (idle.get(server) ?? Number.NaN) * (performance.now() - startMs);
      return { each, rpcCalls: ((await server.rpcCalls()) - atStart - idleCalls) / LONE };
    });
    await watch.end();
    const ms = { unit: "ms", better: "less" } as const;
    return [
      figure(measured, {
        ...ms,
        what: "answered after its block, p50",
        of: ({ each }) => median(each.map(({ afterBlockMs }) => afterBlockMs)),
        target: { label: "<= 30 ms", reached: ({ ours }) => ours <= 30 },
      }),
      figure(measured, {
        ...ms,
        what: "whole, p50",
        waits: true,
        of: ({ each }) => median(each.map(({ totalMs }) => totalMs)),
      }),
      figure(measured, {
        what: `not in the next block, of ${LONE}`,
        unit: "",
        better: "less",
        of: ({ each }) => each.filter(({ isLate }) => isLate).length,
        target: { label: "0", reached: ({ ours }) => ours === 0 },
      }),
      figure(measured, {
        what: "RPC calls more than idle",
        unit: "",
        better: "less",
        of: ({ rpcCalls }) => rpcCalls,
        target: { label: "<= 6", reached: ({ ours }) => ours <= 6 },
      }),
    ];
  },
};

const BURST = 500;
/** Times after a block; the last one leaves 400 ms until the next. */
const PHASES_MS = [100, 600, 1_100, 1_600];

/** A response later than this after its block means that the payment was in a later one. */
const HALF_A_BLOCK_MS = (BLOCK_SECONDS * 1_000) / 2;

/** On open connections a request arrives immediately; opening new ones takes additional time. */
type Connections = "made" | "open";

interface Burst {
  lastMs: number[];
  /** The number of payments from the last phase that were in the next block. */
  inNext: Record<Connections, number>;
  cpuMsEach: number;
  succeeded: number;
  sent: Sent;
}

/** All requests at once, at this time after a block. */
async function burstAt(
  world: World,
  { name, phaseMs, connections }: { name: Name; phaseMs: number; connections: Connections },
): Promise<{ lastMs: number; inNext: number; succeeded: number; cpuMs: number }> {
  const server = serverOf(world, name);
  // Only our server uses the database, so its CPU time is added to ours.
  const cpuMs = async (): Promise<number> =>
    server.cpuMs() + (name === "ours" ? await databaseCpuMs(world.database) : 0);
  let before = 0;
  const bodies = await freshBodies(world, BURST);
  const moment = async (): Promise<void> => {
    // The chain is not polled during the measurement, because that would load it and this process.
    const watch = watchBlocks(world);
    await watch.phase(phaseMs);
    await watch.end();
    before = await cpuMs();
  };
  if (connections === "made") await moment();
  const nextMs = BLOCK_SECONDS * 1_000 - phaseMs;
  let inNext = 0;
  const { elapsedMs, outcomes } = await load({
    url: `${server.url}/settle`,
    bodies,
    inFlight: BURST,
    outcomeOf: settleOutcome,
    ...(connections === "open" && { begin: { path: "/supported", when: moment } }),
    onAnswer(outcome, afterMs) {
      if (outcome === "success" && afterMs < nextMs + HALF_A_BLOCK_MS) inNext += 1;
    },
  });
  return {
    lastMs: elapsedMs,
    inNext,
    succeeded: outcomes["success"] ?? 0,
    cpuMs: (await cpuMs()) - before,
  };
}

const burst: BenchRow = {
  name: `settle, ${BURST} at once, 2 s blocks`,
  async run(context) {
    const world = await context.world({ blockTimeSeconds: BLOCK_SECONDS });
    const { chain } = world;
    await warmUp(world);
    const measured = await inRounds(world, async (name): Promise<Burst> => {
      const all = { lastMs: [] as number[], cpuMs: 0, succeeded: 0 };
      const inNext = { made: 0, open: 0 };
      const fromBlock = (await chain.publicClient.getBlockNumber()) + 1n;
      for (const phaseMs of PHASES_MS) {
        const one = await burstAt(world, { name, phaseMs, connections: "made" });
        inNext.made = one.inNext;
        all.cpuMs += one.cpuMs;
        all.succeeded += one.succeeded;
        all.lastMs.push(one.lastMs);
      }
      const sent = await sentBy(chain, serverOf(world, name).relayers, fromBlock);
      const phaseMs = PHASES_MS.at(-1) ?? 0;
      inNext.open = (await burstAt(world, { name, phaseMs, connections: "open" })).inNext;
      const cpuMsEach = all.cpuMs / (BURST * PHASES_MS.length);
      return { ...all, inNext, cpuMsEach, sent };
    });
    const count = BURST * PHASES_MS.length;
    return [
      ...PHASES_MS.map((phaseMs, index) =>
        figure(measured, {
          what: `last answer, begun ${phaseMs} ms after a block`,
          unit: "ms",
          better: "less",
          waits: true,
          of: ({ lastMs }) => lastMs[index] ?? Number.NaN,
          target: {
            label: "the best",
            reached: ({ ours, reference = Infinity, peer = Infinity }) =>
              ours <= Math.min(reference, peer),
          },
        }),
      ),
      figure(measured, {
        what: `in the next block, begun ${PHASES_MS.at(-1)} ms after one`,
        unit: `of ${BURST}`,
        better: "more",
        waits: true,
        of: ({ inNext }) => inNext.made,
        target: { label: "all", reached: ({ ours }) => ours === BURST },
      }),
      figure(measured, {
        what: `in the next block, arrived ${PHASES_MS.at(-1)} ms after one`,
        unit: `of ${BURST}`,
        better: "more",
        waits: true,
        of: ({ inNext }) => inNext.open,
        target: { label: "all", reached: ({ ours }) => ours === BURST },
      }),
      figure(measured, {
        what: "succeeded",
        unit: `of ${count}`,
        better: "more",
        of: ({ succeeded }) => succeeded,
        target: { label: "all", reached: ({ ours }) => ours === count },
      }),
      figure(measured, {
        what: "transactions, for each 500",
        unit: "",
        better: "less",
        of: ({ sent }) => sent.transactions / PHASES_MS.length,
      }),
      figure(measured, {
        what: "reverted",
        unit: "",
        better: "less",
        of: ({ sent }) => sent.reverted,
        target: { label: "0", reached: ({ ours }) => ours === 0 },
      }),
      figure(measured, {
        what: "gas each",
        unit: "",
        better: "less",
        of: ({ sent, succeeded }) => Number(sent.gasUsed) / succeeded,
      }),
      figure(measured, {
        what: "processor each, with the database",
        unit: "ms",
        better: "less",
        of: ({ cpuMsEach }) => cpuMsEach,
        target: atMost(1.8, "ms", 0.18),
      }),
    ];
  },
};

/** A whole number of blocks, counted from the first block that had a full load. */
const SUSTAINED_MS = 10_000;
const COUNTED_FROM_MS = BLOCK_SECONDS * 1_000;
/**
 * With a block every 2 s, this many requests in flight allow at most 600 responses per second; and twice as
 * many.
 */
const LOADS = [1_200, 2_400];
/** The others run with each of these, and their best result counts. */
const IN_FLIGHT = { reference: [64, 192], peer: [192, 1_200] };
const MOST_BODIES = { ours: 16_000, others: 6_000 };

interface Sustained {
  rate: number;
  serverMs: number;
  databaseMs: number;
}

const sustained: BenchRow = {
  name: "settle, sustained, 2 s blocks",
  async run(context) {
    const world = await context.world({
      blockTimeSeconds: BLOCK_SECONDS,
      blockGasLimit: 200_000_000,
      // All connections come from one address.
      env: { CONNECTIONS_PER_ADDRESS: "4000" },
    });
    const { chain } = world;
    await warmUp(world);
    const payers = makePayers(200);
    await chain.mint(
      payers.map(({ address }) => address),
      10n ** 12n,
    );
    const sustain = async (name: Name, inFlight: number): Promise<Sustained> => {
      const server = serverOf(world, name);
      const count = name === "ours" ? MOST_BODIES.ours : MOST_BODIES.others;
      const bodies = signedBodies({ chain, payers, payTo: chain.admin.address, count });
      const before = { server: server.cpuMs(), database: await databaseCpuMs(world.database) };
      let counted = 0;
      const untilMs = COUNTED_FROM_MS + SUSTAINED_MS;
      const { outcomes } = await load({
        url: `${server.url}/settle`,
        bodies,
        inFlight,
        durationMs: untilMs,
        outcomeOf: settleOutcome,
        onAnswer(outcome, afterMs) {
          if (outcome === "success" && afterMs >= COUNTED_FROM_MS && afterMs < untilMs)
            counted += 1;
        },
      });
      const succeeded = outcomes["success"] ?? 0;
      const database = (await databaseCpuMs(world.database)) - before.database;
      return {
        rate: (counted / SUSTAINED_MS) * 1_000,
        serverMs: (server.cpuMs() - before.server) / succeeded,
        // Only our server uses the database.
        databaseMs: name === "ours" ? database / succeeded : 0,
      };
    };
    const measured = await inRounds(world, async (name): Promise<Sustained[]> => {
      const each: Sustained[] = [];
      const loads = name === "ours" ? LOADS : IN_FLIGHT[name];
      for (const inFlight of loads) each.push(await sustain(name, inFlight));
      if (name === "ours") return each;
      const best = each.toSorted((one, other) => other.rate - one.rate).slice(0, 1);
      return LOADS.flatMap(() => best);
    });
    return LOADS.flatMap((inFlight, load) => {
      const of = (what: keyof Sustained) => (each: readonly Sustained[]) =>
        each[load]?.[what] ?? Number.NaN;
      const among = `${inFlight.toLocaleString("en-US")} in flight`;
      return [
        figure(measured, {
          what: `rate, ${among}`,
          unit: "/s",
          better: "more",
          waits: true,
          of: of("rate"),
          target: {
            label: ">= 5x reference, >= 600 /s",
            reached: ({ ours, reference }) => timesAsMuch(ours, reference) >= 5 && ours >= 600,
          },
        }),
        figure(measured, {
          what: `processor each, with the database, ${among}`,
          unit: "ms",
          better: "less",
          of: (each) => of("serverMs")(each) + of("databaseMs")(each),
          target: atMost(1.2, "ms", 0.143),
        }),
        figure(measured, {
          what: `of it the database's, ${among}`,
          unit: "ms",
          better: "less",
          of: of("databaseMs"),
        }),
      ];
    });
  },
};

const TIMES = 20;

const again: BenchRow = {
  name: `settle, the same payment ${TIMES} times at once`,
  async run(context) {
    const world = await context.world({ blockTimeSeconds: BLOCK_SECONDS });
    await warmUp(world);
    const measured = await inRounds(world, async (name) => {
      const server = serverOf(world, name);
      const [body = ""] = await freshBodies(world, 1);
      const fromBlock = (await world.chain.publicClient.getBlockNumber()) + 1n;
      await load({
        url: `${server.url}/settle`,
        bodies: Array.from({ length: TIMES }, () => body),
        inFlight: TIMES,
        outcomeOf: settleOutcome,
      });
      return sentBy(world.chain, server.relayers, fromBlock);
    });
    return [
      figure(measured, {
        what: "transactions",
        unit: "",
        better: "less",
        of: ({ transactions }) => transactions,
        target: { label: "1", reached: ({ ours }) => ours === 1 },
      }),
    ];
  },
};

export const rows: BenchRow[] = [lone, burst, sustained, again];
