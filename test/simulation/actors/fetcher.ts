// An agent that buys from sellers of all kinds, each purchase with a key, until it knows what became of it.
import { wordOf } from "../host.ts";
import { asAgent, type KnownAgent } from "../agents.ts";
import type { Random } from "../../helpers/random.ts";
import type { Kind } from "../kind.ts";
import { Shop } from "../shop.ts";
import type { Fetched } from "../sales.ts";
import { currentActor } from "../time.ts";
import { isOutcome, pause, type Client, type World } from "../world.ts";

const TRIES = 50;

export const fetcher: Kind = {
  weight: 3,
  async play(world, { random }) {
    const agent = random.pick(world.agents);
    const buying: Promise<void>[] = [];
    for (let count = random.int(1, 3); count > 0; count -= 1) {
      const bought = buy(world, agent, random);
      buying.push(bought);
      if (random.next() < 0.5) await bought;
      await pause(random.int(0, 3_000));
    }
    await Promise.all(buying);
  },
};

async function buy(world: World, agent: KnownAgent, random: Random): Promise<void> {
  const amountAtomic = world.newAmount((agent.dailyLimit * BigInt(random.int(1, 6))) / 10n);
  const isSafe = random.next() < 0.6;
  const purchase: Fetched = {
    who: `fetch ${amountAtomic}`,
    from: agent.wallet,
    to: random.pick(agent.payees),
    prices: [amountAtomic],
    answers: [],
    proofs: 0,
    isSafe,
  };
  const shop = new Shop(world, random, purchase);
  purchase.who += ` (${shop.manner})`;
  world.sales.fetched.push(purchase);
  const client = currentActor() as Client;
  const body = {
    url: shop.url,
    timeoutMs: random.int(2_000, 9_000),
    ...(isSafe ? {} : { method: "POST", body: { order: String(amountAtomic) } }),
  };
  const as = asAgent(agent);
  const route = "POST /api/agents/x402-fetch";
  if (random.next() < 0.15) {
    const service = world.anyService();
    const quote =
      service &&
      (await world.request(client, service, { route, body: { ...body, dryRun: true }, as }));
    if (quote?.status === 200 && quote.body["paid"] !== false)
      world.failures.push(`${purchase.who}: a quote was paid`);
  }
  const headers = { "idempotency-key": `fetch-${amountAtomic}` };
  for (let tries = 0; tries < TRIES;) {
    const service = world.anyService();
    if (service) tries += 1;
    const answered = service
      ? await world.request(client, service, { route, headers, body, as })
      : undefined;
    const status = answered?.status ?? 0;
    const answer: Record<string, unknown> = answered?.body ?? {};
    const code = wordOf(answer["code"]);
    world.timeline.note(
      `${client.name}: ${purchase.who} is answered ${status} ${code} ${String(answer["paid"])}`,
    );
    if (answered && isOutcome(answered) && code !== "fetch_capacity") {
      const isPaid = answer["paid"] === true || code === "paid_upstream_failed";
      purchase.answers.push({
        isPaid,
        amount: wordOf(answer["amountPaid"] ?? "0"),
        txHash: (answer["txHash"] as string | null | undefined) ?? null,
        text: JSON.stringify(answer).slice(0, 300),
      });
      // What is stored with the key is answered once more.
      const isStored = isPaid || status === 200;
      if (!isStored || purchase.answers.length > 1 || random.next() < 0.7) return;
    }
    await pause(300 + random.int(0, 4_000));
  }
}
