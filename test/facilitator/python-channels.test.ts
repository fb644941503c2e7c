// Goal: sellers and buyers with the published Python package, and with the TypeScript packages beside them, open, use, lose
// track of, claim, settle and refund payment channels through our facilitator, over every way to deposit.
// Tier: full (needs other languages or their package registries).
import { execFile, spawn } from "node:child_process";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { promisify } from "node:util";
import { serve } from "@hono/node-server";
import { decodePaymentResponseHeader } from "@x402/core/http";
import { HTTPFacilitatorClient, x402ResourceServer } from "@x402/core/server";
import { toClientEvmSigner } from "@x402/evm";
import { BatchSettlementEvmScheme as BuyersScheme } from "@x402/evm/batch-settlement/client";
import { BatchSettlementEvmScheme as SellersScheme } from "@x402/evm/batch-settlement/server";
import { paymentMiddleware as forExpress } from "@x402/express";
import {
  declareEip2612GasSponsoringExtension,
  declareErc20ApprovalGasSponsoringExtension,
} from "@x402/extensions";
import { wrapFetchWithPayment, x402Client } from "@x402/fetch";
import { paymentMiddleware as forHono } from "@x402/hono";
import express from "express";
import { Hono } from "hono";
import t, { type Test } from "tap";
import type { Address, Hex } from "viem";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { freePort } from "../../server/local/free-port.ts";
import { testApp } from "../helpers/app.ts";
import { randomSalt } from "../helpers/batch-settlement.ts";
import type { TestChain } from "../helpers/chain.ts";
import { approvePermit2 } from "../helpers/permit2.ts";
import { pythonWith } from "../helpers/python.ts";
import { until } from "../helpers/until.ts";
import { PYTHON_BUYER, PYTHON_SELLER, type PaidRoute } from "./python-channels.ts";

const run = promisify(execFile);
/** The packages know this network's USDC, so that prices in dollars work. */
const CHAIN_ID = 84_532;
const NETWORK = `eip155:${CHAIN_ID}` as const;
const PRICE = 1_000n;
const DEPOSIT = 10_000n;

const python = await pythonWith(
  ["x402[evm,httpx,requests,fastapi,flask,extensions]==2.25.0", "uvicorn==0.54.0"],
  (clean) => t.teardown(clean),
);
const missing = "missing" in python ? python.missing : false;

type Way = "eip3009" | "permit2" | "permit" | "approval";
const routesFor = (usdc: Address): Record<`/${Way}`, PaidRoute> => {
  const permit2 = { assetTransferMethod: "permit2" };
  const domain = { name: "USDC", version: "2" };
  return {
    "/eip3009": { price: "$0.001", extensions: [] },
    "/permit2": {
      price: { amount: `${PRICE}`, asset: usdc, extra: { ...domain, ...permit2 } },
      extensions: [],
    },
    "/permit": { price: "$0.001", extra: permit2, extensions: ["eip2612GasSponsoring"] },
    "/approval": {
      price: { amount: `${PRICE}`, asset: usdc, extra: permit2 },
      extensions: ["erc20ApprovalGasSponsoring"],
    },
  };
};
const WAYS: readonly Way[] = ["eip3009", "permit2", "permit", "approval"];

interface Terms {
  facilitatorUrl: string;
  payTo: Address;
  authorizerKey: Hex;
  routes: Record<string, PaidRoute>;
}
interface Seller {
  url: string;
  /** Claims everything and settles it. */
  payOut(): Promise<{ claims: number; transaction: string }>;
}
interface Step {
  status: number;
  success: boolean;
  transaction: string;
  amount?: string | null;
  error?: string | null;
}
type Buy = (
  chain: TestChain,
  given: { url: string; key: Hex; salt: Hex; steps: readonly ("pay" | "refund")[] },
) => Promise<Step[]>;

const DECLARED = {
  eip2612GasSponsoring: declareEip2612GasSponsoringExtension,
  erc20ApprovalGasSponsoring: declareErc20ApprovalGasSponsoringExtension,
};

