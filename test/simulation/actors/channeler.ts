// An agent that buys from one seller through a payment channel, request after request or several at once, each with a key
// until it knows what became of it. In the end its owner may close the channel.
import { asAgent, type KnownAgent } from "../agents.ts";
import { ChannelShop } from "../channel-shop.ts";
import { wordOf } from "../host.ts";
import type { Item, Kind } from "../kind.ts";
import type { ChannelAnswer, ChannelSale } from "../sales.ts";
import { currentActor } from "../time.ts";
import { isOutcome, pause, type Client, type World } from "../world.ts";
import { ownerAsks } from "./owner.ts";

type Random = Item["random"];

const TRIES = 40;
const FEW_TRIES = 8;
const SHORTEST_DELAY_SECONDS = 900;
const SELLERS: readonly (readonly [ChannelSale["kind"], number])[] = [
  ["honest", 3],
  ["sloppy", 4],
  ["forgetful", 1],
  ["greedy", 2],
  ["liar", 1],
];

export const channeler: Kind = {
  weight: 4,
  async play(world, { random }) {
    const agent = random.pick(world.active);
    const priceAtomic = world.newAmount(BigInt(random.int(2, 60)) * 1_000n);
    const kind = random.weighted(SELLERS);
    const sale: ChannelSale = {
      who: `channel of ${priceAtomic} (${kind})`,
      kind,
      from: agent.wallet,
      to: random.pick(agent.payees),
      priceAtomic,
      delaySeconds: SHORTEST_DELAY_SECONDS,
      isRefusedAgain: false,
      charges: new Map(),
      once: new Set(),
      answers: new Map(),
    };
    world.sales.channels.push(sale);
    // Its lies close the channel.
    if (kind === "liar") world.sales.isClosing = true;
    const shop = new ChannelShop(world, random, sale);
    const buying: Promise<void>[] = [];
    // While requests and deposits are under way.
    if (random.next() < 0.15) buying.push(closeLater(world, agent, random.int(0, 5_000)));
    for (let request = random.int(2, 5); request > 0; request -= 1) {
      const bought = buy(world, agent, { sale, shop, request: String(request), random });
      buying.push(bought);
      if (random.next() < 0.7) await bought;
      await pause(random.int(0, 2_000));
    }
    await Promise.all(buying);
    if (random.next() < 0.3) shop.claim();
    if (random.next() < 0.3) shop.isGone = true;
    if (random.next() < 0.3) await close(world, agent);
  },
};

async function closeLater(world: World, agent: KnownAgent, ms: number): Promise<void> {
  await pause(ms);
  await close(world, agent);
}

async function close(world: World, agent: KnownAgent): Promise<void> {
  world.sales.isClosing = true;
  await ownerAsks(world, agent, {
    route: "POST /api/agents/:id/channels/close",
    params: { id: agent.id },
  });
}

async function buy(
  world: World,
  agent: KnownAgent,
  {
    sale,
    shop,
    request,
    random,
  }: { sale: ChannelSale; shop: ChannelShop; request: string; random: Random },
): Promise<void> {
  const client = currentActor() as Client;
  const isSafe = random.next() < 0.7;
  const body = {
    url: `${shop.url}?n=${request}`,
    timeoutMs: random.int(3_000, 12_000),
    ...(isSafe ? {} : { method: "POST", body: { order: request } }),
  };
  const headers = { "idempotency-key": `channel-${sale.priceAtomic}-${request}` };
  const answers: ChannelAnswer[] = [];
  sale.answers.set(request, answers);
  if (!isSafe) sale.once.add(request);
  for (let tries = 0; tries < (isSafe && !world.sales.isClosing ? TRIES : FEW_TRIES);) {
    const service = world.anyService();
    if (service) tries += 1;
    const answered = service
      ? await world.request(
          client,
          service,
          { route: "POST /api/agents/x402-fetch", headers, body, as: asAgent(agent) },
          world.patienceMs(),
        )
      : undefined;
    const answer: Record<string, unknown> = answered?.body ?? {};
    const code = wordOf(answer["code"]);
    world.timeline.note(
      `${client.name}: request ${request} of ${sale.who} is answered ${answered?.status ?? 0} ${code} ${String(answer["paid"])} ${wordOf(answer["amountPaid"])}`,
    );
    if (answered && isOutcome(answered) && !BUSY.has(code)) {
      const isPaid =
        code === "charge_not_known"
          ? undefined
          : answer["paid"] === true || code === "paid_upstream_failed";
      answers.push({
        isPaid,
        amount: wordOf(answer["amountPaid"] ?? "0"),
        text: JSON.stringify(answer).slice(0, 300),
      });
      const isStored = isPaid === true || answered.status === 200;
      if (!isStored || answers.length > 1 || random.next() < 0.7) return;
    }
    await pause(300 + random.int(0, 3_000));
  }
}
const BUSY = new Set(["fetch_capacity", "channel_busy"]);
