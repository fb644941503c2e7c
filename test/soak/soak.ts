// One soak: starts the services, runs load and faults for some minutes, removes the faults, waits until
// nothing is open, and reconciles.
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { getAddress, type Address } from "viem";
import { randomAddress } from "../helpers/engine.ts";
import {
  checkBalances,
  checkChain,
  checkLedgers,
  checkOnce,
  checkRows,
  checkOutcomes,
  isOpen,
  readChain,
  readRows,
  type Check,
} from "./reconciliation.ts";
import { Random } from "../helpers/random.ts";
import { channelLoad, type ChannelLoad } from "./channels.ts";
import { openAgent, openOwner, type Notes, type SoakContext } from "./clients.ts";
import { FAULTS, removeAllFaults, type Fault } from "./faults.ts";
import { checkLimits } from "./limits.ts";
import { runLoad } from "./load.ts";
import { checkServiceReports } from "./service-reports.ts";
import { openSellers, type SoakSellers } from "./sellers.ts";
import { settle, soakPayers, type LoadTargets, type Posted } from "./third-parties.ts";
import { toJson, type FaultRecord, type SoakReport } from "./table.ts";
import { startWorld, type World } from "./world.ts";

interface SoakOptions {
  minutes: number;
  replicas: number;
  seed: number;
  /** The names of some faults; by default all. */
  faults?: string[];
  logDir: string;
  /** Moves the chain's clock past open deadlines instead of waiting for them. */
  isHurried?: boolean;
  print: (line: string) => void;
  /** Ends the load early; reconciliation still runs. */
  signal?: AbortSignal;
}

const AGENTS = 6;
const OWNERS = 2;
const PAYERS = 60;
const RICH = 10n ** 12n;
/** This agent depends on incoming payments. */
const POOR = 100_000n;
const FIRST_LIMIT = 1_000_000n;
/** After the last minting block, for longer than any reorganisation is deep. */
const SETTLED_IN_MS = 6_000;
/** After a fault, payments must continue within this time. */
const SILENCE_AT_MOST_MS = 60_000;
/** Starting a replica takes time on a busy machine. */
const FAULT_AT_MOST_MS = 120_000;
/** An authorization's lifetime, its handling afterwards, and one run of the cleanup jobs. */
const DEADLINE_MS = 300_000;
const HURRY_AFTER_MS = 8_000;
const HURRIED_SECONDS = 150;
const HURRIED_DEADLINE_MS = 75_000;
/** For readers that follow the chain in the background. */
const AGREE_WITHIN_MS = 60_000;
const HURRIED_AGREE_WITHIN_MS = 30_000;
const REPLAYS_AT_THE_END = 40;

export async function runSoak(options: SoakOptions): Promise<SoakReport> {
  const random = new Random(options.seed);
  const notes: Notes = { reported: [], counts: new Map(), faults: [], lastPaidMs: 0 };
  let next = 1_000n;
  const nextAmount = (): bigint => (next += 1n);
  const demoPayTo = getAddress(randomAddress());
  let world: World | undefined;
  let sellers: SoakSellers | undefined;
  let channels: ChannelLoad | undefined;
  try {
    world = await startWorld({
      replicas: options.replicas,
      logDir: options.logDir,
      demoPayTo,
      privateOrigins: async (t, chain) => {
        const facilitators = () => (world?.replicas ?? []).map(({ url }) => url);
        sellers = await openSellers(t, chain, { facilitators, random, nextAmount });
        channels = await channelLoad(t);
        return [...sellers.origins, channels.origin];
      },
    });
    if (!sellers || !channels) throw new Error("no sellers");
    const ended = new AbortController();
    const { signal } = ended;
    const context: SoakContext = { world, random, notes, agents: [], nextAmount, signal };
    const made = await people(context, sellers, demoPayTo);
    options.print(`seed ${options.seed}: ${options.replicas} replicas, ${AGENTS} agents`);
    await channels.open(context);
    const posted: Posted[] = [];
    const load = Promise.all([runLoad(context, made.targets, posted), channels.run(context)]);
    const faults = await breakThings(context, made.targets, options);
    ended.abort();
    await load;
    options.print("removing all faults, and waiting until nothing is open");
    await within(removeAllFaults(context), FAULT_AT_MOST_MS);
    for (const payment of random.shuffled(posted).slice(0, REPLAYS_AT_THE_END))
      await settle(context, payment);
    await channels.end(context);
    await letSettle(context, options);
    const checks = await reconcile(context, channels, made.funded, faults, options);
    const rules = Object.fromEntries(context.agents.map((agent) => [agent.id, agent.rules]));
    const rows = { ...(await readRows(world.postgres.pool)), rules };
    writeFileSync(join(options.logDir, "rows.json"), toJson(rows));
    const blocks = await world.chain.publicClient.getBlockNumber({ cacheTime: 0 });
    return { seed: options.seed, minutes: options.minutes, blocks, notes, faults, checks };
  } finally {
    await world?.stop();
  }
}