async function typescriptSeller(t: Test, terms: Terms, framework: "express" | "hono") {
  const facilitator = new HTTPFacilitatorClient({ url: terms.facilitatorUrl });
  const scheme = new SellersScheme(terms.payTo, {
    receiverAuthorizerSigner: privateKeyToAccount(terms.authorizerKey),
  });
  const resources = new x402ResourceServer(facilitator).register(NETWORK, scheme);
  const routes = Object.fromEntries(
    Object.entries(terms.routes).map(([path, { price, extra, extensions }]) => [
      `GET ${path}`,
      {
        accepts: { scheme: scheme.scheme, network: NETWORK, payTo: terms.payTo, price, extra },
        extensions: Object.assign({}, ...extensions.map((name) => DECLARED[name]())) as object,
      },
    ]),
  ) as never;
  const paths = Object.keys(terms.routes);
  let server: Server;
  if (framework === "express") {
    const app = express();
    app.use(forExpress(routes, resources));
    for (const path of paths) app.get(path, (_request, response) => void response.json({}));
    server = createServer(app).listen(0, "127.0.0.1");
  } else {
    const app = new Hono();
    app.use(forHono(routes, resources));
    for (const path of paths) app.get(path, (context) => context.json({}));
    server = serve({ fetch: app.fetch, port: 0, hostname: "127.0.0.1" }) as unknown as Server;
  }
  t.teardown(() => {
    server.close();
    server.closeAllConnections();
  });
  await until(() => server.listening);
  const manager = scheme.createChannelManager(facilitator, NETWORK);
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    async payOut() {
      const claims = await manager.claim();
      const { transaction } = await manager.settle();
      return { claims: claims.reduce((sum, { vouchers }) => sum + vouchers, 0), transaction };
    },
  };
}

async function pythonSeller(t: Test, terms: Terms, framework: "flask" | "fastapi") {
  if ("missing" in python) throw new Error(python.missing);
  const port = await freePort();
  const child = spawn(python.python, ["-c", PYTHON_SELLER], {
    env: {
      PATH: process.env["PATH"],
      FRAMEWORK: framework,
      PORT: String(port),
      FACILITATOR_URL: terms.facilitatorUrl,
      NETWORK,
      PAY_TO: terms.payTo,
      AUTHORIZER_KEY: terms.authorizerKey,
      ROUTES: JSON.stringify(terms.routes),
    },
    stdio: ["ignore", "inherit", "inherit"],
  });
  t.teardown(() => child.kill("SIGKILL"));
  const url = `http://127.0.0.1:${port}`;
  await until(async () => {
    if (child.exitCode !== null) throw new Error("the seller ended");
    const health = await fetch(`${url}/health`).catch(() => undefined);
    await health?.body?.cancel();
    return health?.ok === true;
  }, 60_000);
  return {
    url,
    async payOut() {
      const response = await fetch(`${url}/pay-out`, { method: "POST" });
      if (!response.ok) throw new Error(await response.text());
      return (await response.json()) as { claims: number; transaction: string };
    },
  };
}

const typescriptBuyer: Buy = async (chain, { url, key, salt, steps }) => {
  const signer = toClientEvmSigner(privateKeyToAccount(key), chain.publicClient);
  const scheme = new BuyersScheme(signer, { salt });
  const client = x402Client.fromConfig({
    schemes: [{ network: NETWORK, client: scheme }],
    spendControls: false,
  });
  const pay = wrapFetchWithPayment(fetch, client);
  const done: Step[] = [];
  for (const step of steps) {
    if (step === "refund") {
      done.push({ status: 200, ...(await scheme.refund(url)) });
      continue;
    }
    const response = await pay(url);
    const receipt = response.headers.get("payment-response");
    await response.body?.cancel();
    const settled = receipt === null ? undefined : decodePaymentResponseHeader(receipt);
    done.push({
      status: response.status,
      success: settled?.success === true,
      transaction: settled?.transaction ?? "",
      error: settled?.errorReason ?? null,
    });
  }
  return done;
};

