/**
 * A paywall for any Fastify app: `import { paywall } from "purser/paywall"`, register it with a
 * facilitator, and give routes a price in `config.paywall`. Each is served once per payment.
 * A whole program of fifteen lines is test/examples/paid-joke.ts.
 */
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import fp from "fastify-plugin";
import type {
  FastifyInstance,
  FastifyReply,
  FastifyRequest,
  preHandlerAsyncHookHandler,
} from "fastify";
import type { FacilitatorClient } from "@x402/core/server";
import { findNetwork, NETWORKS, type NetworkFacts } from "../../core/networks.ts";
import { payPage } from "./pay-page.ts";
import { Cashier, type PaidRequest, type PaidResource, type Receipt } from "./charge.ts";

export interface PaywallRoute extends PaidResource {
  /**
   * Work that may fail, done when a fitting proof is there and before it is settled: an error here
   * costs the caller nothing. What it learns can be kept on the request.
   */
  prepare?: (request: FastifyRequest, reply: FastifyReply) => Promise<void>;
}

export interface PaywallOptions {
  /** Who verifies and settles: `new HTTPFacilitatorClient({ url })`, or one in this process. */
  facilitator: FacilitatorClient;
  /** CAIP-2 ids, or the facts of networks; the first is what a browser pays on. */
  networks: readonly (string | NetworkFacts)[];
  payTo: string;
  /** The origin clients see; by default taken from each request. */
  publicUrl?: string;
  /** Where the pay page's script and style are served. */
  assetsPath?: string;
  walletRpcUrl?: (network: NetworkFacts) => string;
}

declare module "fastify" {
  interface FastifyContextConfig {
    /** The price of this route; it is settled before the handler runs. */
    paywall?: PaywallRoute;
  }
  interface FastifyRequest {
    /** What was paid for this request, on a route with a price. */
    payment: Receipt | undefined;
  }
  interface FastifyInstance {
    cashier: Cashier;
  }
}

export const paywall = fp(registerPaywall, { name: "x402-paywall" });
export { Cashier, type PaidResource, type Receipt } from "./charge.ts";

async function registerPaywall(app: FastifyInstance, options: PaywallOptions): Promise<void> {
  const networks = options.networks.map(networkFacts);
  const assetsPath = options.assetsPath ?? "/paywall";
  const cashier = new Cashier({ facilitator: options.facilitator, networks, payTo: options.payTo });
  app.decorate("cashier", cashier);
  app.decorateRequest("payment", undefined);
  serveAssets(app, assetsPath);

  const takePayment: preHandlerAsyncHookHandler = async (request, reply) => {
    const resource = request.routeOptions.config.paywall;
    if (!resource) return undefined;
    reply.header("cache-control", "no-store");
    const asked = paidRequest(request, options.publicUrl);
    // HEAD has no answer to sell.
    if (request.method === "HEAD") asked.headers = {};
    const charge = await cashier.charge(resource, asked, async () =>
      resource.prepare?.(request, reply),
    );
    reply.headers(charge.headers);
    if (charge.kind === "settled") {
      request.payment = charge.receipt;
      return undefined;
    }
    reply.code(402);
    if (charge.kind === "unpaid" && isBrowser(request)) {
      const walletRpcUrl = options.walletRpcUrl ?? ((network) => network.publicRpcUrl);
      const html = payPage({ required: charge.required, networks, assetsPath, walletRpcUrl });
      return reply.type("text/html; charset=utf-8").header("vary", "accept").send(html);
    }
    return reply
      .type("application/json; charset=utf-8")
      .header("vary", "accept")
      .serializer(JSON.stringify)
      .send(charge.body);
  };

  app.addHook("onRoute", (route) => {
    if (!route.config?.paywall) return;
    // Last of the preHandlers: nobody pays for a request that would be refused anyway.
    const hooks = [route.preHandler ?? []].flat();
    if (!hooks.includes(takePayment)) route.preHandler = [...hooks, takePayment];
  });
}

function paidRequest(request: FastifyRequest, publicUrl: string | undefined): PaidRequest {
  const origin = publicUrl ?? `${request.protocol}://${request.host}`;
  return {
    method: request.method,
    url: `${origin}${request.url}`,
    path: request.url.split("?", 1)[0] ?? "/",
    headers: request.headers,
  };
}

const isBrowser = (request: FastifyRequest): boolean =>
  request.method === "GET" && /\btext\/html\b/.test(request.headers.accept ?? "");

const { resolve } = createRequire(import.meta.url);
const own = (name: string): URL => new URL(`assets/${name}`, import.meta.url);
const ASSETS = [
  { name: "pay.js", type: "text/javascript; charset=utf-8", file: own("pay.js") },
  { name: "look.css", type: "text/css; charset=utf-8", file: own("look.css") },
  { name: "pay.css", type: "text/css; charset=utf-8", file: own("pay.css") },
  { name: "mark.svg", type: "image/svg+xml", file: own("mark.svg") },
  ...["geist", "geist-mono"].map((font) => ({
    name: `${font}.woff2`,
    type: "font/woff2",
    file: resolve(`@fontsource-variable/${font}/files/${font}-latin-wght-normal.woff2`),
  })),
];

function serveAssets(app: FastifyInstance, assetsPath: string): void {
  for (const { name, type, file } of ASSETS) {
    const content = readFileSync(file);
    // Only the fonts stay the same whatever we release.
    const caching = type === "font/woff2" ? "public, max-age=604800" : "no-cache";
    app.get(`${assetsPath}/${name}`, ASSET_ROUTE, async (_request, reply) =>
      reply.type(type).header("cache-control", caching).send(content),
    );
  }
}

/** `auth` and `hide` are for Purser's own rules and its OpenAPI document; elsewhere they mean nothing. */
const ASSET_ROUTE: { config: { auth: "public" }; schema: object } = {
  config: { auth: "public" },
  schema: { hide: true },
};

function networkFacts(network: string | NetworkFacts): NetworkFacts {
  const facts = typeof network === "string" ? findNetwork(network, NETWORKS) : network;
  if (!facts) throw new Error(`the paywall knows no network ${JSON.stringify(network)}`);
  return facts;
}
