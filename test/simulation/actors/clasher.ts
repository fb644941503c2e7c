// Agents that use keys wrongly: one key for two payments, one key at two agents, and the same call twice at once.
import { asAgent, usdc, type KnownAgent } from "../agents.ts";
import type { Item, Kind } from "../kind.ts";
import { pause, type World } from "../world.ts";

type Random = Item["random"];

export const clasher: Kind = {
  weight: 2,
  async play(world, { random }) {
    const [one, other] = random.shuffled(world.agents) as [KnownAgent, KnownAgent];
    const key = `shared-${world.newAmount(0n)}`;
    const kind = random.next();
    if (kind < 0.4)
      await Promise.all([spend(world, one, key, random), spend(world, one, key, random)]);
    else if (kind < 0.6)
      await Promise.all([spend(world, one, key, random), spend(world, other, key, random)]);
    else await twice(world, one, key, random);
  },
};

const amountFor = (world: World, { dailyLimit }: KnownAgent, random: Random): bigint =>
  world.newAmount((dailyLimit * BigInt(random.int(1, 4))) / 10n);

async function spend(world: World, agent: KnownAgent, key: string, random: Random): Promise<void> {
  const amountAtomic = amountFor(world, agent, random);
  const to = random.pick(agent.payees);
  const intent = world.intend({
    who: `${key} ${amountAtomic}`,
    from: agent.wallet,
    to,
    amountAtomic,
  });
  await pause(random.int(0, 1_500));
  await world.untilAnswered(intent, {
    route: "POST /api/agents/spend",
    headers: { "idempotency-key": key },
    body: { recipient: to, amount: usdc(amountAtomic) },
    as: asAgent(agent),
  });
}

/** Two clients send the same call with the same key: both are told the same. */
async function twice(world: World, agent: KnownAgent, key: string, random: Random): Promise<void> {
  const amountAtomic = amountFor(world, agent, random);
  const to = random.pick(agent.payees);
  const call = {
    route: "POST /api/agents/spend",
    headers: { "idempotency-key": key },
    body: { recipient: to, amount: usdc(amountAtomic) },
    as: asAgent(agent),
  };
  const clients = [1, 2].map(async (number) => {
    const who = `${key} by client ${number}`;
    const intent = world.intend({ who, from: agent.wallet, to, amountAtomic });
    if (number === 2) await pause(random.int(0, 300));
    await world.untilAnswered(intent, call);
  });
  await Promise.all(clients);
}