const pythonBuyer =
  (httpClient: "requests" | "httpx"): Buy =>
  async (chain, { url, key, salt, steps }) => {
    if ("missing" in python) throw new Error(python.missing);
    const { stdout } = await run(python.python, ["-c", PYTHON_BUYER], {
      env: {
        PATH: process.env["PATH"],
        HTTP_CLIENT: httpClient,
        URL: url,
        RPC_URL: chain.rpcUrl,
        KEY: key,
        SALT: salt,
        STEPS: steps.join(),
      },
    });
    return stdout
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line) as Step);
  };

const BUYERS = {
  fetch: typescriptBuyer,
  requests: pythonBuyer("requests"),
  httpx: pythonBuyer("httpx"),
};
/** Each seller with a buyer of the other language, and Python with itself. */
const PAIRS: [seller: keyof typeof SELLERS, buyer: keyof typeof BUYERS][] = [
  ["express", "requests"],
  ["hono", "httpx"],
  ["flask", "fetch"],
  ["fastapi", "requests"],
];
const SELLERS = {
  express: (t: Test, terms: Terms): Promise<Seller> => typescriptSeller(t, terms, "express"),
  hono: (t: Test, terms: Terms): Promise<Seller> => typescriptSeller(t, terms, "hono"),
  flask: (t: Test, terms: Terms): Promise<Seller> => pythonSeller(t, terms, "flask"),
  fastapi: (t: Test, terms: Terms): Promise<Seller> => pythonSeller(t, terms, "fastapi"),
};

const isPaid = (hash: RegExp) => ({ status: 200, success: true, transaction: hash });
const HASH = /^0x[0-9a-f]{64}$/;
const NONE = /^$/;

t.test("channels", { skip: missing }, async (t) => {
  const { chain, baseUrl } = await testApp(t, {
    listen: true,
    chainOptions: { chainId: CHAIN_ID },
    env: { [`PAYER_APPROVALS_${CHAIN_ID}`]: "true" },
  });
  const routes = routesFor(chain.usdc);

  for (const [sellerName, buyerName] of PAIRS)
    await t.test(`${sellerName}, ${buyerName}`, async (t) => {
      const payTo = privateKeyToAccount(generatePrivateKey()).address;
      const authorizerKey = generatePrivateKey();
      const seller = await SELLERS[sellerName](t, {
        facilitatorUrl: `${baseUrl}/api/x402`,
        payTo,
        authorizerKey,
        routes,
      });
      let charged = 0n;
      for (const way of WAYS)
        await t.test(way, async (t) => {
          const buy = BUYERS[buyerName];
          const key = generatePrivateKey();
          const payer = privateKeyToAccount(key);
          await chain.mint(payer.address, 100_000n);
          if (way === "permit2") await approvePermit2(chain, [payer]);
          if (way === "approval")
            await chain.testClient.setBalance({ address: payer.address, value: 10n ** 18n });
          const url = `${seller.url}/${way}`;
          const salt = randomSalt();
          t.match(await buy(chain, { url, key, salt, steps: ["pay", "pay"] }), [
            isPaid(HASH),
            isPaid(NONE),
          ]);
          t.equal(await chain.usdcOf(payer.address), 100_000n - DEPOSIT);
          charged += 2n * PRICE;
          if (way !== "eip3009") return;
          // A new process that remembers nothing of the channel, while nothing is claimed.
          t.match(await buy(chain, { url, key, salt, steps: ["pay", "refund"] }), [
            isPaid(NONE),
            isPaid(HASH),
          ]);
          t.equal(await chain.usdcOf(payer.address), 100_000n - 3n * PRICE);
          charged += PRICE;
        });
      t.match(await seller.payOut(), {
        // What was refunded was claimed with it.
        claims: WAYS.length - 1,
        transaction: HASH,
      });
      t.equal(await chain.usdcOf(payTo), charged);
    });
});
