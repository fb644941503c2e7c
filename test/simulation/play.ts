// One world from its beginning to its end.
import type { KnownAgent } from "./agents.ts";
import { ACTORS } from "./actors/index.ts";
import type { Backends } from "./database.ts";
import { FAULTS } from "./faults/index.ts";
import { Random } from "../helpers/random.ts";
import { brokenIn, brokenNow } from "./invariants.ts";
import type { Planned } from "./kind.ts";
import type { Plan } from "./plan.ts";
import type { PayeeRule, RuleName } from "./records.ts";
import { usesIn } from "./seller-invariants.ts";
import { inside } from "./time.ts";
import { Client, World } from "./world.ts";

const FUNDS = 100_000_000n;
/** What is still open this long after the last actor has its answer is open for ever. */
const PATIENCE_MS = 20 * 60_000;
/** An actor asks at most for this long. */
const ACTORS_MS = 30 * 60_000;
const LOOK_MS = 3_000;
/** More delays than this, one after the other, do not end by themselves. */
const MOST_RETURNS = 5;

export interface Place {
  backends: Backends;
  agents: readonly KnownAgent[];
  url: string;
}

export interface Played {
  world: World;
  broken: string[];
}

export async function play(plan: Plan, place: Place, isTraced = false): Promise<Played> {
  const { backends, agents, url } = place;
  await backends.monitor.query("SELECT sim.reset()");
  const world = new World(plan.seed, backends, agents, url);
  world.active = agents.slice(0, plan.agents);
  const { timeline } = world;
  if (isTraced)
    timeline.watchers.add(({ label, actor }) => timeline.note(`${actor?.name ?? "-"} ${label}`));
  world.renewIds();
  const funds = new Random(plan.seed ^ 0xf00d);
  for (const { wallet, id, dailyLimit, payees } of agents) {
    // Some wallets have less than they may spend.
    world.chain.mint(wallet, funds.next() < 0.35 ? BigInt(funds.int(1, 20)) * 100_000n : FUNDS);
    const none = ["weeklyLimit", "monthlyLimit", "perPaymentLimit", "paymentsPerHour"] as const;
    const first = world.records.rules.begin(
      [id],
      [
        ["status", "active"],
        ["stopped", "no"],
        ["pausedByRule", "no"],
        ["dailyLimit", dailyLimit],
        ...none.map((name): [RuleName, null] => [name, null]),
        ...payees.map((payee): [RuleName, PayeeRule] => [`payee ${payee}`, { dailyLimit: null }]),
      ],
      0,
    );
    first.certainMs = 0;
    first.overMs = 0;
  }
  for (let count = 0; count < plan.services; count += 1) world.startService();
  const playing = new Set<Client>();
  const begin = ({ seed, ...planned }: Planned, number: number, kinds: typeof ACTORS): void => {
    const item = { ...planned, random: new Random(seed) };
    const kind = kinds[item.kind];
    if (!kind) throw new Error(`there is no ${item.kind}`);
    const client = new Client(timeline, `${item.kind} ${number + 1}`);
    playing.add(client);
    timeline.after(item.atMs, client, "begins", () => {
      if (kinds === FAULTS) {
        timeline.note(`FAULT ${item.kind}`);
        world.faults.add(item.kind);
      }
      const ended = (error?: unknown): void => {
        playing.delete(client);
        if (error !== undefined)
          world.failures.push(
            `${client.name} failed: ${error instanceof Error ? error.message : JSON.stringify(error)}`,
          );
      };
      inside(client, () => kind.play(world, item)).then(() => ended(), ended);
    });
  };
  const broken = new Set<string>();
  /** Looks at what must be true at every moment, when something has happened since the last look. */
  const goOn = async (): Promise<void> => {
    const { happened } = world;
    await timeline.runUntil(timeline.nowMs + LOOK_MS);
    if (world.happened === happened) return;
    for (const text of await brokenNow(world, backends.monitor)) broken.add(text);
  };
  /** Until the actors have their answers, and everything has an outcome. */
  const end = async (): Promise<void> => {
    const actorsUntilMs = timeline.nowMs + ACTORS_MS;
    while (playing.size > 0 && timeline.nowMs < actorsUntilMs) await goOn();
    world.heal();
    const untilMs = timeline.nowMs + PATIENCE_MS;
    while (timeline.nowMs < untilMs && (await isOpen(world, backends))) await goOn();
  };
  const sleep = async (ms: number): Promise<void> => {
    await world.sleep(ms);
    for (let count = 0; count < plan.services; count += 1) world.startService();
  };
  for (const [number, item] of plan.actors.entries()) begin(item, number, ACTORS);
  for (const [number, item] of plan.faults.entries()) begin(item, number, FAULTS);
  await end();
  if (plan.night) {
    await sleep(plan.night.ms);
    for (const [number, item] of plan.night.actors.entries())
      begin(item, plan.actors.length + number, ACTORS);
    await end();
  }
  // What a seller did not return comes back after the delay of its channel. Meanwhile a channel that nobody used for long
  // may begin to close.
  for (let waits = 0; waits < MOST_RETURNS; waits += 1) {
    const returnsMs = await lastReturnMs(backends);
    if (returnsMs <= timeline.nowMs) break;
    await sleep(returnsMs - timeline.nowMs);
    await end();
  }
  for (const text of await brokenIn(world, backends.monitor)) broken.add(text);
  await world.close();
  return { world, broken: [...broken] };
}

