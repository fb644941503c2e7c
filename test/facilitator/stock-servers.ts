// Paid APIs as providers write them with the published packages; examples in the docs use these lines.
import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import type { AddressInfo, Server } from "node:net";
import { serve } from "@hono/node-server";
import { HTTPFacilitatorClient, type FacilitatorClient } from "@x402/core/server";
import { ExactEvmScheme } from "@x402/evm/exact/server";
import { UptoEvmScheme } from "@x402/evm/upto/server";
import {
  declareEip2612GasSponsoringExtension,
  declareErc20ApprovalGasSponsoringExtension,
} from "@x402/extensions";
import * as forExpress from "@x402/express";
import * as forHono from "@x402/hono";
import express from "express";
import { Hono } from "hono";
import type { Test } from "tap";
import type { Address } from "viem";

interface PaidApi {
  url: string;
  /** The number of times the paid work was done. */
  served(): number;
}
interface PaidApiOptions {
  facilitatorUrl?: string;
  /** Replaces the client of the published packages. */
  facilitator?: FacilitatorClient;
  facilitatorKey?: string;
  /** Sends a new `Idempotency-Key` with each request to the facilitator. */
  namesRequests?: boolean;
  network: `${string}:${string}`;
  usdc: Address;
  payTo: Address;
  flow: "authorization" | "upfront";
  /** Adds one route per entry of RAILS, at `/rails/<name>`. */
  rails?: boolean;
  /** Adds a second route with the same terms as `/paid`. */
  alsoAt?: string;
  /** Runs before the paid work. */
  atWork?: () => Promise<void>;
}

const AMOUNT = "12345";

/** The charged part of `upto`'s maximum. */
export const USED_ATOMIC = 7_777n;

/** Permit2 variants: the scheme, and the extension for a client without an allowance. */
export const RAILS = {
  permit2: { scheme: "exact", extensions: {} },
  "permit2-permit": { scheme: "exact", extensions: declareEip2612GasSponsoringExtension() },
  "permit2-approval": { scheme: "exact", extensions: declareErc20ApprovalGasSponsoringExtension() },
  upto: { scheme: "upto", extensions: {} },
  "upto-permit": { scheme: "upto", extensions: declareEip2612GasSponsoringExtension() },
  "upto-approval": { scheme: "upto", extensions: declareErc20ApprovalGasSponsoringExtension() },
} as const;

const railRoutes = ({ network, usdc, payTo }: PaidApiOptions) =>
  Object.fromEntries(
    Object.entries(RAILS).map(([name, { scheme, extensions }]) => [
      `GET /rails/${name}`,
      {
        accepts: {
          scheme,
          network,
          payTo,
          price: {
            amount: AMOUNT,
            asset: usdc,
            extra: { name: "USDC", version: "2", assetTransferMethod: "permit2" },
          },
        },
        description: "A paid answer",
        extensions,
      },
    ]),
  );

function routes(options: PaidApiOptions) {
  const { network, usdc, payTo, flow, rails, alsoAt } = options;
  const paid = {
    accepts: {
      scheme: "exact",
      network,
      payTo,
      // Stock packages do not know Arc's USDC: name the asset and its EIP-712 domain.
      price: {
        amount: AMOUNT,
        asset: usdc,
        extra: { name: "USDC", version: "2" },
      },
      ...(flow === "upfront" && { extra: { paymentFlow: "upfront" } }),
    },
    description: "A paid answer",
  };
  return {
    "GET /paid": paid,
    ...(alsoAt !== undefined && { [`GET ${alsoAt}`]: paid }),
    ...(rails && railRoutes(options)),
  };
}

function facilitatorOf(options: PaidApiOptions): FacilitatorClient {
  const { facilitatorUrl, facilitatorKey, namesRequests } = options;
  if (options.facilitator) return options.facilitator;
  const headers: Record<string, string> =
    facilitatorKey === undefined ? {} : { authorization: `Bearer ${facilitatorKey}` };
  return new HTTPFacilitatorClient({
    ...(facilitatorUrl !== undefined && { url: facilitatorUrl }),
    createAuthHeaders: async () => {
      const settle = namesRequests ? { ...headers, "idempotency-key": randomUUID() } : headers;
      return { verify: headers, settle, supported: headers };
    },
  });
}

const address = (server: Server): string =>
  `http://127.0.0.1:${(server.address() as AddressInfo).port}/paid`;
const listening = (server: Server): Promise<void> =>
  new Promise((resolve) => {
    if (server.listening) resolve();
    else server.once("listening", () => resolve());
  });
const closing = (server: Server): Promise<void> =>
  new Promise((resolve) => {
    server.close(() => resolve());
    if ("closeAllConnections" in server)
      (server as unknown as { closeAllConnections(): void }).closeAllConnections();
  });

export async function expressApi(t: Test, options: PaidApiOptions): Promise<PaidApi> {
  let served = 0;
  const app = express();
  const resourceServer = new forExpress.x402ResourceServer(facilitatorOf(options))
    .register(options.network, new ExactEvmScheme())
    .register(options.network, new UptoEvmScheme());
  app.use(forExpress.paymentMiddleware(routes(options), resourceServer));
  app.get(["/paid", options.alsoAt ?? "/paid"], async (_request, response) => {
    await options.atWork?.();
    served += 1;
    response.json({ secret: 42 });
  });
  app.get("/rails/:rail", (request, response) => {
    served += 1;
    if (request.params.rail.startsWith("upto"))
      forExpress.setSettlementOverrides(response, { amount: String(USED_ATOMIC) });
    response.json({ secret: 42 });
  });
  const server = createServer(app).listen(0, "127.0.0.1");
  t.teardown(() => closing(server));
  await listening(server);
  return { url: address(server), served: () => served };
}

export async function honoApi(t: Test, options: PaidApiOptions): Promise<PaidApi> {
  let served = 0;
  const app = new Hono();
  const resourceServer = new forHono.x402ResourceServer(facilitatorOf(options))
    .register(options.network, new ExactEvmScheme())
    .register(options.network, new UptoEvmScheme());
  app.use(forHono.paymentMiddleware(routes(options), resourceServer));
  app.get("/paid", async (context) => {
    await options.atWork?.();
    served += 1;
    return context.json({ secret: 42 });
  });
  app.get("/rails/:rail", (context) => {
    served += 1;
    if (context.req.param("rail").startsWith("upto"))
      forHono.setSettlementOverrides(context, { amount: String(USED_ATOMIC) });
    return context.json({ secret: 42 });
  });
  const server = serve({ fetch: app.fetch, port: 0, hostname: "127.0.0.1" }) as unknown as Server;
  t.teardown(() => closing(server));
  await listening(server);
  return { url: address(server), served: () => served };
}

export const PRICE_ATOMIC = BigInt(AMOUNT);
