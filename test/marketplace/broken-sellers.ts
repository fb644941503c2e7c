// One server with a path for each cause of the validator: a flawless 402, and what is changed in it.
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Test } from "tap";
import type { Address } from "viem";
import { toBase64Url } from "../../packages/paywall/src/mpp-wire.ts";
import type { CauseCode } from "../../server/plugins/validate/causes.ts";
import { testAccount } from "../helpers/chain.ts";
import { localServer } from "../x402-client/sellers.ts";

export const PAYEE = testAccount(900).address;
export const BLOCKED = testAccount(901).address;
/** A second contract with the token's code. */
export const OTHER_TOKEN: Address = "0x00000000000000000000000000000000000c0de0";
const ARC = "eip155:5042002";
const ARC_USDC = "0x3600000000000000000000000000000000000000";
const BASE_USDC = "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913";
const BASE_SEPOLIA_USDC = "0x036CbD53842c5426634e7929541eC2318f3dCF7e";
const POLYGON_USDC = "0x3c499c542cEF5E3811e1192ce70d8cC03d5c3359";
const MULTICALL3 = "0xcA11bde05977b3631167028862bE2a173976CA11";

const WELL_KNOWN = "/.well-known/x402";

type Json = Record<string, unknown>;

interface Reply {
  status: number;
  headers: Record<string, string | string[]>;
  /** Version 2; undefined: no PAYMENT-REQUIRED. */
  offer: { [name: string]: unknown; accepts: Json[]; resource: Json; extensions: Json } | undefined;
  /** The header as text, instead of the offer's. */
  header?: string | string[];
  body: unknown;
  preflight: Record<string, string>;
}

export interface Case {
  /** Its path too. */
  name: string;
  method?: "GET" | "POST";
  body?: string;
  /** All findings, in any order. */
  codes: CauseCode[];
  change?: (reply: Reply, request: IncomingMessage) => void;
  /** Answers by itself. */
  answer?: (response: ServerResponse, request: IncomingMessage) => void;
  /** Stock clients are not asked. */
  isRaw?: true;
}

const entry = (over: Json = {}): Json => ({
  scheme: "exact",
  network: ARC,
  amount: "10000",
  asset: ARC_USDC,
  payTo: PAYEE,
  maxTimeoutSeconds: 60,
  extra: { name: "USDC", version: "2" },
  ...over,
});
/** Not among the networks of the tested service. */
const baseSepolia = (over: Json = {}): Json =>
  entry({ network: "eip155:84532", asset: BASE_SEPOLIA_USDC, ...over });
/** Among them, but its node does not answer. */
const base = (over: Json = {}): Json =>
  entry({
    network: "eip155:8453",
    asset: BASE_USDC,
    extra: { name: "USD Coin", version: "2" },
    ...over,
  });

const v1 = (url: string, over: Json = {}): Json => {
  const { amount, ...rest } = baseSepolia();
  const text = { resource: url, description: "Weather", mimeType: "application/json" };
  return {
    x402Version: 1,
    accepts: [{ ...rest, network: "base-sepolia", maxAmountRequired: amount, ...text, ...over }],
  };
};

const flawless = (url: string): Reply => ({
  status: 402,
  headers: {
    "access-control-allow-origin": "*",
    "access-control-expose-headers": "PAYMENT-REQUIRED, PAYMENT-RESPONSE",
    "cache-control": "no-store",
  },
  preflight: {
    "access-control-allow-origin": "*",
    "access-control-allow-headers": "PAYMENT-SIGNATURE, X-PAYMENT",
  },
  offer: {
    x402Version: 2,
    error: "Payment required",
    resource: { url, description: "Weather", mimeType: "application/json" },
    accepts: [entry()],
    extensions: {
      bazaar: {
        info: {
          input: { type: "http", method: "GET" },
          output: { type: "json", example: { sky: "clear" } },
        },
        schema: {},
      },
    },
  },
  body: {},
});

type Change = NonNullable<Case["change"]>;
const ofEntry =
  (over: Json): Change =>
  ({ offer }) => {
    if (offer) offer.accepts = [entry(over)];
  };
