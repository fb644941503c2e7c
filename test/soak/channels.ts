// Payment channels in the soak: agents that pay a shop of our paywall by vouchers, and the books of each channel at the end, from the
// chain's own logs. It uses none of the service's code.
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { HTTPFacilitatorClient, type FacilitatorClient } from "@x402/core/server";
import type { Pool } from "pg";
import type { Test } from "tap";
import { getAbiItem, type Hex } from "viem";
import { privateKeyToAddress } from "viem/accounts";
import { OneProcessChannelStore } from "../../packages/paywall/src/paywall.ts";
import { CHANNEL_KEY } from "../helpers/app.ts";
import { CHANNELS, CHANNELS_ABI } from "../helpers/batch-settlement.ts";
import type { TestChain } from "../helpers/chain.ts";
import { randomNonce } from "../helpers/engine.ts";
import { openChannelShop, PRICE } from "../paywall/channel-shop.ts";
import { atomic, callUntilAnswered, count, openAgent, type SoakAgent } from "./clients.ts";
import type { SoakContext } from "./clients.ts";
import { check, type Check } from "./reconciliation.ts";
import type { World } from "./world.ts";

const AGENTS = 2;
const LOOPS = 2;
const FUNDS = 10_000_000n;
const PATIENCE_MS = 10_000;
const END_PATIENCE_MS = 60_000;

export interface ChannelLoad {
  origin: string;
  /** When the replicas run, and before the load. */
  open(context: SoakContext): Promise<void>;
  run(context: SoakContext): Promise<void>;
  /** One more payment each decides those whose outcome is not known yet. */
  end(context: SoakContext): Promise<void>;
  check(world: World): Promise<Check[]>;
}

/** Its origin is known before the replicas run, which must be allowed to fetch from it. */
export async function channelLoad(t: Pick<Test, "teardown">): Promise<ChannelLoad> {
  const agents: SoakAgent[] = [];
  const reported = new Map<string, bigint>();
  const store = new OneProcessChannelStore();
  let shopOrigin = "";
  const door = createServer((request, response) => {
    const forward = async (): Promise<void> => {
      const headers = request.headers as Record<string, string>;
      const answer = await fetch(`${shopOrigin}${request.url}`, { headers });
      const body = Buffer.from(await answer.arrayBuffer());
      const shown = Object.fromEntries(answer.headers);
      delete shown["content-encoding"];
      delete shown["content-length"];
      response.writeHead(answer.status, shown).end(body);
    };
    forward().catch(() => response.destroy());
  }).listen(0, "127.0.0.1");
  await new Promise((resolve) => door.once("listening", resolve));
  t.teardown(() => {
    door.closeAllConnections();
    return new Promise((resolve) => void door.close(resolve));
  });
  const origin = `http://127.0.0.1:${(door.address() as AddressInfo).port}`;

  async function pay(
    context: SoakContext,
    agent: SoakAgent,
    patienceMs: number,
  ): Promise<string | undefined> {
    const used = context.random.int(0, Number(PRICE));
    const key = randomNonce();
    const reply = await callUntilAnswered(context, "/api/agents/x402-fetch", {
      headers: () => ({
        authorization: `Bearer ${agent.apiKey}`,
        "idempotency-key": key,
      }),
      body: { url: `${origin}/words?used=${used}`, timeoutMs: 6_000 },
      patienceMs,
    });
    if (!reply) return undefined;
    const { paid, amountPaid, code } = reply.body;
    if (paid === true) {
      context.notes.lastPaidMs = performance.now();
      const before = reported.get(agent.id) ?? 0n;
      reported.set(agent.id, before + atomic(String(amountPaid)));
      return "paid";
    }
    return typeof code === "string" ? code : "not paid";
  }

  return {
    origin,
    async open(context) {
      const { chain, replicas } = context.world;
      const clients = replicas.map(
        ({ url }) => new HTTPFacilitatorClient({ url: `${url}/api/x402` }),
      );
      const any = (): HTTPFacilitatorClient => {
        const up = clients.filter((_, index) => replicas[index]?.isUp);
        return context.random.pick(up.length > 0 ? up : clients);
      };
      const facilitator: FacilitatorClient = {
        verify: (...args) => any().verify(...args),
        settle: (...args) => any().settle(...args),
        getSupported: () => any().getSupported(),
      };
      const shop = await openChannelShop(t, chain, {
        facilitator,
        store,
        channels: { claimEvery: "1m" },
      });
      shopOrigin = shop.origin;
      const signer = privateKeyToAddress(CHANNEL_KEY);
      await chain.testClient.setBalance({ address: signer, value: 10n ** 20n });
      const [owner] = context.agents.map((agent) => agent.owner);
      if (!owner) throw new Error("no owner");
      for (let index = 0; index < AGENTS; index += 1)
        agents.push(
          await openAgent(context, owner, {
            allowlist: [shop.payTo],
            limitAtomic: FUNDS,
            fundsAtomic: FUNDS,
            rules: { channelHeld: "1", channelDelay: 86_400 },
          }),
        );
      await chain.mint(
        agents.map(({ wallet }) => wallet),
        FUNDS,
      );
    },
    async run(context) {
      const loop = async (agent: SoakAgent): Promise<void> => {
        while (!context.signal.aborted) {
          count(
            context.notes,
            `channel payments: ${(await pay(context, agent, PATIENCE_MS)) ?? "unknown"}`,
          );
          await sleep(context.random.int(100, 400));
        }
      };
      await Promise.all(
        agents.flatMap((agent) => Array.from({ length: LOOPS }, () => loop(agent))),
      );
    },
    async end(context) {
      for (const agent of agents) {
        const untilMs = performance.now() + END_PATIENCE_MS;
        while (performance.now() < untilMs)
          if ((await pay(context, agent, PATIENCE_MS)) === "paid") break;
      }
      // So that the service compares all of them now.
      await context.world.postgres.pool.query("UPDATE channels SET prove_at = '-infinity'");
    },
    check: async ({ chain, postgres }) => [
      ...(await checkChannels(chain, postgres.pool, store)),
      ...(await checkReports(postgres.pool, reported)),
    ],
  };
}

