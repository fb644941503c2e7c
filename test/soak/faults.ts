// The faults of the soak, one after the other in an order that depends on the seed. Each fault undoes itself.
import { setTimeout as sleep } from "node:timers/promises";
import { Client } from "pg";
import {
  alternating,
  behaving,
  denying,
  firstOf,
  lagging,
  PASSING,
  RECEIPTS_AND_LOGS,
  refusing,
  swallowing,
  type Rule,
} from "../helpers/rpc-proxy.ts";
import type { SoakContext } from "./clients.ts";
import { flood, type LoadTargets } from "./third-parties.ts";
import { replaceNewest } from "../helpers/blocks.ts";
import { BLOCK_SECONDS, CONFIRMATIONS } from "./world.ts";

interface FaultRun {
  context: SoakContext;
  targets: LoadTargets;
}

/** Two simultaneous faults must concern different parts, and one part can have only one fault at a time. */
type Part = "replicas" | "database" | "chain" | "rpc" | "load";

export interface Fault {
  part: Part;
  run: (run: FaultRun) => Promise<void>;
}

/** The total for the chain's clock: much less than an authorization's lifetime. */
const JUMPED_AT_MOST_SECONDS = 30;
const DEAR_WEI = 40_000_000_000n;
const REFUSED_WORDS = ["tx fee exceeds the configured cap", "txpool is full", "internal error"];

/** Faults that are not possible here, with the reason for the report. */
export const SKIPPED_FAULTS: Record<string, string> = {
  "database clock jumps": "the database reads the machine's clock, which only root may move",
};

