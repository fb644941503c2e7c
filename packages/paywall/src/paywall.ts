/**
 * A paywall for any Fastify app: `import { paywall } from "@purser/paywall"`, register it with a
 * facilitator, and give routes a price in `config.paywall`. Each is served once per payment.
 * A whole program of fifteen lines is test/examples/paid-joke.ts.
 */
import { existsSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import fp from "fastify-plugin";
import type {
  FastifyInstance,
  FastifyReply,
  FastifyRequest,
  preHandlerAsyncHookHandler,
} from "fastify";
import { type FacilitatorClient, HTTPFacilitatorClient } from "@x402/core/server";
import { againMs, type VerifyMessage } from "./again.ts";
import { Cashier, isMetered, type PaidRequest, type PaidResource } from "./charge.ts";
import { findAmong, PAYMENT_NETWORKS, type PaymentNetwork } from "./networks.ts";
import type { MppOptions } from "./mpp.ts";
import { payPage } from "./pay-page.ts";
import { Payment } from "./payment.ts";
import type { ReceiptOptions } from "./receipts.ts";
import { EXACT_EIP3009, isForVersion1, type PaywallScheme, UPTO } from "./scheme.ts";
import { Serving } from "./serving.ts";
import type { PaywallStore } from "./store.ts";

export interface PaywallRoute extends PaidResource {
  /**
   * Work that may fail, done when a fitting proof is there and before it is settled: an error here
   * costs the caller nothing. What it learns can be kept on the request.
   */
  prepare?: (request: FastifyRequest, reply: FastifyReply) => Promise<void>;
}

export interface PaywallOptions {
  /** Who verifies and settles: its URL, or a client of the protocol's library (with credentials, or in this process). */
  facilitator: string | FacilitatorClient;
  /** CAIP-2 ids, or the facts of networks; the first is what a browser pays on. */
  networks: readonly (string | PaymentNetwork)[];
  payTo: string;
  /** How may be paid, best first: `exact` over EIP-3009, and `upto` for routes with a maximum, unless said. */
  schemes?: readonly PaywallScheme[];
  /** Signs offers and receipts (`offer-and-receipt`), with the key of `payTo` where it is at hand. Off without it. */
  receipts?: ReceiptOptions;
  /** What must be known beyond one request: see `PaywallStore`. Routes with `again` need one. */
  store?: PaywallStore;
  /** Asks contract accounts whether they signed; without it only ordinary accounts sign in. */
  verifyMessage?: VerifyMessage;
  /** Asks by MPP too (`WWW-Authenticate: Payment`), in the same 402. Off without it. */
  mpp?: MppOptions;
  /** The origin clients see; by default taken from each request. */
  publicUrl?: string;
  /** Where the pay page's script and style are served. */
  assetsPath?: string;
  walletRpcUrl?: (network: PaymentNetwork) => string;
}

declare module "fastify" {
  interface FastifyContextConfig {
    /** The price of this route; it is settled before the handler runs, or what was used of it before the answer goes out. */
    paywall?: PaywallRoute;
  }
  interface FastifyRequest {
    /** What was paid for this request, or may be charged for it, on a route with a price. */
    payment: Payment | undefined;
  }
  interface FastifyInstance {
    cashier: Cashier;
  }
}

export const paywall = fp(registerPaywall, { name: "x402-paywall" });
export type { AgainOptions, VerifyMessage } from "./again.ts";
export type { Receipt } from "./answers.ts";
export { Cashier, type Charge, type PaidResource, type RoutePrice } from "./charge.ts";
export type { MppOptions } from "./mpp.ts";
export { PAYMENT_NETWORKS, type PaymentNetwork } from "./networks.ts";
export { Payment } from "./payment.ts";
export type { ReceiptOptions } from "./receipts.ts";
export { EXACT_EIP3009, EXACT_PERMIT2, type PaywallScheme, UPTO } from "./scheme.ts";
export { type MeteredCharge, OneProcessStore, type PaywallStore } from "./store.ts";

async function registerPaywall(app: FastifyInstance, options: PaywallOptions): Promise<void> {
  const networks = options.networks.map(networkFacts);
  const assetsPath = options.assetsPath ?? "/paywall";
  const { payTo, schemes = [EXACT_EIP3009, UPTO], store, receipts, verifyMessage, mpp } = options;
  const facilitator =
    typeof options.facilitator === "string"
      ? new HTTPFacilitatorClient({ url: options.facilitator })
      : options.facilitator;
  const onFault = (err: unknown, what: string) => app.log.error({ err }, what);
  const known = { facilitator, networks, schemes, payTo, store, receipts, verifyMessage, mpp };
  const cashier = new Cashier({ ...known, onFault });
  app.decorate("cashier", cashier);
  app.decorateRequest("payment", undefined);
  serveAssets(app, assetsPath);
  const serving = new Serving(onFault);

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
    if (charge.kind !== "unpaid" && charge.kind !== "refused") {
      request.payment = new Payment(charge, isMetered(resource));
      return serving.begin(request, reply, charge);
    }
    reply.code(402);
    if (
      charge.kind === "unpaid" &&
      isBrowser(request) &&
      charge.required.accepts.some(isForVersion1)
    ) {
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
    const resource = route.config?.paywall;
    if (!resource) return;
    const methods = [route.method].flat();
    checkRoute(resource, { schemes, store, methods });
    // Last of the preHandlers: nobody pays for a request that would be refused anyway.
    const hooks = [route.preHandler ?? []].flat();
    if (hooks.includes(takePayment)) return;
    route.preHandler = [...hooks, takePayment];
    // Last before the answer: what was used is settled when the answer is ready.
    route.onSend = [...[route.onSend ?? []].flat(), serving.end];
  });
}