async function people(
  context: SoakContext,
  sellers: SoakSellers,
  demoPayTo: Address,
): Promise<{ targets: LoadTargets; funded: Map<Address, bigint> }> {
  const { chain } = context.world;
  const owners = await Promise.all(Array.from({ length: OWNERS }, () => openOwner(context)));
  const payees = Array.from({ length: 4 }, () => getAddress(randomAddress()));
  for (let index = 0; index < AGENTS; index += 1) {
    const owner = owners[index % OWNERS];
    if (!owner) throw new Error("no owner");
    const agent = await openAgent(context, owner, {
      allowlist: [...payees, ...sellers.payees, demoPayTo],
      limitAtomic: FIRST_LIMIT,
      fundsAtomic: index === 0 ? POOR : RICH,
    });
    context.agents.push(agent);
    if (index === 0) payees.push(getAddress(agent.wallet));
  }
  const targets: LoadTargets = {
    payees,
    unlistedPayee: getAddress(randomAddress()),
    sellerUrls: sellers.urls,
    payers: soakPayers(PAYERS, context.random),
    merchants: Array.from({ length: 5 }, () => getAddress(randomAddress())),
  };
  const funded = new Map<Address, bigint>(
    [...payees, ...sellers.payees, ...targets.merchants, demoPayTo, targets.unlistedPayee].map(
      (address) => [address, 0n],
    ),
  );
  for (const { account } of owners) funded.set(account.address, 0n);
  for (const { address } of targets.payers) funded.set(address, RICH);
  for (const { wallet, fundsAtomic } of context.agents) funded.set(getAddress(wallet), fundsAtomic);
  for (const amount of new Set(funded.values()))
    if (amount > 0n)
      await chain.mint(
        [...funded].filter(([, funds]) => funds === amount).map(([address]) => address),
        amount,
      );
  await sleep(SETTLED_IN_MS);
  return { targets, funded };
}

