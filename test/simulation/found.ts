// The owners and agents that every world starts with, made by the service itself.
import type { Address, Hex } from "viem";
import { privateKeyToAccount } from "viem/accounts";
import { newId } from "../../server/core/ids.ts";
import { signOrder } from "../helpers/owner.ts";
import type { Backends } from "./database.ts";
import { usdc, type KnownAgent } from "./agents.ts";
import { inside } from "./time.ts";
import { Client, START_MS, World } from "./world.ts";

const USDC = 1_000_000n;
/** What an agent may leave unspent in payment channels. */
export const HELD_ATOMIC = 1_500_000n;
const LONGEST_DELAY_SECONDS = 3_600;
/** Before all worlds, so that leases and sessions have ended. */
const DAY_MS = 86_400_000;
export const payee = (number: number): Address =>
  `0x${(0xfee0000 + number).toString(16).padStart(40, "0")}`;
const PAYEES = Array.from({ length: 6 }, (_, index) => payee(index + 1));

async function foundOwner(backends: Backends, client: Client, number: number) {
  const key: Hex = `0x${(0xabc0 + number).toString(16).padStart(64, "0")}`;
  const account = privateKeyToAccount(key);
  const id = inside(client, () => newId("own"));
  const address = account.address.toLowerCase() as Address;
  await backends.monitor.query("INSERT INTO owners (id, address) VALUES ($1, $2)", [id, address]);
  // Notifications of payments are recorded where somebody receives them. Nobody sends them in a world.
  if (number === 1)
    await backends.monitor.query(
      `INSERT INTO webhooks (id, owner_id, url, types, secret, secret_kid, secret_hint)
       VALUES ($1, $2, 'https://owner.test', '{*}', '', 'simulation', '')`,
      [`whk_${String(number).padStart(26, "0")}`, id],
    );
  return { id, address, account, key };
}

export async function found(backends: Backends, url: string): Promise<KnownAgent[]> {
  const world = new World(0, backends, [], url, START_MS - DAY_MS);
  world.renewIds();
  const service = world.startService();
  await world.timeline.runUntil(world.timeline.nowMs + 20_000);
  if (!service.isReady) throw new Error("the service did not start", { cause: service.failed });
  const agents: KnownAgent[] = [];
  const client = new Client(world.timeline, "founder");
  // The first two have the same owner.
  const shared = await foundOwner(backends, client, 1);
  for (const number of [1, 2, 3, 4]) {
    const owner = number <= 2 ? shared : await foundOwner(backends, client, number);
    const { id, address, account } = owner;
    const as = {
      owner: { id, address, chainId: 0, second: null, sessionId: "ses_founder" },
    };
    const dailyLimit = BigInt(number) * USDC;
    let body: Record<string, unknown> = {
      name: `Agent ${number}`,
      dailyLimit: String(number),
      allowlist: PAYEES,
      channelHeld: usdc(HELD_ATOMIC),
      channelDelay: LONGEST_DELAY_SECONDS,
    };
    for (;;) {
      const asked = world.request(client, service, { route: "POST /api/agents", body, as });
      await world.timeline.runUntil(world.timeline.nowMs + 10_000);
      const answer = await asked;
      if (answer.status === 201) {
        const created = answer.body as unknown as {
          agent: { id: string; walletAddress: Address };
          key: { id: string };
        };
        agents.push({
          id: created.agent.id,
          keyId: created.key.id,
          wallet: created.agent.walletAddress.toLowerCase() as Address,
          owner: { id, address, key: owner.key },
          dailyLimit,
          payees: PAYEES,
        });
        break;
      }
      const authorization = await signOrder(account, answer.body);
      if (!authorization)
        throw new Error(
          `no agent: ${JSON.stringify(answer.body)} ${String(service.thrown[0] instanceof Error ? service.thrown[0].stack : "")}`,
        );
      body = { ...body, authorization };
    }
  }
  await world.close();
  return agents;
}
