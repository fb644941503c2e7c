// Goal: a payment for one route opens that request again and nothing else, whatever the caller puts into its
// Host header, forwarded headers or path.
import { x402HTTPClient } from "@x402/core/client";
import { decodePaymentRequiredHeader, decodePaymentResponseHeader } from "@x402/core/http";
import { createSIWxPayload, encodeSIWxHeader } from "@x402/extensions/sign-in-with-x";
import Fastify, { type FastifyInstance } from "fastify";
import { connect as connectHttp2 } from "node:http2";
import { connect } from "node:net";
import t from "tap";
import { OneProcessStore, paywall } from "../../packages/paywall/src/paywall.ts";
import { PostgresPaywallStore } from "../../server/plugins/paywall/store.ts";
import { testApp } from "../helpers/app.ts";
import { balanceOf, newAccount, openShop, stockPayer } from "./shop.ts";
import { referenceFacilitator } from "./stock.ts";

const our = await testApp(t);
const { chain } = our;
const facilitator = referenceFacilitator(chain);
const payer = newAccount();
await chain.mint(payer.address, 10_000_000n);
const http = new x402HTTPClient(stockPayer(chain, payer));
const PAY_TO = newAccount().address;

interface Sent {
  target: string;
  /** Sent unchanged, in this order, also repeated. */
  headers: [string, string][];
}
interface Answer {
  status: number;
  headers: Record<string, string>;
  body: string;
}
type Send = (request: Sent) => Promise<Answer>;

/** A client that sends requests which no HTTP library would send. */
const rawTo = (origin: string): Send => {
  const { hostname, port } = new URL(origin);
  return ({ target, headers }) =>
    new Promise((resolve, reject) => {
      const lines = [...headers, ["connection", "close"]].map(
        ([name, value]) => `${name}: ${value}`,
      );
      const socket = connect(Number(port), hostname, () =>
        socket.write(`GET ${target} HTTP/1.1\r\n${lines.join("\r\n")}\r\n\r\n`),
      );
      let text = "";
      socket.setEncoding("utf8").on("data", (chunk: string) => (text += chunk));
      socket.on("error", reject).on("end", () => {
        const [head = "", ...body] = text.split("\r\n\r\n");
        const [first = "", ...rest] = head.split("\r\n");
        const named = rest.map((line) => {
          const colon = line.indexOf(":");
          return [line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim()] as const;
        });
        resolve({
          status: Number(first.split(" ")[1]),
          headers: Object.fromEntries(named),
          body: body.join("\r\n\r\n"),
        });
      });
    });
};

/** Pays the terms in the response to this very request. */
async function buy(send: Send, request: Sent): Promise<Answer> {
  const unpaid = await send(request);
  if (unpaid.status !== 402) return unpaid;
  const required = decodePaymentRequiredHeader(unpaid.headers["payment-required"] ?? "");
  const payload = await http.createPaymentPayload(required);
  const proof = Object.entries(http.encodePaymentSignatureHeader(payload));
  for (;;) {
    const answer = await send({ ...request, headers: [...request.headers, ...proof] });
    const receipt = answer.headers["payment-response"];
    if (!receipt || decodePaymentResponseHeader(receipt).errorReason !== "settlement_pending")
      return answer;
  }
}

/** Signs in as a wallet that has paid. */
async function open(send: Send, request: Sent): Promise<Answer> {
  const unpaid = await send(request);
  if (unpaid.status !== 402) return unpaid;
  const { extensions } = decodePaymentRequiredHeader(unpaid.headers["payment-required"] ?? "");
  const { info, supportedChains } = (extensions ?? {})["sign-in-with-x"] as {
    info: Record<string, unknown> & { uri: string };
    supportedChains: object[];
  };
  const challenge = { ...info, ...supportedChains[0] } as never;
  const signed = encodeSIWxHeader(await createSIWxPayload(challenge, payer, info.uri));
  return send({ ...request, headers: [...request.headers, ["sign-in-with-x", signed]] });
}

const again = { for: "1h" };
const CHEAP = { price: "0.01", again };
const DEAR = { price: "0.5", again };

/** Each route returns its own name, so that a test sees which one was served. */
function addRoutes(app: FastifyInstance): void {
  const sell = (url: string, price: object, more: object = {}): void => {
    app.get(url, { config: { paywall: price as typeof CHEAP }, ...more }, async (request) => ({
      served: `${url} ${JSON.stringify(request.params)} ${JSON.stringify(more)}`,
      kind: request.payment?.kind,
    }));
  };
  sell("/cheap", CHEAP);
  sell("/dear", DEAR);
  // The same price, but a different resource.
  sell("/twin", CHEAP);
  sell("/items/:id", CHEAP);
  sell("/files/*", CHEAP);
  sell("/of", CHEAP, { constraints: { host: "a.example" } });
  sell("/of", CHEAP, { constraints: { host: "b.example" } });
  sell("/version", CHEAP, { constraints: { version: "1.0.0" } });
  sell("/version", CHEAP, { constraints: { version: "2.0.0" } });
}
const LENIENT = {
  trustProxy: true,
  routerOptions: { ignoreTrailingSlash: true, caseSensitive: false, useSemicolonDelimiter: true },
};

