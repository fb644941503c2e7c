// An agent that pays: several payments one after the other, or at once, each with a key, until it has an outcome.
import { asAgent, type KnownAgent } from "../agents.ts";
import { usdc } from "../agents.ts";
import type { Kind } from "../kind.ts";
import { pause, type World } from "../world.ts";

export const spender: Kind = {
  weight: 4,
  async play(world, { random }) {
    const agent = random.pick(world.active);
    const isAtOnce = random.next() < 0.3;
    const paying: Promise<void>[] = [];
    for (let count = random.int(1, 3); count > 0; count -= 1) {
      const share = BigInt(random.int(1, 6));
      const amountAtomic = world.newAmount((agent.dailyLimit * share) / 10n);
      const payment = spend(world, agent, { to: random.pick(agent.payees), amountAtomic });
      paying.push(payment);
      if (!isAtOnce) await payment;
      await pause(random.int(0, 3_000));
    }
    await Promise.all(paying);
  },
};

async function spend(
  world: World,
  agent: KnownAgent,
  { to, amountAtomic }: { to: `0x${string}`; amountAtomic: bigint },
): Promise<void> {
  const key = `spend-${amountAtomic}`;
  const intent = world.intend({ who: key, from: agent.wallet, to, amountAtomic });
  await world.untilAnswered(intent, {
    route: "POST /api/agents/spend",
    headers: { "idempotency-key": key },
    body: { recipient: to, amount: usdc(amountAtomic) },
    as: asAgent(agent),
  });
}