const ofResource =
  (over: Json): Change =>
  ({ offer }) => {
    if (offer) Object.assign(offer.resource, over);
  };
const ofAccepts =
  (accepts: Json[]): Change =>
  ({ offer }) => {
    if (offer) offer.accepts = accepts;
  };
const status =
  (code: number): Change =>
  (reply) => {
    reply.status = code;
    reply.offer = undefined;
  };
const inBody =
  (over: Json = {}): Change =>
  (reply, request) => {
    reply.offer = undefined;
    reply.body = v1(urlOf(request), over);
  };

const bazaarOf = ({ offer }: Reply): { info: Json } =>
  (offer?.extensions["bazaar"] ?? { info: { input: {} } }) as { info: Json };

const urlOf = ({ headers, url }: IncomingMessage): string => `http://${headers.host}${url}`;

/** `PAYMENT-REQUIRED` of nested arrays. */
const deep = (levels: number): string =>
  Buffer.from(`{"x402Version":2,"accepts":${"[".repeat(levels)}${"]".repeat(levels)}}`).toString(
    "base64",
  );

const challenge = (intent: string): string =>
  `Payment id="a1", realm="127.0.0.1", method="evm", intent="${intent}", request="${toBase64Url({
    amount: "10000",
    currency: ARC_USDC,
    recipient: PAYEE,
    methodDetails: { chainId: 5_042_002, credentialTypes: ["authorization"] },
  })}"`;

let served = 0;