t.test("a paid request opens again, by each host name of the shop", async (t) => {
  const shop = await openShop(
    t,
    chain,
    facilitator,
    addRoutes,
    { store: new OneProcessStore(), payTo: PAY_TO },
    LENIENT,
  );
  const send = rawTo(shop.origin);
  for (const headers of [
    [["host", new URL(shop.origin).host]],
    [["host", "LocalHost:80"]],
    [["host", "[::1]:4395"]],
    [
      ["host", "inside"],
      ["x-forwarded-host", "shop.example"],
      ["x-forwarded-proto", "https"],
    ],
  ] as [string, string][][])
    for (const target of ["/cheap", "/cheap?a=1&b=%2F", "/items/1"]) {
      const bought = await buy(send, { target, headers });
      t.match(JSON.parse(bought.body), { kind: "settled" }, `${headers[0]?.[1]} ${target}`);
      const before = await balanceOf(chain, payer.address);
      const opened = await open(send, { target, headers });
      t.match(JSON.parse(opened.body), { kind: "again" }, `${headers[0]?.[1]} ${target}`);
      t.equal(await balanceOf(chain, payer.address), before);
    }
});

t.test("no crafted request opens another route", async (t) => {
  const options = { payTo: PAY_TO };
  const shop = await openShop(
    t,
    chain,
    facilitator,
    addRoutes,
    { ...options, store: new OneProcessStore() },
    LENIENT,
  );
  const { host } = new URL(shop.origin);
  const send = rawTo(shop.origin);
  const own: [string, string] = ["host", host];
  const composed = (target: string, rest: string): { buys: Sent[]; opens: Sent[] } => {
    const hosts = [
      `${host}${target}?q=`,
      `${host}${target}#`,
      `${host}${target}`,
      `u@${host}${target}?q=`,
    ];
    return {
      buys: hosts.flatMap((text): Sent[] => [
        { target: "/cheap", headers: [["host", text]] },
        { target: "/cheap", headers: [own, ["x-forwarded-host", text]] },
        { target: "/cheap", headers: [own, ["x-forwarded-host", `${host}, ${text}`]] },
        { target: "/cheap", headers: [own, ["x-forwarded-proto", `http://${text}`]] },
        { target: "/cheap", headers: [["host", text], own] },
        { target: `http://${host}/cheap`, headers: [["host", text]] },
      ]),
      opens: [
        target,
        `${target}?q=/cheap`,
        `${target}#/cheap`,
        `${target}?q=://${host}/cheap`,
        `${target}${rest}`,
      ].map((path) => ({ target: path, headers: [own] })),
    };
  };
  for (const target of ["/dear", "/twin"]) {
    const { buys, opens } = composed(target, "?q=http://x/cheap");
    for (const request of buys) {
      const { status } = await buy(send, request);
      t.ok([200, 400].includes(status), `${JSON.stringify(request)}: ${status}`);
    }
    for (const request of opens) {
      const { status } = await open(send, request);
      t.ok([400, 402].includes(status), `${JSON.stringify(request)}: ${status}`);
    }
  }

  for (const headers of [
    [["host", `${host}/dear?q=`]],
    [own, ["x-forwarded-host", `${host}/dear?q=`]],
    [own, ["x-forwarded-host", ", "]],
    [own, ["x-forwarded-proto", "javascript"]],
    [["host", ""]],
    [["host", "a b"]],
    [["host", "shop%2fdear"]],
    [["host", String.raw`shop\dear`]],
  ] as [string, string][][]) {
    const refused = await send({ target: "/cheap", headers });
    t.equal(refused.status, 400, JSON.stringify(headers));
    t.match(JSON.parse(refused.body), {
      code: "invalid_host",
      error: /host with an optional port/,
    });
  }
  const whole = await send({ target: `http://${host}/cheap`, headers: [own] });
  t.equal(whole.status, 400);
  t.match(JSON.parse(whole.body), { code: "invalid_request_target" });

  const spelled = [
    "/cheap",
    "/cheap?q=/dear",
    "/cheap#/dear",
    "/cheap;/../dear",
    "/cheap/",
    "/CHEAP",
    "/%63heap",
    "/cheap/../dear",
    "/cheap%2f..%2fdear",
    "//dear",
    "/files/../dear",
    "/files/..%2fdear",
    "/items/1",
    "/items/1?id=2",
    "/items/1;id=2",
  ];
  for (const target of spelled) await buy(send, { target, headers: [own] });
  for (const target of [
    "/dear",
    "/DEAR",
    "/dear/",
    "/twin",
    "/items/2",
    "/files/dear",
    "/cheap?q=1",
  ])
    t.equal((await open(send, { target, headers: [own] })).status, 402, target);
  t.equal((await open(send, { target: "/items/1", headers: [own] })).status, 200);

  const as = (name: string): Sent => ({
    target: "/of",
    // The route is chosen by the Host header, the URL is built from the forwarded host.
    headers: [
      ["host", name],
      ["x-forwarded-host", "b.example"],
    ],
  });
  t.equal((await buy(send, as("a.example"))).status, 200);
  t.equal((await open(send, as("b.example"))).status, 402, "a route of another host");
  const version = (accepted: string): Sent => ({
    target: "/version",
    headers: [own, ["accept-version", accepted]],
  });
  t.equal((await buy(send, version("1.0.0"))).status, 200);
  t.equal((await open(send, version("2.0.0"))).status, 402, "another version of the route");
});

