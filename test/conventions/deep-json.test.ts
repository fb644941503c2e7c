// Goal: JSON nested thousands of levels deep is refused or passed on as text at every entry point, and never causes
// a server error.
import type { ServerResponse } from "node:http";
import { encodePaymentResponseHeader, decodePaymentRequiredHeader } from "@x402/core/http";
import t from "tap";
import { isTooDeep, MAX_JSON_DEPTH, readForeignJson } from "../../server/core/foreign-text.ts";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { post, signedPayment } from "../facilitator/payments.ts";
import { testApp } from "../helpers/app.ts";
import { createAgent, signIn } from "../helpers/owner.ts";
import { market, PAYEE } from "../x402-client/market.ts";

const nested = (levels: number): string => "[".repeat(levels) + "]".repeat(levels);
const DEEP = nested(6_000);
const BELOW_HEADER_LIMIT = nested(5_000);
const base64 = (text: string): string => Buffer.from(text).toString("base64");

t.test("the limit is exact, for arrays, objects and both", async (t) => {
  const levels = (open: string, close: string, depth: number): unknown =>
    JSON.parse(`${open.repeat(depth)}0${close.repeat(depth)}`);
  for (const [open, close, each] of [
    ["[", "]", 1],
    ['{"a":', "}", 1],
    ['[{"a":', "}]", 2],
  ] as const) {
    t.equal(isTooDeep(levels(open, close, MAX_JSON_DEPTH / each)), false, open);
    t.equal(isTooDeep(levels(open, close, MAX_JSON_DEPTH / each + 1)), true, open);
  }
  for (const flat of [null, 1, "[[[[", [], {}, Array.from({ length: 10_000 }, () => [])])
    t.equal(isTooDeep(flat), false);
  t.match(
    readForeignJson(() => JSON.parse("[")),
    { ok: false, why: "is not JSON" },
  );
});

t.test("the body of every route", async (t) => {
  const service = await testApp(t);
  const { app, chain } = service;
  const owner = await signIn(service);
  const agent = await createAgent(service, owner);
  const credentials = {
    agent: agent.headers,
    owner: owner.headers,
    operator: owner.headers,
    facilitator: { "content-type": "application/json" },
    public: { "content-type": "application/json", origin: service.config.publicUrl },
    cell: {},
  };
  const routes = app.knownRoutes.filter(({ method }) =>
    ["POST", "PUT", "PATCH", "DELETE"].includes(method),
  );
  t.ok(routes.length > 20, `${routes.length} routes`);
  const refused: [string, RegExp][] = [
    [`{"body":${DEEP}}`, /nested deeper than 64 levels/],
    ['{"amount":"1","amount":"2"}', /two members of one name/],
  ];
  for (const { method, url, auth } of routes)
    for (const [payload, detail] of refused) {
      const response = await app.inject({
        method: method as "POST",
        url: url.replace(":id", agent.id).replace(/:\w+/, agent.keyId),
        headers: credentials[auth],
        payload,
      });
      // OAuth's own endpoints use OAuth's error format, and two of them accept no JSON.
      const refusal = url.startsWith("/oauth/")
        ? { error: "invalid_request" }
        : { code: "invalid_json", detail };
      t.match(
        { status: response.statusCode, ...response.json<object>() },
        { status: 400, ...refusal },
        `${method} ${url} ${payload.slice(0, 20)}`,
      );
    }

  await t.test("ordinary nesting is accepted", async (t) => {
    const payer = privateKeyToAccount(generatePrivateKey());
    await chain.mint(payer.address, 1_000_000n);
    const schema = JSON.parse(nested(MAX_JSON_DEPTH - 4)) as unknown;
    const body = await signedPayment({
      chain,
      payer,
      payTo: chain.admin.address,
      extensions: { bazaar: { schema } },
    });
    t.match(await post(app, "settle", body), { success: true });
  });
});