export const CASES: Case[] = [
  { name: "flawless", codes: [] },
  {
    name: "base-sepolia",
    codes: ["network_not_here", "v2_only"],
    change: ofAccepts([baseSepolia()]),
  },

  { name: "free", codes: ["free"], change: status(200) },
  {
    name: "redirect",
    codes: ["redirects"],
    answer: (response) => response.writeHead(302, { location: "https://10.0.0.1/admin" }).end(),
  },
  { name: "missing", codes: ["not_found"], change: status(404) },
  { name: "get-only", codes: ["wrong_method"], change: status(405) },
  { name: "login", codes: ["needs_login"], change: status(401) },
  { name: "busy", codes: ["too_many_requests"], change: status(429) },
  { name: "broken", codes: ["server_error"], change: status(500) },
  { name: "bad-parameters", codes: ["other_status"], change: status(422) },
  {
    name: "needs-body",
    method: "POST",
    body: '{"city":"Lisbon"}',
    codes: ["post_needs_body", "bazaar_refused"],
    change: (reply, { headers }) => {
      if (Number(headers["content-length"] ?? 0) === 0) status(400)(reply, {} as IncomingMessage);
      else if (headers["content-type"] !== "application/json") reply.status = 500;
      Object.assign(bazaarOf(reply).info["input"] as Json, { method: "POST" });
    },
  },
  {
    name: "slow-drip",
    codes: ["timed_out"],
    isRaw: true,
    answer: (response) => {
      response.writeHead(402);
      const timer = setInterval(() => response.write(" "), 20);
      response.on("close", () => clearInterval(timer));
    },
  },
  {
    name: "endless",
    codes: ["answer_too_large"],
    isRaw: true,
    answer: (response) => {
      response.writeHead(402);
      const chunk = Buffer.alloc(64 * 1024, "a");
      const more = (): void => {
        while (!response.destroyed && response.write(chunk));
      };
      response.on("drain", more);
      more();
    },
  },
  {
    name: "ten-megabytes-of-header",
    codes: ["headers_too_large"],
    isRaw: true,
    answer: (response) => {
      const { socket } = response;
      socket?.on("error", () => undefined);
      socket?.write(`HTTP/1.1 402 Payment Required\r\nPAYMENT-REQUIRED: ${"a".repeat(10_000_000)}`);
      socket?.end("\r\n\r\n");
    },
  },
  {
    name: "odd-encoding",
    codes: ["answer_unreadable"],
    isRaw: true,
    answer: (response) => response.writeHead(402, { "content-encoding": "zstd" }).end("x"),
  },
  {
    name: "not-http",
    codes: ["unreachable"],
    isRaw: true,
    answer: (response) => response.socket?.end("SSH-2.0-hello\r\n"),
  },

  {
    name: "no-terms",
    codes: ["no_terms"],
    change: (reply) => {
      reply.offer = undefined;
      reply.body = "<script>alert(1)</script>";
    },
  },
  {
    name: "v2-in-body",
    codes: ["v2_in_body"],
    change: (reply) => {
      reply.body = reply.offer;
      reply.offer = undefined;
    },
  },
  {
    name: "header-twice",
    codes: ["header_twice"],
    isRaw: true,
    change: (reply) => {
      const text = Buffer.from(JSON.stringify(reply.offer)).toString("base64");
      reply.header = [text, text];
    },
  },
  {
    name: "header-plain-json",
    codes: ["header_unreadable"],
    change: (reply) => {
      reply.header = JSON.stringify(reply.offer);
    },
  },
  {
    name: "deep",
    codes: ["terms_too_deep"],
    change: (reply) => {
      reply.header = deep(5_000);
    },
  },
  {
    name: "version-3",
    codes: ["wrong_version"],
    change: ({ offer }) => {
      if (offer) offer["x402Version"] = 3;
    },
  },
  {
    name: "body-without-version",
    codes: ["wrong_version"],
    change: (reply) => {
      reply.offer = undefined;
      reply.body = { accepts: [entry()] };
    },
  },
  { name: "no-accepts", codes: ["no_accepts"], change: ofAccepts([]) },
  {
    name: "many-offers",
    codes: ["too_many_accepts", "offers_not_checked", "header_over_limit"],
    isRaw: true,
    change: ofAccepts(Array.from({ length: 65 }, () => entry())),
  },
  {
    name: "long-description",
    codes: ["header_long"],
    change: ofResource({ description: "Weather ".repeat(800) }),
  },
  {
    name: "v1-only",
    codes: ["v1_only", "network_not_here"],
    change: inBody(),
  },
  {
    name: "v1-on-polygon",
    codes: ["v1_only", "network_not_here"],
    change: inBody({
      network: "polygon",
      asset: POLYGON_USDC,
      extra: { name: "USD Coin", version: "2" },
    }),
  },
  {
    name: "v1-without-extra",
    codes: ["v1_only", "domain_missing", "network_not_here"],
    change: inBody({ extra: undefined }),
  },
  {
    name: "v1-in-another-token",
    codes: ["v1_only", "asset_not_usdc", "network_not_here"],
    change: inBody({ asset: OTHER_TOKEN, extra: { name: "Dollar", version: "1" } }),
  },
  {
    name: "both-versions",
    codes: ["network_not_here", "network_not_here"],
    change: (reply, request) => {
      ofAccepts([baseSepolia()])(reply, request);
      reply.body = v1(urlOf(request));
    },
  },
  {
    name: "versions-differ",
    codes: ["versions_differ", "network_not_here", "network_not_here"],
    change: (reply, request) => {
      ofAccepts([baseSepolia()])(reply, request);
      reply.body = v1(urlOf(request), { payTo: testAccount(5).address });
    },
  },

  {
    name: "offer-is-text",
    codes: ["offer_not_object"],
    change: ofAccepts(["exact" as unknown as Json]),
  },
  {
    name: "no-scheme",
    codes: ["field_missing"],
    change: ofEntry({ scheme: undefined }),
  },
  {
    name: "v1-without-description",
    codes: ["v1_only", "v1_field_missing", "description_missing", "network_not_here"],
    change: inBody({ description: undefined }),
  },
  {
    name: "v1-price-in-v2",
    codes: ["v1_price_field"],
    change: ofEntry({ amount: undefined, maxAmountRequired: "10000" }),
  },
  {
    name: "v2-price-in-v1",
    codes: ["v1_only", "v2_price_field", "network_not_here"],
    change: inBody({ maxAmountRequired: undefined, amount: "10000" }),
  },
  {
    name: "v1-name-in-v2",
    codes: ["v1_network_name", "v2_only"],
    change: ofAccepts([baseSepolia({ network: "base-sepolia" })]),
  },
  {
    name: "v2-name-in-v1",
    codes: ["v1_only", "v2_network_name"],
    change: inBody({ network: "eip155:84532" }),
  },
  {
    name: "arc-in-v1",
    codes: [],
    change: (reply, request) => {
      const { amount, ...rest } = entry();
      const { accepts } = v1(urlOf(request), { ...rest, maxAmountRequired: amount });
      reply.body = { x402Version: 1, accepts };
    },
  },
  {
    name: "unknown-network",
    codes: ["network_unknown"],
    change: ofEntry({ network: "eip155:999999" }),
  },
  {
    name: "unknown-scheme",
    codes: ["scheme_unknown"],
    change: ofEntry({ scheme: "subscription" }),
  },
  {
    name: "auth-capture",
    codes: ["auth_capture"],
    change: ofEntry({ scheme: "auth-capture" }),
  },
  {
    name: "gateway",
    codes: ["gateway"],
    change: ofEntry({ extra: { name: "GatewayWalletBatched", version: "1" } }),
  },
  { name: "asset-is-symbol", codes: ["asset_invalid"], change: ofEntry({ asset: "USDC" }) },
  {
    name: "asset-of-base",
    codes: ["asset_of_other_network", "asset_no_contract"],
    change: ofEntry({ asset: BASE_USDC }),
  },
  {
    name: "other-token",
    codes: ["asset_not_usdc"],
    change: ofEntry({ asset: OTHER_TOKEN }),
  },
  {
    name: "no-token",
    codes: ["asset_not_usdc", "asset_no_contract"],
    change: ofEntry({ asset: testAccount(6).address }),
  },
  {
    name: "other-token-other-domain",
    codes: ["asset_not_usdc", "domain_mismatch"],
    change: ofEntry({ asset: OTHER_TOKEN, extra: { name: "Dollar", version: "2" } }),
  },
  { name: "no-domain", codes: ["domain_missing"], change: ofEntry({ extra: {} }) },
  {
    name: "wrong-domain",
    codes: ["domain_name_wrong"],
    change: ofEntry({ extra: { name: "USD Coin", version: "2" } }),
  },
  {
    name: "wrong-domain-version",
    codes: ["domain_version_wrong"],
    change: ofEntry({ extra: { name: "USDC", version: "1" } }),
  },
  {
    name: "wrong-domain-on-base",
    codes: ["domain_name_wrong", "network_not_here", "v2_only"],
    change: ofAccepts([baseSepolia({ extra: { name: "USD Coin", version: "2" } })]),
  },
  {
    name: "no-domain-on-base",
    codes: ["domain_missing", "network_not_here", "v2_only"],
    change: ofAccepts([baseSepolia({ extra: {} })]),
  },
  {
    name: "eighteen-decimals-in-extra",
    codes: ["extra_contradicts"],
    change: ofEntry({ extra: { name: "USDC", version: "2", decimals: 18 } }),
  },
  {
    name: "odd-flow",
    codes: ["flow_unknown", "network_not_here", "v2_only"],
    change: ofAccepts([
      baseSepolia({ extra: { name: "USDC", version: "2", paymentFlow: "later" } }),
    ]),
  },
  { name: "payee-name", codes: ["payee_invalid"], change: ofEntry({ payTo: "shop.eth" }) },
  {
    name: "payee-typo",
    codes: ["payee_checksum"],
    change: ofEntry({ payTo: PAYEE.replace(/[a-f]/, (letter) => letter.toUpperCase()) }),
  },
  { name: "payee-zero", codes: ["payee_zero"], change: ofEntry({ payTo: `0x${"0".repeat(40)}` }) },
  {
    name: "payee-burn",
    codes: ["payee_burn"],
    change: ofEntry({ payTo: "0x000000000000000000000000000000000000dead" }),
  },
  { name: "payee-token", codes: ["payee_is_token"], change: ofEntry({ payTo: ARC_USDC }) },
  { name: "payee-contract", codes: ["payee_is_contract"], change: ofEntry({ payTo: MULTICALL3 }) },
  { name: "payee-blocked", codes: ["payee_refused"], change: ofEntry({ payTo: BLOCKED }) },
  { name: "price-number", codes: ["price_not_text"], change: ofEntry({ amount: 10_000 }) },
  { name: "price-dollars", codes: ["price_not_atomic"], change: ofEntry({ amount: "$0.01" }) },
  {
    name: "price-decimal-on-base",
    codes: ["price_not_atomic", "network_not_here", "v2_only"],
    change: ofAccepts([baseSepolia({ amount: "0.01" })]),
  },
  { name: "price-zero", codes: ["price_zero"], change: ofEntry({ amount: "0" }) },
  {
    name: "price-in-wei",
    codes: ["price_decimals"],
    change: ofEntry({ amount: "10000000000000000" }),
  },
  { name: "price-high", codes: ["price_above_default"], change: ofEntry({ amount: "1000001" }) },
  {
    name: "price-high-on-base",
    codes: ["price_above_default", "network_not_here", "v2_only"],
    change: ofAccepts([baseSepolia({ amount: "1000001" })]),
  },
  { name: "price-low", codes: ["price_below_minimum"], change: ofEntry({ amount: "1" }) },
  { name: "two-seconds", codes: ["timeout_too_short"], change: ofEntry({ maxTimeoutSeconds: 2 }) },
  { name: "ten-seconds", codes: ["timeout_short"], change: ofEntry({ maxTimeoutSeconds: 10 }) },
  { name: "a-day", codes: ["timeout_long"], change: ofEntry({ maxTimeoutSeconds: 86_400 }) },

  {
    name: "no-resource",
    codes: ["resource_missing", "bazaar_refused"],
    change: ofResource({ url: "" }),
  },
  {
    name: "relative-resource",
    codes: ["resource_invalid", "bazaar_refused"],
    change: ofResource({ url: "/weather" }),
  },
  {
    name: "other-resource",
    codes: ["resource_differs", "bazaar_refused"],
    change: ofResource({ url: "https://shop.example/other" }),
  },
  {
    name: "no-description",
    codes: ["description_missing"],
    change: ofResource({ description: "" }),
  },
  { name: "no-mime", codes: ["mime_missing"], change: ofResource({ mimeType: undefined }) },
  {
    name: "hidden-text",
    codes: ["text_hidden"],
    change: ofResource({ description: "Weather\u0007\u202Egnp\u200B" }),
  },
  {
    name: "script-text",
    codes: ["text_markup"],
    change: ofResource({ description: "<script>alert(1)</script>" }),
  },
  {
    name: "no-bazaar",
    codes: ["bazaar_missing"],
    change: ({ offer }) => {
      if (offer) offer.extensions = {};
    },
  },
  {
    name: "template",
    codes: ["bazaar_refused"],
    change: ({ offer }) => {
      Object.assign(offer?.extensions["bazaar"] as object, { routeTemplate: "/:name" });
    },
  },
  {
    name: "no-example",
    codes: ["bazaar_no_output"],
    change: (reply) => {
      delete bazaarOf(reply).info["output"];
    },
  },

  {
    name: "no-cors",
    codes: ["cors_none"],
    change: ({ headers }) => void delete headers["access-control-allow-origin"],
  },
  {
    name: "hidden-header",
    codes: ["cors_hidden"],
    change: ({ headers }) => void delete headers["access-control-expose-headers"],
  },
  {
    name: "no-preflight",
    codes: ["cors_preflight"],
    change: (reply) => {
      reply.preflight = {};
    },
  },
  {
    name: "cacheable",
    codes: ["cacheable"],
    change: ({ headers }) => void (headers["cache-control"] = "public, max-age=60"),
  },
  { name: "cached", codes: ["from_cache"], change: ({ headers }) => void (headers["age"] = "12") },
  {
    name: "new-payee-each-time",
    codes: ["terms_vary"],
    change: (reply, request) => {
      served += 1;
      ofEntry({ payTo: testAccount(910 + (served % 5)).address })(reply, request);
    },
  },

  {
    name: "mpp",
    codes: [],
    change: (reply) => {
      reply.offer = undefined;
      reply.headers["www-authenticate"] = challenge("charge");
    },
  },
  {
    name: "mpp-subscription",
    codes: ["mpp_refused"],
    change: (reply) => {
      reply.offer = undefined;
      reply.headers["www-authenticate"] = challenge("subscribe");
    },
  },
  {
    name: "no-node",
    codes: ["chain_not_read", "v2_only"],
    change: ofAccepts([base()]),
  },
  {
    name: "one-good-offer",
    codes: ["payee_zero", "network_not_here", "v2_only"],
    change: ofAccepts([entry({ payTo: `0x${"0".repeat(40)}` }), baseSepolia()]),
  },
];

