// One world from its beginning to its end, and what must be true then.
import type { Address } from "viem";
import type { Backends } from "./database.ts";
import type { Answer } from "./host.ts";
import { inside, type Event } from "./time.ts";
import { Client, World, type KnownAgent, type Lost } from "./world.ts";

interface Payment {
  agent: KnownAgent;
  key: string;
  to: Address;
  amountAtomic: bigint;
  answer?: Answer | Lost;
}

const COME_AGAIN = new Set([
  "connection lost",
  "gave up",
  "idempotency_in_progress",
  "payment_status_unknown",
  "chain_unavailable",
  "service_unavailable",
  "relayer_unfunded",
  "rate_limited",
  "internal_error",
  "agent_busy",
  "keys_unavailable",
]);

export async function playWorld(
  seed: number,
  backends: Backends,
  agents: readonly KnownAgent[],
  url: string,
): Promise<{ world: World; broken: string[] }> {
  const world = new World(seed, backends, agents, url);
  world.renewIds();
  const { random, timeline } = world;
  if (process.env["TRACE"]) timeline.onEvent = ({ label, actor }: Event) => timeline.note(`${actor?.name ?? "-"} ${label}`);
  const payments: Payment[] = [];
  for (const agent of agents) world.chain.mint(agent.wallet, 100_000_000n);
  for (let count = random.int(1, 2); count > 0; count -= 1) world.startService();
  let open = 0;
  const pay = async (client: Client, payment: Payment): Promise<void> => {
    for (let attempt = 0; attempt < 40; attempt += 1) {
      const service = world.anyService();
      const { agent } = payment;
      const answer = service
        ? await world.request(client, service, {
            route: "POST /api/agents/spend",
            headers: { "idempotency-key": payment.key },
            body: { recipient: payment.to, amount: (Number(payment.amountAtomic) / 1e6).toFixed(6) },
            as: { agent: { id: agent.id, ownerId: agent.owner.id, apiKeyId: agent.keyId, walletAddress: agent.wallet, network: "eip155:84532", name: "x", status: "active", fetch: "any", expiresAt: null } },
          })
        : { status: 0 as const, body: { code: "connection lost" } };
      payment.answer = answer;
      timeline.note(`${client.name} ${payment.key} got ${answer.status} ${JSON.stringify(answer.body).slice(0, 160)}`);
      if (!COME_AGAIN.has(String(answer.body["code"] ?? ""))) return;
      await new Promise((resolve) => setTimeout(resolve, 500 + random.int(0, 3_000)));
    }
  };
  for (const [index, agent] of agents.entries()) {
    if (random.next() < 0.3) continue;
    const client = new Client(timeline, `a${index + 1}`);
    const count = random.int(1, 3);
    open += 1;
    inside(client, () => {
      void (async () => {
        await new Promise((resolve) => setTimeout(resolve, 200 + random.int(0, 4_000)));
        for (let number = 0; number < count; number += 1) {
          const payment: Payment = {
            agent,
            key: `key-${index}-${number}`,
            to: random.pick(agent.payees),
            amountAtomic: BigInt(random.int(1, 9) * 100_000 + payments.length),
          };
          payments.push(payment);
          await pay(client, payment);
          await new Promise((resolve) => setTimeout(resolve, random.int(0, 3_000)));
        }
        open -= 1;
      })();
    });
  }
  // A crash at any moment of the busy time, sometimes two.
  for (let crashes = random.int(0, 2); crashes > 0; crashes -= 1)
    timeline.after(random.next() * 12_000, undefined, "crash", () => {
      const victim = world.services[random.int(0, world.services.length - 1)];
      if (!victim) return;
      world.crash(victim);
      timeline.after(random.int(200, 5_000), undefined, "restart", () => void world.startService());
    });
  const limitMs = timeline.nowMs + 15 * 60_000;
  const isQuiet = async (): Promise<boolean> => {
    if (open > 0) return false;
    const { rows } = await backends.monitor.query<{ open: number }>(
      `SELECT (SELECT count(*) FROM payments WHERE outstanding)::int
            + (SELECT count(*) FROM settlements WHERE status IN ('queued','submitted') OR final_at IS NULL)::int AS open`,
    );
    return rows[0]?.open === 0;
  };
  while (timeline.nowMs < limitMs && !(await isQuiet()))
    await timeline.runUntil(timeline.nowMs + 3_000);
  const broken = await check(world, backends, payments);
  await world.close();
  return { world, broken };
}

async function check(world: World, backends: Backends, payments: Payment[]): Promise<string[]> {
  const broken: string[] = [];
  const query = backends.monitor.query.bind(backends.monitor);
  const { chain, timeline } = world;
  const moved = new Map<string, number>();
  for (const { from, to, value } of chain.transfers()) {
    const key = `${from} ${to} ${value}`;
    moved.set(key, (moved.get(key) ?? 0) + 1);
  }
  for (const payment of payments) {
    const { agent, to, amountAtomic, answer, key } = payment;
    const times = moved.get(`${agent.wallet} ${to.toLowerCase()} ${amountAtomic}`) ?? 0;
    const isPaid = answer?.status === 200;
    const code = String(answer?.body["code"] ?? "");
    if (times > 1) broken.push(`${key}: paid ${times} times`);
    if (isPaid && times === 0) broken.push(`${key}: answered paid, nothing moved`);
    if (!isPaid && times > 0) broken.push(`${key}: answered ${answer?.status} ${code}, but it moved`);
    if (COME_AGAIN.has(code)) broken.push(`${key}: no outcome until the end (${code} ${JSON.stringify(answer?.body)})`);
  }
  const { rows: settlements } = await query<{ id: string; status: string; tx_hash: string; from_address: string; nonce: string; final: boolean }>(
    "SELECT id, status, tx_hash, from_address, nonce, final_at IS NOT NULL AS final FROM settlements",
  );
  const uses = new Map([...chain.ends()].filter(({ kind }) => kind === "used").map((end) => [`${end.from} ${end.nonce}`, end.txHash]));
  for (const row of settlements) {
    const use = uses.get(`${row.from_address} ${row.nonce}`);
    if (row.status === "settled" ? use !== row.tx_hash : use !== undefined)
      broken.push(`${row.id} is ${row.status} by ${row.tx_hash}, the chain has ${use}`);
    if (!row.final || ["queued", "submitted"].includes(row.status)) broken.push(`${row.id} is still ${row.status}, final ${row.final}`);
    uses.delete(`${row.from_address} ${row.nonce}`);
  }
  for (const [key] of uses) broken.push(`the chain used ${key}, which the ledger does not know`);
  const { rows: outstanding } = await query("SELECT id, status FROM payments WHERE outstanding");
  for (const row of outstanding) broken.push(`payment ${JSON.stringify(row)} is outstanding`);
  for (const agent of world.agents) {
    let sum = 0n;
    for (const { from, value } of chain.transfers()) if (from === agent.wallet) sum += value;
    if (sum > agent.dailyLimit) broken.push(`agent ${agent.id} spent ${sum} of ${agent.dailyLimit}`);
  }
  void timeline;
  return broken;
}
