import { createServer, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { HTTPFacilitatorClient, x402ResourceServer } from "@x402/core/server";
import { ExactEvmScheme as ExactServer } from "@x402/evm/exact/server";
import { paymentMiddleware } from "@x402/express";
import { wrapFetchWithPayment } from "@x402/fetch";
import express from "express";
import { getAddress, type Address, type Hex } from "viem";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { createSiweMessage } from "viem/siwe";
import { testAccount } from "../../helpers/chain.ts";
import { signOrder } from "../../helpers/owner.ts";
import { stockClient } from "../../paywall/stock.ts";
import type { BenchContext, BenchRow, World } from "../context.ts";
import { figure, median, ROUNDS, timesAsMuch, type Samples } from "../rounds.ts";

const TARGET = 1.15;
const WARMUP = 4;
const FUNDS = 10n ** 12n;

export const row: BenchRow = {
  name: "x402-fetch against a paid API, p50, 1 in flight",
  async run(context) {
    // Without waiting for a block, the rest is our own work.
    const arc = await measure(context, { blockTimeSeconds: 0.5, count: 30 });
    const instant = await measure(context, { blockTimeSeconds: "auto", count: 60 });
    const fact = { unit: "ms", better: "less", of: (ms: number) => ms } as const;
    return [
      figure(arc, {
        ...fact,
        what: "0.5 s blocks",
        target: {
          label: `<= ${TARGET}x a stock client`,
          reached: ({ ours, reference }) => timesAsMuch(ours, reference) <= TARGET,
        },
      }),
      figure(instant, { ...fact, what: "a block for each payment" }),
    ];
  },
};

/**
 * One stock seller, paid alternately by a stock client and by our agent, so that both have the same
 * conditions.
 */
async function measure(
  context: BenchContext,
  options: { blockTimeSeconds: number | "auto"; count: number },
): Promise<Samples<number>> {
  const seller = await openSeller();
  try {
    const world = await context.world({
      blockTimeSeconds: options.blockTimeSeconds,
      env: { FETCH_PRIVATE_ORIGINS: seller.origin },
    });
    const payTo = getAddress(world.chain.admin.address);
    seller.open(paidApi(world, payTo));
    const agent = await openAgent(world, payTo);
    const payer = testAccount(900);
    await world.chain.mint([agent.walletAddress, payer.address], FUNDS);
    const url = `${seller.origin}/paid`;
    const payingFetch = wrapFetchWithPayment(fetch, stockClient(world.chain, payer));
    const stock = async (): Promise<void> => expectOk(await payingFetch(url));
    const ours = async (): Promise<void> =>
      expectOk(
        await fetch(`${world.ours}/api/agents/x402-fetch`, {
          method: "POST",
          headers: { authorization: `Bearer ${agent.apiKey}`, "content-type": "application/json" },
          body: JSON.stringify({ url }),
        }),
      );
    const stockMs: number[] = [];
    const oursMs: number[] = [];
    const blockMs = options.blockTimeSeconds === "auto" ? 0 : options.blockTimeSeconds * 1_000;
    for (let turn = -WARMUP; turn < options.count; turn += 1) {
      // Both start at the same point between two blocks, and all points are covered evenly: otherwise each
      // would start where the other ended, and wait for the other's delay.
      const phaseMs = (blockMs * (((turn * 7) % options.count) + 0.5)) / options.count;
      const first = await timed(world, phaseMs, stock);
      const second = await timed(world, phaseMs, ours);
      if (turn >= 0) {
        stockMs.push(first);
        oursMs.push(second);
      }
    }
    const part = options.count / ROUNDS;
    const parts = (all: readonly number[]): number[] =>
      Array.from({ length: ROUNDS }, (_, round) =>
        median(all.slice(round * part, (round + 1) * part)),
      );
    return { reference: parts(stockMs), ours: parts(oursMs) };
  } finally {
    seller.close();
  }
}

async function expectOk(response: Response): Promise<void> {
  const text = await response.text();
  if (response.status !== 200) throw new Error(`${response.status}: ${text}`);
}

async function timed(
  { chain }: World,
  phaseMs: number,
  work: () => Promise<void>,
): Promise<number> {
  if (phaseMs > 0) {
    const height = await chain.publicClient.getBlockNumber();
    while ((await chain.publicClient.getBlockNumber()) === height) await sleep(3);
    await sleep(phaseMs);
  }
  const startedMs = performance.now();
  await work();
  return performance.now() - startedMs;
}

/** Listens before the world is started, because the service's configuration must contain this origin. */
async function openSeller() {
  let listener: RequestListener = (_request, response) => void response.writeHead(503).end();
  const server = createServer((request, response) => listener(request, response));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    origin: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    open: (app: RequestListener) => void (listener = app),
    close: () => {
      server.close();
      server.closeAllConnections();
    },
  };
}

function paidApi({ chain, servers }: World, payTo: Address): RequestListener {
  const network = `eip155:${chain.chainId}` as const;
  const server = new x402ResourceServer(
    new HTTPFacilitatorClient({ url: servers.reference?.url ?? "" }),
  );
  const price = { amount: "1000", asset: chain.usdc, extra: { name: "USDC", version: "2" } };
  const app = express();
  app.use(
    paymentMiddleware(
      { "GET /paid": { accepts: { scheme: "exact", network, payTo, price } } },
      server.register(network, new ExactServer()),
    ),
  );
  app.get("/paid", (_request, response) => void response.json({ answer: 42 }));
  return app;
}

export async function openAgent(
  world: World,
  payTo: Address,
  rules: object = {},
): Promise<{ apiKey: string; walletAddress: Hex }> {
  const account = privateKeyToAccount(generatePrivateKey());
  const origin = world.ours.replace("127.0.0.1", "localhost");
  const headers: Record<string, string> = { origin, "content-type": "application/json" };
  const post = async (path: string, body: object): Promise<Response> => {
    const response = await fetch(world.ours + path, {
      method: "POST",
      headers,
      body: JSON.stringify(body),
    });
    if (response.status === 403) {
      const authorization = await signOrder(account, await response.clone().json());
      if (authorization) return post(path, { ...body, authorization });
    }
    if (!response.ok) throw new Error(`${path}: ${await response.text()}`);
    return response;
  };
  const { nonce } = (await (await fetch(`${world.ours}/api/auth/nonce`)).json()) as {
    nonce: string;
  };
  const message = createSiweMessage({
    domain: new URL(origin).host,
    uri: origin,
    version: "1",
    chainId: world.chain.chainId,
    address: account.address,
    nonce,
    issuedAt: new Date(),
    expirationTime: new Date(Date.now() + 600_000),
  });
  const signature = await account.signMessage({ message });
  const session = await post("/api/auth/verify", { message, signature });
  headers["cookie"] = session.headers.getSetCookie()[0]?.split(";", 1)[0] ?? "";
  const created = await post("/api/agents", {
    name: "Bench",
    dailyLimit: "1000",
    allowlist: [payTo],
    ...rules,
  });
  const { agent, apiKey } = (await created.json()) as {
    agent: { walletAddress: Hex };
    apiKey: string;
  };
  return { apiKey, walletAddress: agent.walletAddress };
}
