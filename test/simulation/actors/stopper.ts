// An owner stops everything while its agents pay, and resumes. Before that a rule may have paused one of them; during the
// stop another may be paused by hand, and money is withdrawn.
import { asAgent, usdc, type KnownAgent } from "../agents.ts";
import { payee } from "../found.ts";
import { wordOf } from "../host.ts";
import type { Item, Kind } from "../kind.ts";
import { pause, type World } from "../world.ts";
import { pay } from "./burst.ts";
import { activated, change, patchOf, wanted } from "./rules.ts";
import { withdraw } from "./withdrawal.ts";

type Random = Item["random"];

export const stopper: Kind = {
  weight: 2,
  async play(world, { random }) {
    const agent = random.pick(world.active);
    const own = ownedWith(world, agent);
    if (random.next() < 0.6) await letRulePause(world, random.pick(own), random);
    const meanwhile: Promise<void>[] = [];
    if (random.next() < 0.7) meanwhile.push(paySome(world, random.pick(own), random));
    if (random.next() < 0.3) {
      const changed = random.pick(own);
      meanwhile.push(change(world, changed, wanted(changed, random)));
    }
    await pause(random.int(0, 400));
    await stopEverything(world, own);
    await whileStopped(world, own, random);
    await Promise.all(meanwhile);
    await pause(random.int(0, 1_000));
    if (random.next() < 0.9) await resumeEverything(world, own);
    for (const each of own) await paySome(world, each, random);
  },
};

/** The agents of the same owner that act, this one included. */
const ownedWith = (world: World, { owner }: KnownAgent): KnownAgent[] =>
  world.active.filter((each) => each.owner.id === owner.id);

const paySome = (world: World, agent: KnownAgent, random: Random): Promise<void> =>
  pay(world, agent, {
    to: random.pick(agent.payees),
    about: (agent.dailyLimit * BigInt(random.int(1, 4))) / 20n,
  });

/** The owner sets a rule that pauses, and the agent breaks it. The spending rate needs days before that. */
async function letRulePause(world: World, agent: KnownAgent, random: Random): Promise<void> {
  const rule = random.next() < 0.3 ? { pauseAtRate: 2 } : { pauseAfterFailures: 1 };
  await change(world, agent, patchOf(agent, rule, []));
  // One is refused for another reason and counts as a failure, and the next one is refused by the rule.
  for (const to of [payee(91), random.pick(agent.payees)]) {
    const sentMs = world.timeline.nowMs;
    const amountAtomic = world.newAmount(agent.dailyLimit / 20n);
    const key = `stopper-${amountAtomic}`;
    const intent = world.intend({ who: key, from: agent.wallet, to, amountAtomic });
    const { body } = await world.untilAnswered(intent, {
      route: "POST /api/agents/spend",
      headers: { "idempotency-key": key },
      body: { recipient: to, amount: usdc(amountAtomic) },
      as: asAgent(agent),
    });
    if (body["code"] !== "paused_by_rule") continue;
    const paused = world.records.rules.begin([agent.id], [["pausedByRule", "yes"]], sentMs);
    paused.certainMs = world.timeline.nowMs;
    paused.overMs = world.timeline.nowMs;
  }
}

async function stopEverything(world: World, own: readonly KnownAgent[]): Promise<void> {
  const [first] = own as [KnownAgent];
  const call = { route: "POST /api/owner/stop" };
  await change(world, first, { values: [["stopped", "yes"]], call }, allOf(world, first));
}

async function resumeEverything(world: World, own: readonly KnownAgent[]): Promise<void> {
  const [first] = own as [KnownAgent];
  const call = { route: "POST /api/owner/resume", body: {} };
  await change(world, first, { values: [["stopped", "no"]], call }, allOf(world, first));
}

/** Also those that do not act in this world. */
const allOf = (world: World, { owner }: KnownAgent): KnownAgent[] =>
  world.agents.filter((each) => each.owner.id === owner.id);

async function whileStopped(
  world: World,
  own: readonly KnownAgent[],
  random: Random,
): Promise<void> {
  const agent = random.pick(own);
  const kind = random.next();
  if (kind < 0.3) return withdrawFrom(world, agent, random);
  if (kind < 0.6)
    return change(world, agent, patchOf(agent, { status: "paused" }, [["status", "paused"]]));
  if (kind < 0.75) return change(world, agent, activated(agent));
  if (kind < 0.9) return paySome(world, agent, random);
}

/** Money can be withdrawn, whatever is stopped. */
async function withdrawFrom(world: World, agent: KnownAgent, random: Random): Promise<void> {
  const amount = usdc(world.newAmount(BigInt(random.int(1, 3)) * 100_000n));
  for (const { body } of await withdraw(world, agent, amount, random)) {
    const code = wordOf(body["code"]);
    if (REFUSED_BY_STOP.has(code))
      world.failures.push(`a withdrawal of ${amount} was refused while stopped: ${code}`);
  }
}
const REFUSED_BY_STOP = new Set(["owner_stopped", "agent_paused", "paused_by_rule"]);