/** Runs rounds of all faults, each round in a different order, until the time is over. */
async function breakThings(
  context: SoakContext,
  targets: LoadTargets,
  options: SoakOptions,
): Promise<FaultRecord[]> {
  const { random, notes } = context;
  const untilMs = performance.now() + options.minutes * 60_000;
  let bag: string[] = [];
  let rounds = 0;
  const isOver = (): boolean =>
    options.signal?.aborted === true ||
    // A short run makes each fault once, whatever the time.
    (performance.now() > untilMs && (rounds > 1 || bag.length === 0 || options.isHurried !== true));
  const records = new Map<string, FaultRecord>();
  const names = [...FAULTS.keys()].filter((name) => options.faults?.includes(name) ?? true);
  const run = async (name: string, fault: Fault): Promise<void> => {
    options.print(`  ${name}`);
    await within(fault.run({ context, targets }), FAULT_AT_MOST_MS).catch((error: unknown) => {
      notes.faults.push(`"${name}" could not be made: ${String(error)}`);
    });
    const record = records.get(name) ?? { name, times: 0, silenceMs: 0 };
    const endedMs = performance.now();
    const limitMs = endedMs + SILENCE_AT_MOST_MS;
    while (notes.lastPaidMs < endedMs && performance.now() < limitMs) await sleep(50);
    if (notes.lastPaidMs < endedMs)
      notes.faults.push(`nothing was paid for ${SILENCE_AT_MOST_MS / 1_000} s after "${name}"`);
    record.times += 1;
    record.silenceMs = Math.max(record.silenceMs, performance.now() - endedMs);
    records.set(name, record);
  };
  while (!isOver()) {
    await sleep(options.isHurried === true ? 500 : random.int(1_000, 3_000));
    if (names.length === 0) continue;
    if (bag.length === 0) {
      bag = random.shuffled(names);
      rounds += 1;
    }
    const first = bag.shift() ?? "";
    const [one, other] = [FAULTS.get(first), FAULTS.get(bag[0] ?? "")];
    const both = one && other && one.part !== other.part && random.next() < 0.3;
    await Promise.all([one && run(first, one), both && run(bag.shift() ?? "", other)]);
  }
  return [...records.values()];
}

async function within<T>(work: Promise<T>, limitMs: number): Promise<T> {
  const limit = new AbortController();
  const late = sleep(limitMs, undefined, { signal: limit.signal }).then(() => {
    throw new Error(`not over after ${limitMs / 1_000} s`);
  });
  late.catch(() => undefined);
  return Promise.race([work, late]).finally(() => limit.abort());
}

/** Waits until nothing is open, or well past its deadline. */
async function letSettle({ world }: SoakContext, options: SoakOptions): Promise<void> {
  const startMs = performance.now();
  const deadlineMs = options.isHurried === true ? HURRIED_DEADLINE_MS : DEADLINE_MS;
  let isHurried = false;
  for (;;) {
    const { settlements, payments } = await readRows(world.postgres.pool);
    const open = [...settlements, ...payments].filter(isOpen).length;
    const tookMs = performance.now() - startMs;
    if (open === 0 || tookMs > deadlineMs) return;
    if (options.isHurried === true && !isHurried && tookMs > HURRY_AFTER_MS) {
      isHurried = true;
      await world.chain.testClient.increaseTime({ seconds: HURRIED_SECONDS });
    }
    await sleep(1_000);
  }
}

/**
 * Repeats reconciliation until it agrees, for a limited time: some readers follow the chain in the
 * background.
 */
async function reconcile(
  context: SoakContext,
  channels: ChannelLoad,
  funded: ReadonlyMap<Address, bigint>,
  faults: readonly FaultRecord[],
  { isHurried }: SoakOptions,
): Promise<Check[]> {
  const made = faults.reduce((sum, { times }) => sum + times, 0);
  const { world, agents, notes } = context;
  const patienceMs = isHurried === true ? HURRIED_AGREE_WITHIN_MS : AGREE_WITHIN_MS;
  const untilMs = performance.now() + patienceMs;
  const sane = await checkChain(world.chain);
  for (;;) {
    const chainLog = await readChain(world.chain);
    const rows = await readRows(world.postgres.pool);
    const checks = [
      checkOnce(chainLog),
      ...checkOutcomes(chainLog, rows, notes.reported),
      ...checkRows(chainLog, rows),
      checkLedgers(chainLog, rows, agents),
      ...checkLimits(rows, agents),
      sane,
      await checkBalances(world.chain, chainLog, funded),
      ...(await checkServiceReports(context, chainLog, rows)),
      ...(await channels.check(world)),
      {
        what: "replicas ended only when killed",
        looked: world.replicas.length,
        wrong: world.ownEnds,
      },
      {
        what: "faults were made, and paid after",
        looked: made,
        wrong: notes.faults,
      },
    ];
    if (checks.every(({ wrong }) => wrong.length === 0) || performance.now() > untilMs)
      return checks;
    await sleep(3_000);
  }
}