/** What would fail at each request, or could not be kept, fails at the start. */
function checkRoute(
  resource: PaywallRoute,
  {
    schemes,
    store,
    methods,
  }: Pick<PaywallOptions, "store"> & {
    schemes: readonly PaywallScheme[];
    methods: readonly string[];
  },
): void {
  if (!schemes.some((scheme) => (scheme.isMetered ?? false) === isMetered(resource)))
    throw new Error(
      `none of the paywall's schemes can be paid ${isMetered(resource) ? "by use" : "a fixed price"}`,
    );
  if (!resource.again) return;
  againMs(resource.again);
  if (!store)
    throw new Error("a route with `again` needs the paywall to have a `store`: see PaywallStore");
  if (methods.some((method) => method !== "GET" && method !== "HEAD"))
    throw new Error("only a GET can be fetched again: what else was sent is not in its URL");
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
/** Built, the package brings its fonts along; in the repository they are where npm put them. */
const fontFile = (font: string): URL | string =>
  existsSync(own(`${font}.woff2`))
    ? own(`${font}.woff2`)
    : resolve(`@fontsource-variable/${font}/files/${font}-latin-wght-normal.woff2`);
const ASSETS = [
  { name: "pay.js", type: "text/javascript; charset=utf-8", file: own("pay.js") },
  { name: "look.css", type: "text/css; charset=utf-8", file: own("look.css") },
  { name: "pay.css", type: "text/css; charset=utf-8", file: own("pay.css") },
  { name: "mark.svg", type: "image/svg+xml", file: own("mark.svg") },
  ...["geist", "geist-mono"].map((font) => ({
    name: `${font}.woff2`,
    type: "font/woff2",
    file: fontFile(font),
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

function networkFacts(network: string | PaymentNetwork): PaymentNetwork {
  const facts = typeof network === "string" ? findAmong(network, PAYMENT_NETWORKS) : network;
  if (!facts) throw new Error(`the paywall knows no network ${JSON.stringify(network)}`);
  return facts;
}