interface ChannelRow {
  agent_id: string;
  id: Hex;
  ceiling: string;
  charged: string;
  returned: string;
  deposited: string;
  growth: string;
  counted: string;
  is_proven: boolean;
}

const sumOf = (amounts: readonly bigint[]): bigint => amounts.reduce((sum, one) => sum + one, 0n);

async function checkChannels(
  chain: TestChain,
  pool: Pool,
  store: OneProcessChannelStore,
): Promise<Check[]> {
  const { rows } = await pool.query<ChannelRow>(
    `SELECT c.agent_id, c.id, c.ceiling::text, c.charged::text, c.returned::text, c.prove_at > now() AS is_proven,
            (SELECT coalesce(sum(p.amount), 0)::text FROM payments p
              WHERE p.agent_id = c.agent_id AND p.channel_id = c.id AND p.kind = 'deposit' AND p.status = 'settled') AS deposited,
            (SELECT coalesce(sum(p.amount), 0)::text FROM payments p
              WHERE p.agent_id = c.agent_id AND p.channel_id = c.id AND p.voucher IS NOT NULL) AS growth,
            (SELECT coalesce(sum(p.charged), 0)::text FROM payments p
              WHERE p.agent_id = c.agent_id AND p.channel_id = c.id AND p.status = 'settled') AS counted
       FROM channels c`,
  );
  const wrong: string[] = [];
  const late: string[] = [];
  for (const row of rows) {
    const amounts = async (name: "Deposited" | "Refunded" | "WithdrawFinalized" | "Claimed") => {
      const logs = await chain.publicClient.getLogs({
        address: CHANNELS,
        event: getAbiItem({ abi: CHANNELS_ABI, name }),
        args: { channelId: row.id },
        fromBlock: 0n,
      } as never);
      return sumOf(logs.map(({ data }: { data: Hex }) => BigInt(data.slice(0, 66))));
    };
    const [deposited, refunded, withdrawn, claimed, [balance, totalClaimed], record] =
      await Promise.all([
        amounts("Deposited"),
        amounts("Refunded"),
        amounts("WithdrawFinalized"),
        amounts("Claimed"),
        chain.publicClient.readContract({
          address: CHANNELS,
          abi: CHANNELS_ABI,
          functionName: "channels",
          args: [row.id],
        }),
        store.find(row.id),
      ]);
    const must = (isTrue: boolean, what: string): void => {
      if (!isTrue) wrong.push(`${row.id}: ${what}`);
    };
    const charged = BigInt(row.charged);
    must(BigInt(row.deposited) === deposited, `${row.deposited} deposited, on chain ${deposited}`);
    must(balance === deposited - refunded - withdrawn, `balance ${balance} of ${deposited}`);
    must(BigInt(row.returned) === refunded + withdrawn, `${row.returned} came back`);
    must(totalClaimed === claimed && claimed <= charged, `${claimed} claimed of ${charged}`);
    must(charged <= BigInt(row.ceiling), `${charged} charged, ${row.ceiling} signed`);
    must(row.growth === row.ceiling, `${row.growth} counts as spent, ${row.ceiling} is signed`);
    must(row.counted === row.charged, `payments were charged ${row.counted} of ${charged}`);
    const sold = record?.channel.charged;
    must(sold === row.charged, `the shop charged ${sold}, the wallet knows ${charged}`);
    if (!row.is_proven) late.push(row.id);
  }
  const { rows: open } = await pool.query<{ kind: string; key: string }>(
    "SELECT kind, key FROM ledger_differences WHERE kind LIKE 'channel%'",
  );
  return [
    check("channels: deposits are claimed, returned or still there", rows.length, wrong),
    check("channels: proven by the service, without a difference", rows.length, [
      ...late,
      ...open.map(({ kind, key }) => `${kind} ${key}`),
    ]),
  ];
}

/** What clients received as paid was charged. More may be: some answers were lost. */
async function checkReports(pool: Pool, reported: ReadonlyMap<string, bigint>): Promise<Check[]> {
  const { rows } = await pool.query<{ agent_id: string; charged: string }>(
    "SELECT agent_id, sum(charged)::text AS charged FROM channels GROUP BY agent_id",
  );
  const wrong = rows.flatMap(({ agent_id: id, charged }) => {
    const said = reported.get(id) ?? 0n;
    return said > BigInt(charged) ? [`${id}: ${said} reported as paid, ${charged} charged`] : [];
  });
  return [check("channels: reported as paid, and charged", rows.length, wrong)];
}