t.test("the proof sent to a paid route", async (t) => {
  const { app } = await testApp(t);
  const unpaid = await app.inject("/api/arc-stats");
  const [accepted] = decodePaymentRequiredHeader(
    String(unpaid.headers["payment-required"]),
  ).accepts;
  const v2 = `{"x402Version":2,"accepted":${JSON.stringify(accepted)},"payload":{"deep":${DEEP}}}`;
  const v1 = `{"x402Version":1,"scheme":"exact","network":"arc","payload":{"deep":${DEEP}}}`;
  for (const headers of [{ "payment-signature": base64(v2) }, { "x-payment": base64(v1) }]) {
    const response = await app.inject({ url: "/api/arc-stats", headers });
    t.equal(response.statusCode, 402, Object.keys(headers).join());
    t.equal(response.json().error, "invalid_payload");
  }
});

t.test("responses of sellers", async (t) => {
  const made = await market(t);
  const { seller } = made;
  const fetch = (): ReturnType<typeof made.fetch> => made.fetch({ url: seller.url });
  const entry = (deep: string): string =>
    JSON.stringify(seller.entry()).replace('"USDC"', `"USDC","deep":${deep}`);

  await t.test("terms in the header", async (t) => {
    const header = base64(`{"x402Version":2,"accepts":[${entry(BELOW_HEADER_LIMIT)}]}`);
    seller.script = {
      onUnpaid: ({ response }) =>
        void response.writeHead(402, { "payment-required": header }).end("{}"),
    };
    t.match(await fetch(), INVALID_402);
  });

  await t.test("terms in the body", async (t) => {
    const body = `{"x402Version":1,"accepts":[${entry(DEEP)}]}`;
    seller.script = { onUnpaid: ({ response }) => void response.writeHead(402).end(body) };
    t.match(await fetch(), INVALID_402);
  });

  await t.test("a free response is passed on as text", async (t) => {
    seller.script = { onUnpaid: ({ response }) => sendJson(response, DEEP) };
    const { status, body } = await fetch();
    t.equal(status, 200);
    t.equal(body["text"], DEEP);
  });

  await t.test("a paid response is passed on as text, and stored for a repeat", async (t) => {
    seller.script = {
      onProof: async ({ response, proof }) => {
        const transaction = await seller.settle(proof);
        sendJson(response, DEEP, seller.receipt({ transaction }));
      },
    };
    const headers = { "idempotency-key": "deep-1" };
    const first = await made.fetch({ url: seller.url }, headers);
    t.match(first, { status: 200, body: { paid: true, amountPaid: "0.001", delivered: true } });
    t.equal(first.body["text"], DEEP);
    t.same((await made.fetch({ url: seller.url }, headers)).body, first.body);
  });

  await t.test("a receipt is ignored; the chain proves the payment", async (t) => {
    const receipt = encodePaymentResponseHeader({
      success: true,
      transaction: "",
      network: "eip155:5042002",
    });
    const deep = Buffer.from(receipt, "base64")
      .toString()
      .replace("{", `{"deep":${BELOW_HEADER_LIMIT},`);
    seller.script = {
      onProof: async ({ response, proof }) => {
        await seller.settle(proof);
        sendJson(response, "{}", { "payment-response": base64(deep) });
      },
    };
    t.match(await fetch(), { status: 200, body: { paid: true, txHash: /^0x/ } });
  });

  await t.test("a listing's probe", async (t) => {
    const body = `{"x402Version":1,"accepts":[${entry(DEEP)}]}`;
    seller.script = { onUnpaid: ({ response }) => void response.writeHead(402).end(body) };
    const probe = await made.app.inject({
      method: "POST",
      url: "/api/listings/probe",
      headers: made.owner.headers,
      payload: JSON.stringify({ url: seller.url }),
    });
    t.match({ status: probe.statusCode, body: probe.json() }, INVALID_402);
  });

  t.equal(await made.balanceOf(PAYEE), 2_000n, "paid for the two responses that were bought");
});

const INVALID_402 = {
  status: 502,
  body: { code: "upstream_invalid_402", detail: /nested deeper than 64 levels/ },
};

function sendJson(
  response: ServerResponse,
  body: string,
  headers: Record<string, string> = {},
): void {
  response.writeHead(200, { "content-type": "application/json", ...headers }).end(body);
}
