// The number of spends per second through HTTP, guardrails, signature and handover to the settlement engine.
import { Pool as HttpPool } from "undici";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { createSiweMessage } from "viem/siwe";
import { signOrder } from "../../helpers/owner.ts";
import type { BenchRow, World } from "../context.ts";
import { alone, figure } from "../rounds.ts";

const TARGET_PER_SECOND = 500;
const AGENTS = 50;
const IN_FLIGHT = 64;
const WARM_UP_MS = 2_000;
const DURATION_MS = 8_000;
const BUDGET_SHARE = 0.85;
const WORLD = {
  oursAlone: true,
  blockTimeSeconds: 2,
  blockGasLimit: 300_000_000,
  env: { SETTLE_WAIT_MS: "0" },
};
const PAYEE = privateKeyToAccount(generatePrivateKey()).address;

interface BenchAgent {
  id: string;
  apiKey: string;
  walletAddress: `0x${string}`;
}

const row: BenchRow = {
  name: "spends over HTTP to reserved, 50 agents, 64 in flight",
  async run(context) {
    // The response does not wait for the chain: it is sent when the payment is reserved, signed and handed
    // over.
    const world = await context.world(WORLD);
    const agents = await fundedAgents(world);
    await spendFor(world, agents, WARM_UP_MS);
    const measured = await alone(() => spendFor(world, agents, DURATION_MS));
    context.print(JSON.stringify(measured.ours.map(({ statuses }) => statuses)));
    return [
      figure(measured, {
        what: "rate",
        unit: "/s",
        better: "more",
        of: ({ perSecond }) => perSecond,
        target: {
          label: `>= ${TARGET_PER_SECOND} /s`,
          reached: ({ ours }) => ours >= TARGET_PER_SECOND,
        },
      }),
    ];
  },
};

/** The same agents without and with one budget over all of them, in turn. */
const budgetRow: BenchRow = {
  name: "spends over HTTP with one budget over 50 agents, against none",
  async run(context) {
    const world = await context.world(WORLD);
    const free = await fundedAgents(world);
    const together = await fundedAgents(world, { share: "a budget" });
    await spendFor(world, [...free, ...together], WARM_UP_MS);
    const measured = await alone(async () => ({
      without: await spendFor(world, free, DURATION_MS),
      together: await spendFor(world, together, DURATION_MS),
    }));
    const rates = measured.ours.map(({ without, together }) => [
      without.perSecond,
      together.perSecond,
    ]);
    context.print(JSON.stringify(rates));
    return [
      figure(measured, {
        what: "share",
        unit: "x",
        better: "more",
        of: ({ without, together }) => together.perSecond / without.perSecond,
        target: {
          label: `>= ${BUDGET_SHARE}x`,
          reached: ({ ours }) => ours >= BUDGET_SHARE,
        },
      }),
    ];
  },
};

export const rows = [row, budgetRow];

async function fundedAgents(world: World, more: { share?: string } = {}): Promise<BenchAgent[]> {
  const agents = await makeAgents(world, AGENTS, more);
  await world.chain.mint(
    agents.map(({ walletAddress }) => walletAddress),
    10n ** 12n,
  );
  return agents;
}

/** Sends to each replica in turn. */
export async function spendFor(
  world: Pick<World, "replicas">,
  agents: readonly BenchAgent[],
  durationMs: number,
  inFlight = IN_FLIGHT,
): Promise<{ perSecond: number; statuses: Record<string, number> }> {
  const pools = world.replicas.map(
    (url) => new HttpPool(url, { connections: inFlight, pipelining: 1 }),
  );
  const statuses: Record<string, number> = {};
  const startMs = performance.now();
  let next = 0;
  const worker = async (): Promise<void> => {
    while (performance.now() - startMs < durationMs) {
      const agent = agents[next++ % agents.length];
      const answer = await (pools[next % pools.length] as HttpPool).request({
        path: "/api/agents/spend",
        method: "POST",
        headers: {
          "content-type": "application/json",
          authorization: `Bearer ${agent?.apiKey ?? ""}`,
        },
        // Identical payments that are not decided yet would be treated as one, so each has its own memo.
        body: JSON.stringify({ recipient: PAYEE, amount: "0.001", memo: `${startMs}.${next}` }),
      });
      await answer.body.dump();
      statuses[answer.statusCode] = (statuses[answer.statusCode] ?? 0) + 1;
    }
  };
  await Promise.all(Array.from({ length: inFlight }, worker));
  const elapsedMs = performance.now() - startMs;
  await Promise.all(pools.map((http) => http.close()));
  // 504 payment_status_unknown: handed over, without waiting for the outcome.
  const handedOver = (statuses["504"] ?? 0) + (statuses["200"] ?? 0);
  return { perSecond: (handedOver / elapsedMs) * 1000, statuses };
}

/** Agents of one owner, who signs in to create them; `share` names a budget over all of them. */
export async function makeAgents(
  world: World,
  count: number,
  { share }: { share?: string } = {},
): Promise<BenchAgent[]> {
  const owner = privateKeyToAccount(generatePrivateKey());
  const origin = `http://localhost:${new URL(world.ours).port}`;
  const call = async (path: string, payload: unknown, cookie = ""): Promise<Response> => {
    const answer = await fetch(`${world.ours}${path}`, {
      method: "POST",
      headers: { "content-type": "application/json", origin, cookie },
      body: JSON.stringify(payload),
    });
    if (answer.status === 403) {
      const authorization = await signOrder(owner, await answer.clone().json());
      if (authorization) return call(path, { ...(payload as object), authorization }, cookie);
    }
    if (!answer.ok) throw new Error(`${path}: ${await answer.text()}`);
    return answer;
  };
  const { nonce } = (await (await fetch(`${world.ours}/api/auth/nonce`)).json()) as {
    nonce: string;
  };
  const message = createSiweMessage({
    address: owner.address,
    chainId: world.chain.chainId,
    domain: new URL(origin).host,
    uri: origin,
    version: "1",
    nonce,
  });
  const signature = await owner.signMessage({ message });
  const signedIn = await call("/api/auth/verify", { message, signature });
  const cookie = signedIn.headers.getSetCookie()[0]?.split(";", 1)[0] ?? "";
  const agents: BenchAgent[] = [];
  for (let index = 0; index < count; index += 1) {
    const rules = { name: `bench ${index}`, dailyLimit: "1000000", allowlist: [PAYEE] };
    const created = (await (await call("/api/agents", rules, cookie)).json()) as {
      agent: { id: string; walletAddress: `0x${string}` };
      apiKey: string;
    };
    const { id, walletAddress } = created.agent;
    agents.push({ id, walletAddress, apiKey: created.apiKey });
  }
  const ids = agents.map(({ id }) => id);
  if (share !== undefined)
    await call("/api/budgets", { name: share, dailyLimit: "1000000", agents: ids }, cookie);
  return agents;
}