/** When the last withdrawal from a channel can be finished. */
async function lastReturnMs({ monitor }: Backends): Promise<number> {
  const { rows } = await monitor.query<{ at: Date | null }>(
    "SELECT max(returns_at) AS at FROM channels WHERE status = 'closing'",
  );
  return rows[0]?.at?.getTime() ?? 0;
}

/** A step of a withdrawal that the chain's state has overtaken is tried until its time is over, which is hours. */
const IS_CHANNEL_STEP = "(kind = 'withdrawal' AND nonce ^@ 'channel:')";

/** Whether anything is without a final outcome. */
async function isOpen(world: World, backends: Backends): Promise<boolean> {
  const { chain, agents } = world;
  const { monitor } = backends;
  const wallets = new Set<string>(agents.map(({ wallet }) => wallet));
  const arrived = [...chain.transfers()].filter(({ to }) => wallets.has(to)).length;
  const { rows } = await monitor.query<{ open: boolean }>(
    // Whether a request through a channel was charged may stay unknown until its next one.
    `SELECT EXISTS (SELECT FROM payments WHERE outstanding AND voucher IS NULL)
         OR EXISTS (SELECT FROM channels WHERE status = 'closing' AND (returns_at IS NULL OR returns_at <= $2))
         OR EXISTS (SELECT FROM settlements WHERE final_at IS NULL AND NOT ${IS_CHANNEL_STEP})
         OR EXISTS (SELECT FROM relayer_transactions WHERE status IN ('pending', 'included'))
         OR EXISTS (SELECT FROM ledger_differences WHERE healed_at IS NULL AND kind <> 'relayer_nonce')
         OR (SELECT count(*) FROM payments WHERE kind = 'incoming' AND status = 'settled') < $1 AS open`,
    [arrived, new Date(world.timeline.nowMs)],
  );
  return rows[0]?.open === true || (await isRelayedLater(world, backends));
}

/** Whether a payment that was refused has moved since: the service looks for that from time to time. */
async function isRelayedLater({ chain }: World, { monitor }: Backends): Promise<boolean> {
  const { rows } = await monitor.query<{ use: string }>(
    `SELECT from_address || ' ' || nonce || ' ' || to_address || ' ' || value AS use FROM settlements
      WHERE status = 'failed' AND proof->>'kind' = 'refusal'`,
  );
  const moved = new Set(usesIn(chain).map(({ key, to, value }) => `${key} ${to} ${value}`));
  return rows.some(({ use }) => moved.has(use));
}
