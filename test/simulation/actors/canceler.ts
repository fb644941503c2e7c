// An agent behind the MCP server: it cancels a call without a key, or loses the answer and calls again.
import { asAgent, usdc } from "../agents.ts";
import type { Kind } from "../kind.ts";
import { isOutcome, pause } from "../world.ts";

export const canceler: Kind = {
  weight: 2,
  async play(world, { random }) {
    const agent = random.pick(world.active);
    const to = random.pick(agent.payees);
    const amountAtomic = world.newAmount((agent.dailyLimit * BigInt(random.int(1, 3))) / 10n);
    const who = `call of ${amountAtomic}`;
    const purchase = {
      who,
      from: agent.wallet,
      to,
      amountAtomic,
      paid: new Set<string>(),
      wanted: 1,
      hasNoOutcome: false,
    };
    world.records.purchases.push(purchase);
    const call = `${who} 1`;
    const cancel = async (): Promise<void> => {
      await pause(random.int(0, 1_500));
      await world.ask({ route: "POST /cancel", body: { agentId: agent.id, call } });
    };
    const canceling = random.next() < 0.7 ? cancel() : undefined;
    for (let count = 1; count <= 20; count += 1) {
      const request = {
        route: "POST /api/agents/spend",
        body: { recipient: to, amount: usdc(amountAtomic) },
        as: asAgent(agent),
        cancelName: `${who} ${count}`,
      };
      const answer = await world.ask(request, undefined, 1);
      if (answer.status === 200) purchase.paid.add(String(answer.body["paymentId"]));
      purchase.hasNoOutcome = !isOutcome(answer);
      if (!purchase.hasNoOutcome) break;
    }
    await canceling;
  },
};
