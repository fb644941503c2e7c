// An agent at its limit: more payments at once than the limit has room for, at all processes.
import { asAgent, usdc, type KnownAgent } from "../agents.ts";
import type { Kind } from "../kind.ts";
import { pause, type World } from "../world.ts";
import { changePaymentsPerHour } from "./rules.ts";

export const burst: Kind = {
  weight: 3,
  async play(world, { random }) {
    const agent = random.pick(world.active);
    const most = random.int(1, 3);
    const isHourly = random.next() < 0.4;
    if (isHourly) await changePaymentsPerHour(world, agent, most);
    const count = most + random.int(1, 2);
    // As many as the day has room for, or few cents.
    const share = isHourly ? agent.dailyLimit / 20n : (agent.dailyLimit - 20_000n) / BigInt(most);
    const gapMs = random.pick([0, 50, 1_500]);
    const paying: Promise<void>[] = [];
    for (let number = 0; number < count; number += 1) {
      paying.push(pay(world, agent, { to: random.pick(agent.payees), about: share }));
      await pause(random.int(0, gapMs) + 1);
    }
    await Promise.all(paying);
  },
};

export async function pay(
  world: World,
  agent: KnownAgent,
  { to, about }: { to: `0x${string}`; about: bigint },
): Promise<void> {
  const amountAtomic = world.newAmount(about);
  const key = `burst-${amountAtomic}`;
  const intent = world.intend({ who: key, from: agent.wallet, to, amountAtomic });
  await world.untilAnswered(intent, {
    route: "POST /api/agents/spend",
    headers: { "idempotency-key": key },
    body: { recipient: to, amount: usdc(amountAtomic) },
    as: asAgent(agent),
  });
}
