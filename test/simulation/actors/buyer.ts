// An agent that sends no keys: it repeats the same call until it has an answer, and sometimes buys the same again.
import { asAgent, usdc } from "../agents.ts";
import type { Kind } from "../kind.ts";
import type { Purchase } from "../records.ts";
import { pause, type World } from "../world.ts";

export const buyer: Kind = {
  weight: 3,
  async play(world, { random }) {
    const agent = random.pick(world.active);
    const to = random.pick(agent.payees);
    const amountAtomic = world.newAmount((agent.dailyLimit * BigInt(random.int(1, 3))) / 10n);
    const purchase: Purchase = {
      who: `purchase of ${amountAtomic}`,
      from: agent.wallet,
      to,
      amountAtomic,
      paid: new Set(),
      wanted: 0,
      hasNoOutcome: false,
    };
    world.records.purchases.push(purchase);
    for (let count = random.int(1, 2); count > 0; count -= 1) {
      purchase.wanted += 1;
      await buy(world, purchase, asAgent(agent));
      await pause(random.int(30, 3_000));
    }
  },
};

async function buy(world: World, purchase: Purchase, as: Record<string, unknown>): Promise<void> {
  const { to, amountAtomic, paid } = purchase;
  const answer = await world.ask({
    route: "POST /api/agents/spend",
    body: { recipient: to, amount: usdc(amountAtomic) },
    as,
  });
  if (answer.status === 200) paid.add(String(answer.body["paymentId"]));
  else if (answer.status === 0 || answer.body["code"] === "payment_status_unknown")
    purchase.hasNoOutcome = true;
}