export interface Asked {
  method: string;
  path: string;
  body: string;
}

/** The host's documents, by what is wrong with them. `listsAll` is what all other cases get. */
export const DOCUMENTS: { text: string; status?: number; type?: string; codes: CauseCode[] }[] = [
  { text: "", status: 404, codes: ["well_known_missing"] },
  { text: "<!doctype html>", type: "text/html", codes: ["well_known_missing"] },
  { text: "{}", status: 402, codes: ["well_known_broken"] },
  { text: '{\n  "version": 1,\n  "resources": [,]\n}', codes: ["well_known_broken"] },
  { text: '["https://shop.example/a"]', codes: ["well_known_broken"] },
  { text: '{"version":1}', codes: ["well_known_broken"] },
  { text: '{"x402Version":2,"resources":["/flawless"]}', codes: ["well_known_broken"] },
  { text: '{"version":1,"resources":["/flawless","two words"]}', codes: ["well_known_broken"] },
  {
    text: '{"version":1,"resources":["/flawless","https://other.example/a"]}',
    codes: ["well_known_other_host"],
  },
  { text: '{"version":1,"resources":["/other"]}', codes: ["well_known_omits"] },
  {
    text: JSON.stringify({
      version: 1,
      resources: Array.from({ length: 51 }, (_, at) => `/${at}`),
    }),
    codes: ["well_known_long"],
  },
  { text: '{"version":1,"resources":["GET /flawless"]}', codes: [] },
];