t.test("shops that share a store do not open what the other sold for less", async (t) => {
  const store = () => new PostgresPaywallStore(our.app.prisma);
  const shopOf = async (resource: object, options: object = {}) =>
    openShop(
      t,
      chain,
      facilitator,
      (app) =>
        void app.get(
          "/article",
          { config: { paywall: resource as typeof CHEAP } },
          async () => "yes",
        ),
      { payTo: PAY_TO, store: store(), ...options },
    );
  const cheap = await shopOf(CHEAP);
  const request: Sent = { target: "/article", headers: [["host", "shop.example"]] };
  t.equal((await buy(rawTo(cheap.origin), request)).status, 200);
  t.equal((await open(rawTo(cheap.origin), request)).status, 200);
  t.equal((await open(rawTo((await shopOf(CHEAP)).origin), request)).status, 200, "its replica");
  const others = {
    dearer: await shopOf(DEAR),
    "paid by another account": await shopOf(CHEAP, { payTo: newAccount().address }),
    "of another origin": await shopOf(CHEAP, { publicUrl: "https://other.example" }),
  };
  for (const [what, { origin }] of Object.entries(others))
    t.equal((await open(rawTo(origin), request)).status, 402, what);
});

t.test("over HTTP/2 the authority is text from the caller too", async (t) => {
  const app = Fastify({ http2: true });
  await app.register(
    paywall as never,
    {
      facilitator,
      networks: [`eip155:${chain.chainId}`],
      payTo: PAY_TO,
      store: new OneProcessStore(),
    } as never,
  );
  addRoutes(app as unknown as FastifyInstance);
  const origin = await app.listen({ host: "127.0.0.1", port: 0 });
  const session = connectHttp2(origin);
  t.teardown(async () => {
    session.close();
    await app.close();
  });
  const send: Send = ({ target, headers }) =>
    new Promise((resolve, reject) => {
      const stream = session.request({ ":path": target, ...Object.fromEntries(headers) });
      let body = "";
      let got: Record<string, string> = {};
      stream.setEncoding("utf8").on("response", (named) => (got = named as typeof got));
      stream.on("data", (chunk: string) => (body += chunk)).on("error", reject);
      stream.on("end", () => resolve({ status: Number(got[":status"]), headers: got, body }));
      stream.end();
    });
  const { host } = new URL(origin);
  const named = (authority: string): [string, string][] => [[":authority", authority]];
  // HTTP/2 itself refuses a slash or a question mark in the authority; since Node 24 also an `@`.
  for (const authority of [`dear@${host}`, "shop%2fdear"]) {
    const refused = await send({ target: "/cheap", headers: named(authority) }).catch(
      (error: Error & { code?: string }) => error.code,
    );
    if (refused === "ERR_HTTP2_STREAM_ERROR") continue;
    if (typeof refused !== "object") throw new Error(`${authority}: ${refused}`);
    t.equal(refused.status, 400, authority);
    t.match(JSON.parse(refused.body), { code: "invalid_host" });
  }
  const request: Sent = { target: "/cheap", headers: named(host) };
  t.equal((await buy(send, request)).status, 200);
  t.match(JSON.parse((await open(send, request)).body), { kind: "again" });
  const dear = { target: "/dear?q=/cheap", headers: named(host) };
  t.equal((await open(send, dear)).status, 402);
});
