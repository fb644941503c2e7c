/**
 * A paywall for any Fastify app: `import { paywall } from "@purser/paywall"`, register it with a facilitator,
 * and give routes a price in `config.paywall`. Each route is served once per payment. A complete program of
 * fifteen lines is test/examples/paid-joke.ts.
 */
import { existsSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { SIGN_IN_WITH_X } from "@x402/extensions/sign-in-with-x";
import fp from "fastify-plugin";
import type {
  FastifyInstance,
  FastifyReply,
  FastifyRequest,
  preHandlerAsyncHookHandler,
  RouteOptions,
} from "fastify";
import { againMs } from "./again.ts";
import { type Cashier, cashier, networkFacts, type CashierOptions } from "./cashier.ts";
import { readHostName } from "./host.ts";
import { paymentIn } from "./mpp.ts";
import type { PaymentNetwork } from "./networks.ts";
import { payPage } from "./pay-page.ts";
import { Payment, type PaymentKind } from "./payment.ts";
import { isMetered, type PaidRequest, type PaidResource } from "./resource.ts";
import { EXACT_EIP3009, isForVersion1, type PaywallScheme, UPTO } from "./scheme.ts";
import { Serving } from "./serving.ts";
import { serveWellKnown } from "./well-known.ts";

export interface PaywallRoute extends PaidResource {
  /**
   * Work that may fail, done once a matching proof was received and before it is settled: an error here costs
   * the caller nothing. Results can be kept on the request. `kind`: how the request is paid.
   */
  prepare?: (request: FastifyRequest, reply: FastifyReply, kind: PaymentKind) => Promise<void>;
}

export interface PaywallOptions extends Omit<CashierOptions, "onFault"> {
  /** The origin that clients see; by default taken from each request. */
  publicUrl?: string;
  /** The path under which the pay page's script and style are served. */
  assetsPath?: string;
  walletRpcUrl?: (network: PaymentNetwork) => string;
  /** The path of a script that announces one more wallet to the pay page (EIP-6963), such as a test wallet. */
  walletScript?: string | undefined;
  /** A path that reports how each facilitator works: 200, or 503 where none does. Off without it. */
  healthPath?: string | undefined;
  /** Serves the URLs of the paid routes at `/.well-known/x402`, where catalogues look for them. Default: true. */
  wellKnown?: boolean;
}

declare module "fastify" {
  interface FastifyContextConfig {
    /**
     * The price of this route. A fixed price is settled before the handler runs, the amount used of a maximum
     * before the response is sent.
     */
    paywall?: PaywallRoute;
    /** Set by the paywall: the pattern of the route, and its constraints where it has some. */
    paidRoute?: string;
  }
  interface FastifyRequest {
    /** The payment for this request, on a route with a price. */
    payment: Payment | undefined;
  }
  interface FastifyInstance {
    cashier: Cashier;
  }
}

export const paywall = fp(registerPaywall, { name: "x402-paywall" });
export type { VerifyMessage } from "./again.ts";
export type { Receipt } from "./answers.ts";
export {
  OneProcessChannelStore,
  PostgresChannelStore,
  type Channel,
  type ChannelState,
  type ChannelStore,
  type Query,
  type StoredChannel,
} from "./channel-store.ts";
export type { ChannelOptions, ReceiverAuthorizer } from "./channel-settings.ts";
export { Cashier, cashier, type CashierOptions, type Charge } from "./cashier.ts";
export type { MppOptions } from "./mpp.ts";
export type { FacilitatorEntry } from "./facilitator-call.ts";
export type { FacilitatorHealth } from "./facilitator-endpoint.ts";
export { FailoverFacilitatorClient, type FailoverOptions } from "./failover.ts";
export { PAYMENT_NETWORKS, type PaymentNetwork } from "./networks.ts";
export { Payment, type PaymentKind } from "./payment.ts";
export type { ReceiptOptions } from "./receipts.ts";
export type { AgainOptions, PaidResource, RoutePrice } from "./resource.ts";
export { EXACT_EIP3009, EXACT_PERMIT2, type PaywallScheme, UPTO } from "./scheme.ts";
export { type MeteredCharge, OneProcessStore, type PaywallStore } from "./store.ts";

async function registerPaywall(app: FastifyInstance, options: PaywallOptions): Promise<void> {
  const {
    publicUrl,
    assetsPath = "/paywall",
    walletRpcUrl,
    walletScript,
    healthPath,
    wellKnown = true,
    ...known
  } = options;
  const networks = options.networks.map(networkFacts);
  const { store, channels, schemes = [EXACT_EIP3009, UPTO] } = options;
  const onFault = (err: unknown, what: string) => app.log.error({ err }, what);
  const charges = cashier({ ...known, networks, schemes, onFault });
  app.decorate("cashier", charges);
  const { claims } = charges;
  if (claims) {
    if (options.channels?.store.isDurable === false)
      app.log.warn(
        "payment channels are kept in the memory of this process: if it is killed, what is not claimed is lost",
      );
    app.addHook("onReady", async () => claims.start());
    app.addHook("onClose", () => claims.close());
  }
  app.decorateRequest("payment", undefined);
  serveAssets(app, assetsPath);
  if (healthPath !== undefined)
    app.get(healthPath, ASSET_ROUTE, async (_request, reply) => {
      const facilitators = charges.health() ?? [];
      const isWorking = facilitators.some(({ state }) => state !== "skipped");
      return reply
        .code(isWorking ? 200 : 503)
        .header("cache-control", "no-store")
        .send({ isWorking, facilitators });
    });
  const serving = new Serving(onFault);
  const originFor = (request: FastifyRequest) => publicUrl ?? originOf(request);
  const listRoute = wellKnown
    ? serveWellKnown(app, { originFor, route: ASSET_ROUTE, invalidHost: INVALID_HOST })
    : undefined;

  const takePayment: preHandlerAsyncHookHandler = async (request, reply) => {
    const resource = request.routeOptions.config.paywall;
    if (!resource) return undefined;
    reply.header("cache-control", "no-store");
    const target = paidRequest(request, publicUrl);
    if ("error" in target)
      return reply
        .code(400)
        .type("application/json; charset=utf-8")
        .serializer(JSON.stringify)
        .send(target);
    // A HEAD response has no body to sell, so a proof in it is ignored.
    if (request.method === "HEAD") target.headers = {};
    const charge = await charges.charge(resource, target, async (kind) =>
      resource.prepare?.(request, reply, kind),
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
      const html = payPage({
        required: charge.required,
        networks,
        assetsPath,
        walletRpcUrl: walletRpcUrl ?? ((network) => network.publicRpcUrl),
        walletScript,
      });
      return reply.type("text/html; charset=utf-8").header("vary", "accept").send(html);
    }
    return reply
      .type("application/json; charset=utf-8")
      .header("vary", "accept")
      .serializer(JSON.stringify)
      .send(charge.body);
  };

  /**
   * An invalid request without a proof gets the price: who asks for the price need not know the parameters yet. With a
   * proof it is refused and costs nothing. No preHandler hook runs for either.
   */
  const showPrice =
    (otherwise: RouteOptions["errorHandler"]): RouteOptions["errorHandler"] =>
    (error, request, reply) => {
      const mayPay = request.method !== "HEAD" && hasProof(request.headers);
      if (error.validation && !mayPay) return takePayment.call(app, request, reply);
      // Sent again, an error goes to the error handler of the app.
      return otherwise ? otherwise.call(app, error, request, reply) : reply.send(error);
    };

  app.addHook("onRoute", (route) => {
    const resource = route.config?.paywall;
    if (!resource) return;
    const methods = [route.method].flat();
    const constraints = Object.entries(route.constraints ?? {}).map(String);
    route.config = { ...route.config, paidRoute: [route.url, ...constraints].join(" ") };
    checkRoute(resource, { schemes, store, channels, methods });
    listRoute?.(route);
    // Last of the preHandlers: a caller does not pay for a request that another hook would refuse.
    const hooks = [route.preHandler ?? []].flat();
    if (hooks.includes(takePayment)) return;
    route.errorHandler = showPrice(route.errorHandler);
    route.preHandler = [...hooks, takePayment];
    // Last of the onSend hooks: the amount used is settled once the response is ready.
    route.onSend = [...[route.onSend ?? []].flat(), serving.end];
  });
}

/** Configuration that would fail every request fails at startup. */
function checkRoute(
  resource: PaywallRoute,
  {
    schemes,
    store,
    channels,
    methods,
  }: Pick<PaywallOptions, "store" | "channels"> & {
    schemes: readonly PaywallScheme[];
    methods: readonly string[];
  },
): void {
  const { price } = resource;
  const isChannel = typeof price !== "string" && price.channel !== undefined;
  if (isChannel && !channels)
    throw new Error(
      "a price with `channel` needs the paywall to have `channels`: see ChannelOptions",
    );
  if (!isChannel && !schemes.some((scheme) => (scheme.isMetered ?? false) === isMetered(resource)))
    throw new Error(
      `none of the paywall's schemes supports ${isMetered(resource) ? "charging by use" : "a fixed price"}`,
    );
  if (!resource.again) return;
  againMs(resource.again);
  if (!store)
    throw new Error("a route with `again` needs the paywall to have a `store`: see PaywallStore");
  if (methods.some((method) => method !== "GET" && method !== "HEAD"))
    throw new Error("only a GET can be fetched again");
}

/** The response where no URL can be built safely from the request. */
interface BadRequest {
  error: string;
  code: "invalid_host" | "invalid_request_target";
}

const INVALID_HOST: BadRequest = {
  code: "invalid_host",
  error: "The Host header must be a host with an optional port.",
};

function paidRequest(
  request: FastifyRequest,
  publicUrl: string | undefined,
): PaidRequest | BadRequest {
  // Fastify also routes a request target in absolute form, `GET http://shop/path`. And it reads a query beyond "#",
  // which a URL cuts off: the price would be that of another request.
  if (!request.url.startsWith("/") || request.url.includes("#"))
    return {
      code: "invalid_request_target",
      error: "The request target must be a path with an optional query, not a whole URL.",
    };
  const origin = publicUrl ?? originOf(request);
  if (origin === undefined) return INVALID_HOST;
  return {
    method: request.method,
    url: `${origin}${request.url}`,
    path: request.url.split("?", 1)[0] ?? "/",
    route: request.routeOptions.config.paidRoute,
    body: request.body,
    headers: request.headers,
  };
}

/**
 * Behind a trusted proxy, Fastify takes `host` and `protocol` from `X-Forwarded-Host` and
 * `X-Forwarded-Proto`, which may come from the caller.
 */
function originOf({ protocol, host }: FastifyRequest): string | undefined {
  if (readHostName(host) === undefined || !/^https?$/.test(protocol)) return undefined;
  return new URL(`${protocol}://${host}`).origin;
}

/** What may prove a payment: of this request, or of an earlier one. */
const PROOF_HEADERS = ["payment-signature", "x-payment", SIGN_IN_WITH_X];

const hasProof = ({ authorization = "", ...headers }: FastifyRequest["headers"]): boolean =>
  paymentIn(authorization) !== undefined ||
  PROOF_HEADERS.some((name) => headers[name] !== undefined);

const isBrowser = (request: FastifyRequest): boolean =>
  request.method === "GET" && /\btext\/html\b/.test(request.headers.accept ?? "");

const { resolve } = createRequire(import.meta.url);
const own = (name: string): URL => new URL(`assets/${name}`, import.meta.url);
/** The built package contains the fonts; in the repository they are in node_modules. */
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
    // Scripts and styles change with a release; the fonts do not.
    const caching = type === "font/woff2" ? "public, max-age=604800" : "no-cache";
    app.get(`${assetsPath}/${name}`, ASSET_ROUTE, async (_request, reply) =>
      reply.type(type).header("cache-control", caching).send(content),
    );
  }
}

/**
 * `auth` and `hide` are for Purser's own rules and its OpenAPI document; in other apps they have no effect.
 */
const ASSET_ROUTE: { config: { auth: "public" }; schema: object } = {
  config: { auth: "public" },
  schema: { hide: true },
};