const RUNS: Record<string, Fault["run"]> = {
  "a replica is killed": async ({ context }) => {
    const replica = context.random.pick(context.world.replicas);
    await replica.kill();
    await sleep(context.random.int(500, 3_000));
    await replica.start();
  },
  "a replica stands still": async ({ context }) => {
    const replica = context.random.pick(context.world.replicas);
    replica.signal("SIGSTOP");
    // Longer than a lease: another replica takes its lanes, and this one resumes as if it still had them.
    await sleep(context.random.int(6_000, 12_000));
    replica.signal("SIGCONT");
  },
  "a replica's clock is wrong": async ({ context }) => {
    const replica = context.random.pick(context.world.replicas);
    await replica.kill();
    const skewMs = context.random.pick([-90_000, -20_000, 20_000, 90_000]);
    await replica.start({ PURSER_TEST_SKEW_MS: String(skewMs) });
    await sleep(6_000);
    await replica.kill();
    await replica.start();
  },
  "Postgres is killed": async ({ context }) => {
    const { postgres } = context.world;
    await postgres.kill();
    await sleep(context.random.int(200, 3_000));
    await postgres.restart();
  },
  "Postgres stands still": async ({ context }) => {
    const { postgres } = context.world;
    postgres.signal("SIGSTOP");
    await sleep(context.random.int(2_000, 8_000));
    postgres.signal("SIGCONT");
  },
  "database connections are cut": async ({ context }) => {
    await context.world.postgres.pool.query(
      `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid()`,
    );
    await sleep(1_000);
  },
  "database connections fall silent": async ({ context }) => {
    const { replicas } = context.world;
    const isEverywhere = context.random.next() < 0.5;
    const isEnded = context.random.next() < 0.7;
    for (const { gate } of isEverywhere ? replicas : [context.random.pick(replicas)])
      gate.silence(isEnded);
    await sleep(1_000);
  },
  "an agent's row is held": async ({ context }) => {
    const agent = context.random.pick(context.agents);
    const { postgres } = context.world;
    const client = new Client({ connectionString: postgres.urlThrough(postgres.port) });
    client.on("error", () => undefined);
    await client.connect();
    await client.query("BEGIN");
    await client.query("SELECT 1 FROM agents WHERE id = $1 FOR UPDATE", [agent.id]);
    await sleep(context.random.int(4_000, 8_000));
    await client.query("ROLLBACK").catch(() => undefined);
    await client.end();
  },
  "the chain node restarts from its state": async ({ context }) => {
    await context.world.chain.stop();
    await sleep(context.random.int(500, 3_000));
    await context.world.chain.start();
    // The node saves no old states, and cannot reorganise to a time before its start.
    await sleep(CONFIRMATIONS * BLOCK_SECONDS * 1_000);
  },
  "the chain node stands still": async ({ context }) => {
    context.world.chain.freeze();
    await sleep(context.random.int(3_000, 9_000));
    context.world.chain.thaw();
  },
  "RPC connections are cut": (run) =>
    disturbed(run, (random) =>
      random.pick([
        behaving({ do: "cut", reset: true }),
        behaving({ do: "hang" }),
        behaving({ do: "status", code: 429 }),
        behaving({ do: "status", code: 503 }),
        behaving({ do: "status", code: 200 }),
        behaving({ do: "cut", pass: true }),
      ]),
    ),
  "RPC is slow": async ({ context }) => {
    const { endpoints } = context.world;
    for (const endpoint of endpoints) endpoint.delayMs = context.random.int(300, 2_500);
    await sleep(6_000);
    for (const endpoint of endpoints) endpoint.delayMs = 0;
  },
  "receipts and logs lag": (run) =>
    disturbed(run, (random) => lagging({ ms: random.int(2_000, 8_000) }, RECEIPTS_AND_LOGS)),
  "reads lag": (run) => disturbed(run, (random) => lagging({ blocks: random.int(1, 4) })),
  "two backends contradict each other": (run) =>
    disturbed(run, (random) => alternating(PASSING, lagging({ blocks: random.int(1, 5) }))),
  "what happened is denied": (run) =>
    disturbed(run, (random) =>
      random.pick([denying(), denying(RECEIPTS_AND_LOGS), alternating(PASSING, denying())]),
    ),
  "sends are refused": (run) =>
    disturbed(run, (random) => firstOf(refusing(random.pick(REFUSED_WORDS)))),
  "sends are swallowed": (run) => disturbed(run, () => swallowing),
  "gas becomes dear": async ({ context }) => {
    const { testClient } = context.world.chain;
    for (let block = 0; block < 5; block += 1) {
      await testClient.setNextBlockBaseFeePerGas({ baseFeePerGas: DEAR_WEI });
      await sleep(1_000);
    }
    await testClient.setNextBlockBaseFeePerGas({ baseFeePerGas: 1_000_000_000n });
  },
  "the chain's clock jumps": async ({ context }) => {
    const { world, notes, random } = context;
    const before = notes.counts.get(JUMPED) ?? 0;
    const seconds = Math.min(random.int(4, 12), JUMPED_AT_MOST_SECONDS - before);
    if (seconds <= 0) return;
    notes.counts.set(JUMPED, before + seconds);
    await world.chain.testClient.increaseTime({ seconds });
    await sleep(2_000);
  },
  "blocks are reorganised": async ({ context }) => {
    const depth = context.random.int(1, CONFIRMATIONS - 1);
    await replaceNewest(context.world.chain, depth);
    await sleep(3_000);
  },
  "a flood of dust": async ({ context, targets }) => {
    await flood(context, targets, context.random.int(60, 150));
  },
};
const JUMPED = "seconds the chain's clock jumped";

const PARTS: [RegExp, Part][] = [
  [/^a replica/, "replicas"],
  [/Postgres|database|row/, "database"],
  [/flood/, "load"],
  [/^RPC|lag|backends|denied|^sends/, "rpc"],
  [/./, "chain"],
];
export const FAULTS = new Map<string, Fault>(
  Object.entries(RUNS).map(([name, run]) => [
    name,
    { run, part: PARTS.find(([words]) => words.test(name))?.[1] ?? "chain" },
  ]),
);

/** The first endpoint, or both; only one replica would use the second one alone. */
async function disturbed(
  { context }: FaultRun,
  rule: (random: SoakContext["random"]) => Rule,
): Promise<void> {
  const { world, random } = context;
  const [first, second] = world.endpoints;
  const behave = rule(random);
  const both = random.next() < 0.4;
  first.behave = behave;
  if (both) second.behave = behave;
  await sleep(random.int(4_000, 10_000));
  first.behave = PASSING;
  second.behave = PASSING;
}

/** After the last fault: removes every disturbance, including what a failed fault left behind. */
export async function removeAllFaults({ world }: SoakContext): Promise<void> {
  for (const endpoint of world.endpoints) {
    endpoint.behave = PASSING;
    endpoint.delayMs = 0;
  }
  world.chain.thaw();
  await world.chain.start();
  world.postgres.signal("SIGCONT");
  for (const replica of world.replicas) {
    replica.signal("SIGCONT");
    await replica.gate.open();
    if (!replica.isUp) await replica.start();
  }
}