const listsAll = (asked: string): string => JSON.stringify({ version: 1, resources: [asked] });

export async function brokenSellers(t: Pick<Test, "teardown">) {
  const asked: Asked[] = [];
  const state: { document: (typeof DOCUMENTS)[number] | undefined } = { document: undefined };
  const server = await localServer(t, (request, response) => {
    const found = CASES.find(({ name }) => request.url === `/${name}`);
    let body = "";
    request.setEncoding("utf8").on("data", (chunk: string) => (body += chunk));
    request.on("end", () => {
      asked.push({ method: request.method ?? "", path: request.url ?? "", body });
      const last = asked.findLast(({ path }) => path !== WELL_KNOWN)?.path ?? "";
      const {
        text,
        status = 200,
        type = "application/json",
      } = state.document ?? {
        text: listsAll(last),
      };
      if (request.url === WELL_KNOWN)
        response.writeHead(status, { "content-type": type }).end(text);
      else if (!found) response.writeHead(404).end();
      else if (found.answer) found.answer(response, request);
      else reply(found, request, response);
    });
  });
  return Object.assign(state, { origin: server.origin, asked });
}

function reply({ change }: Case, request: IncomingMessage, response: ServerResponse): void {
  const made = flawless(urlOf(request));
  change?.(made, request);
  if (request.method === "OPTIONS") {
    response.writeHead(204, made.preflight).end();
    return;
  }
  const { offer, header = offer && Buffer.from(JSON.stringify(offer)).toString("base64") } = made;
  const sent = header === undefined ? {} : { "payment-required": header };
  response
    .writeHead(made.status, { ...made.headers, ...sent })
    .end(typeof made.body === "string" ? made.body : JSON.stringify(made.body));
}
