// Sellers built only from published packages, in front of any facilitator.
import { createServer, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import { serve } from "@hono/node-server";
import { x402Facilitator } from "@x402/core/facilitator";
import {
  HTTPFacilitatorClient,
  x402ResourceServer,
  type FacilitatorClient,
  type RoutesConfig,
} from "@x402/core/server";
import type { PaymentPayload, PaymentRequirements } from "@x402/core/types";
import { toFacilitatorEvmSigner } from "@x402/evm";
import { ExactEvmScheme as ExactFacilitator } from "@x402/evm/exact/facilitator";
import { ExactEvmScheme as ExactServer } from "@x402/evm/exact/server";
import { ExactEvmSchemeV1 } from "@x402/evm/exact/v1/facilitator";
import { paymentMiddleware as expressMiddleware } from "@x402/express";
import { paymentMiddleware as honoMiddleware } from "@x402/hono";
import express from "express";
import { Hono } from "hono";
import type { Test } from "tap";
import { publicActions, type Address } from "viem";
import { findNetwork } from "../../server/core/networks.ts";
import { testChain, type TestAccount, type TestChain } from "../helpers/chain.ts";
import { market, type Market } from "./market.ts";
import { localServer } from "./sellers.ts";

/** The reference facilitator in this process, for both versions of the protocol. */
export function stockFacilitator(
  chain: TestChain,
  account: TestAccount,
  v1Name: string,
): FacilitatorClient {
  const wallet = chain.walletClient(account).extend(publicActions);
  const signer = toFacilitatorEvmSigner({ ...wallet, address: account.address } as never);
  const facilitator = new x402Facilitator()
    .register(`eip155:${chain.chainId}`, new ExactFacilitator(signer))
    .registerV1(v1Name as never, new ExactEvmSchemeV1(signer));
  return {
    verify: (payload, requirements) => facilitator.verify(payload, requirements),
    settle: (payload, requirements) => facilitator.settle(payload, requirements),
    getSupported: async () => facilitator.getSupported() as never,
  };
}

export const ourFacilitator = (baseUrl: string): FacilitatorClient =>
  new HTTPFacilitatorClient({ url: `${baseUrl}/api/x402` });

interface SellerOptions {
  chain: TestChain;
  payTo: Address;
  facilitator: FacilitatorClient;
}

function routesOf({ chain, payTo }: SellerOptions): RoutesConfig {
  return {
    "GET /paid": {
      accepts: {
        scheme: "exact",
        network: `eip155:${chain.chainId}`,
        payTo,
        price: { amount: "1000", asset: chain.usdc, extra: { name: "USDC", version: "2" } },
        maxTimeoutSeconds: 60,
      },
      description: "An answer",
      mimeType: "application/json",
    },
  };
}

const resourceServer = ({ chain, facilitator }: SellerOptions): x402ResourceServer =>
  new x402ResourceServer(facilitator).register(`eip155:${chain.chainId}`, new ExactServer());

export async function expressSeller(
  t: Pick<Test, "teardown">,
  options: SellerOptions,
): Promise<string> {
  const app = express();
  app.use(expressMiddleware(routesOf(options), resourceServer(options)));
  app.get("/paid", (_request, response) => void response.json({ sold: "express" }));
  return listen(t, app);
}

export async function honoSeller(
  t: Pick<Test, "teardown">,
  options: SellerOptions,
): Promise<string> {
  const app = new Hono();
  app.use(honoMiddleware(routesOf(options), resourceServer(options)));
  app.get("/paid", (context) => context.json({ sold: "hono" }));
  const server = await new Promise<ReturnType<typeof serve>>((resolve) => {
    const started = serve({ fetch: app.fetch, port: 0, hostname: "127.0.0.1" }, () =>
      resolve(started),
    );
  });
  t.teardown(() => new Promise<void>((resolve) => void server.close(() => resolve())));
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/paid`;
}

/** A version 1 seller: the price is in the response body, the payment in the X-PAYMENT header. */
export async function v1Seller(
  t: Pick<Test, "teardown">,
  options: SellerOptions & { v1Name: string },
): Promise<string> {
  const { chain, payTo, facilitator, v1Name } = options;
  const { origin } = await localServer(t, (request, response) => {
    void sell(request.headers["x-payment"]).then(({ status, body, headers }) =>
      response
        .writeHead(status, { "content-type": "application/json", ...headers })
        .end(JSON.stringify(body)),
    );
  });
  const requirements = {
    scheme: "exact",
    network: v1Name,
    maxAmountRequired: "1000",
    resource: `${origin}/paid`,
    description: "An answer",
    mimeType: "application/json",
    payTo,
    maxTimeoutSeconds: 60,
    asset: chain.usdc,
    extra: { name: "USDC", version: "2" },
  };
  const unpaid = (error: string) => ({
    status: 402,
    body: { x402Version: 1, error, accepts: [requirements] },
    headers: {},
  });
  async function sell(header: string | string[] | undefined) {
    if (typeof header !== "string") return unpaid("X-PAYMENT header is required");
    const payload = JSON.parse(Buffer.from(header, "base64").toString()) as PaymentPayload;
    const terms = requirements as unknown as PaymentRequirements;
    const verdict = await facilitator.verify(payload, terms);
    if (!verdict.isValid) return unpaid(verdict.invalidReason ?? "invalid");
    const settled = await facilitator.settle(payload, terms);
    if (!settled.success) return unpaid(settled.errorReason ?? "not settled");
    const receipt = Buffer.from(JSON.stringify(settled)).toString("base64");
    return { status: 200, body: { sold: "v1" }, headers: { "x-payment-response": receipt } };
  }
  return `${origin}/paid`;
}

async function listen(t: Pick<Test, "teardown">, listener: RequestListener): Promise<string> {
  const server = createServer(listener);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.teardown(
    () =>
      new Promise<void>((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  );
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/paid`;
}

/** A network that has a version 1 name. */
const CHAIN_ID = 84532;
export const V1_NAME = "base-sepolia";

/** The setup for stock sellers. One confirmation, because a chain that mines a block per transaction adds no later blocks. */
export async function stockMarket(t: Test): Promise<{ made: Market; account: TestAccount }> {
  const usdc = findNetwork(V1_NAME)?.usdc.address;
  const chain = await testChain(t, { chainId: CHAIN_ID, usdc });
  const made = await market(t, {
    chain,
    listen: true,
    env: { [`CONFIRMATIONS_${CHAIN_ID}`]: "1", SETTLE_WAIT_MS: "10000" },
  });
  const account = chain.accounts[1];
  if (!account) throw new Error("the test chain has no accounts");
  return { made, account };
}
