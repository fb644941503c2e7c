// Goal: a client written only from the published contract, field by field, works for agents: paying, fetching,
// reading, being refused.
import t from "tap";
import {
  address,
  count,
  exactly,
  fields,
  flag,
  hash,
  holds,
  listOf,
  money,
  network,
  orNull,
  pageOf,
  text,
  time,
  type Fields,
} from "../helpers/contract.ts";
import { asOwner } from "../helpers/owner.ts";
import { market, PAYEE } from "../x402-client/market.ts";

const UNLISTED_PAYEE = "0x90F79bf6EB2c4f870365E785982E1f101E93b906";
const made = await market(t, { agent: { dailyLimit: "2", perPaymentLimit: "1.9" } });
const { app, agent, owner, seller } = made;

const limits = fields({
  limit: money,
  spent: money,
  reserved: money,
  remaining: money,
  nextReleaseAt: orNull(time),
  available: money,
  boundBy: text,
});
const PROBLEM: Fields = {
  type: text,
  title: text,
  status: count,
  detail: text,
  code: text,
  requestId: text,
  success: exactly(false),
  error: text,
};
const DENIAL: Fields = {
  ...PROBLEM,
  blocked: exactly(true),
  retryable: flag,
  suggestion: text,
  policy: fields({
    rule: text,
    window: text,
    limit: money,
    spent: money,
    reserved: money,
    remaining: money,
    requested: money,
  }),
};
const RECORDED = { ...DENIAL, paymentId: text };
const LIMIT_DENIAL = { ...RECORDED, nextReleaseAt: orNull(time), availableAt: orNull(time) };
const FETCHED: Fields = {
  paid: flag,
  amountPaid: money,
  txHash: orNull(hash),
  paymentId: orNull(text),
  status: count,
  delivered: flag,
  remaining: money,
  evidence: orNull(text),
};
const FETCHED_IN_FULL: Fields = {
  ...FETCHED,
  source: text,
  contentType: orNull(text),
  network: orNull(network),
  payTo: orNull(address),
};

const call = async (url: string, body: unknown, headers: Record<string, string> = {}) => {
  const response = await app.inject({
    method: "POST",
    url,
    headers: { ...agent.headers, ...headers },
    payload: JSON.stringify(body),
  });
  return { status: response.statusCode, headers: response.headers, body: response.json<unknown>() };
};
const read = async (url: string) => app.inject({ url, headers: agent.headers });
const spend = (body: object, headers = {}) => call("/api/agents/spend", body, headers);
const fetch = (body: object, headers = {}) => call("/api/agents/x402-fetch", body, headers);

t.test("me", async (t) => {
  const response = await read("/api/agents/me");
  t.equal(response.statusCode, 200);
  t.match(response.headers["x-request-id"], /./);
  for (const name of ["ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"])
    t.match(response.headers[name], /^[0-9]+$/, name);
  holds(
    t,
    response.json(),
    fields({
      name: text,
      wallet: address,
      network,
      asset: address,
      balance: money,
      limits,
      allowlist: listOf(fields({ address, label: text })),
      status: text,
      key: fields({ label: text, prefix: text, last4: text, expiresAt: orNull(time) }),
    }),
    "GET /api/agents/me",
  );
});

t.test("spend, and the same key again", async (t) => {
  const body = { recipient: PAYEE, amount: "0.25", memo: "contract" };
  const headers = { "idempotency-key": "contract-1" };
  const first = await spend(body, headers);
  t.equal(first.status, 200);
  const expected = fields({
    success: exactly(true),
    txHash: hash,
    paymentId: text,
    recipient: exactly(PAYEE),
    amount: exactly("0.25"),
    network,
    settledAt: time,
    remaining: exactly("1.75"),
  });
  holds(t, first.body, expected, "POST /api/agents/spend");
  const again = await spend(body, headers);
  t.same(again.body, first.body);
  t.equal(again.headers["idempotent-replayed"], "true");
  const other = await spend({ ...body, amount: "0.26" }, headers);
  t.match(other, { status: 422, body: { code: "idempotency_key_reused" } });
  t.match(await spend(body, { "idempotency-key": "" }), {
    status: 400,
    body: { code: "idempotency_key_invalid" },
  });
});

t.test("x402-fetch: paid, free, binary, and the price alone", async (t) => {
  const paid = await fetch({ url: seller.url, maxAmount: "0.01" });
  t.equal(paid.status, 200);
  holds(t, paid.body, fields({ ...FETCHED, data: fields({ answer: count }) }), "paid");
  t.match(paid.body, { paid: true, amountPaid: "0.001", txHash: /^0x/, delivered: true });
  const whole = await fetch({ url: seller.url, detail: "full" });
  holds(t, whole.body, fields({ ...FETCHED_IN_FULL, data: fields({ answer: count }) }), "full");

  seller.script = { onUnpaid: ({ response }) => void response.end("for nothing") };
  const free = await fetch({ url: seller.url });
  holds(t, free.body, fields({ ...FETCHED, text: exactly("for nothing") }), "free");
  t.match(free.body, { paid: false, amountPaid: "0", txHash: null });

  seller.script = { onUnpaid: ({ response }) => void response.end(Buffer.from([0, 255, 1])) };
  const binary = await fetch({ url: seller.url });
  holds(t, binary.body, fields({ ...FETCHED, dataBase64: exactly("AP8B") }), "binary");

  seller.script = {};
  const dryRun = await fetch({ url: seller.url, dryRun: true });
  const rule = fields({ rule: text, passed: orNull(flag) });
  holds(
    t,
    dryRun.body,
    fields({
      ...FETCHED,
      price: exactly("0.001"),
      requirement: fields({ scheme: exactly("exact"), payTo: exactly(PAYEE) }),
      verdict: fields({ allowed: exactly(true), rules: listOf(rule) }),
    }),
    "dry run",
  );
  t.match(dryRun.body, { paid: false, amountPaid: "0", txHash: null });
  for (const body of [{}, { url: seller.url, listingId: "lst_1" }])
    t.match(await fetch(body), { status: 422, body: { code: "validation_failed" } });
});

t.test("payments, newest first", async (t) => {
  const item: Fields = {
    id: text,
    kind: text,
    status: text,
    network,
    asset: address,
    recipient: orNull(address),
    amount: money,
    createdAt: time,
    settledAt: orNull(time),
    txHash: orNull(hash),
  };
  const page = await read("/api/agents/me/payments?limit=1");
  holds(t, page.json(), pageOf(item), "GET /api/agents/me/payments");
  const { items, nextCursor } = page.json<{ items: { id: string }[]; nextCursor: string }>();
  t.equal(items.length, 1);
  const one = await read(`/api/agents/me/payments/${items[0]?.id}`);
  holds(t, one.json(), fields(item), "GET /api/agents/me/payments/:id");
  const next = await read(`/api/agents/me/payments?limit=1&cursor=${nextCursor}`);
  t.not(next.json<{ items: { id: string }[] }>().items[0]?.id, items[0]?.id);
  for (const query of ["limit=0", "limit=101", "cursor=x", "nonsense=1"])
    t.equal((await read(`/api/agents/me/payments?${query}`)).statusCode, 422, query);
});

t.test("every denial has its rule, its numbers and the time it ends", async (t) => {
  const daily = await spend({ recipient: PAYEE, amount: "1.8" });
  t.equal(daily.status, 403);
  holds(t, daily.body, fields({ ...LIMIT_DENIAL, availableAt: time }), "will fit again");
  t.match(daily.body, { code: "daily_limit_exceeded", retryable: true });

  const tooMuch = await spend({ recipient: PAYEE, amount: "1.95" });
  holds(t, tooMuch.body, fields({ ...LIMIT_DENIAL, availableAt: exactly(null) }), "never fits");
  t.match(tooMuch, { status: 403, body: { code: "per_payment_limit_exceeded", retryable: false } });

  const notAllowed = await spend({ recipient: UNLISTED_PAYEE, amount: "0.1" });
  holds(t, notAllowed.body, fields(RECORDED), "payee");
  t.match(notAllowed, { status: 403, body: { code: "recipient_not_allowed" } });

  const dear = await fetch({ url: seller.url, maxAmount: "0.0001" });
  holds(t, dear.body, fields(RECORDED), "maxAmount");
  t.match(dear, { status: 403, body: { code: "price_exceeds_max" } });

  const inside = { url: "http://169.254.169.254/latest/meta-data" };
  const blocked = await fetch(inside);
  holds(t, blocked.body, fields(RECORDED), "address");
  t.match(blocked, { status: 403, body: { code: "url_blocked" } });
  const payments = (await read("/api/agents/me/payments")).body;
  const dryRun = await fetch({ ...inside, dryRun: true });
  holds(t, dryRun.body, fields({ ...DENIAL, paymentId: exactly(null) }), "address, dry run");
  t.equal((await read("/api/agents/me/payments")).body, payments, "a dry run records nothing");

  const pause = (status: string) =>
    asOwner(app, owner, { method: "PATCH", url: `/api/agents/${agent.id}`, body: { status } });
  await pause("paused");
  const paused = await spend({ recipient: PAYEE, amount: "0.1" });
  holds(t, paused.body, fields(RECORDED), "paused");
  t.match(paused, { status: 403, body: { code: "agent_paused" } });
  await pause("active");
});

t.test("a low balance is Purser's own 402, not an x402 payment challenge", async (t) => {
  await asOwner(app, owner, {
    method: "PATCH",
    url: `/api/agents/${agent.id}`,
    body: { dailyLimit: "1000", perPaymentLimit: null },
  });
  const poor = await spend({ recipient: PAYEE, amount: "999" });
  t.match(poor, { status: 402, body: { code: "insufficient_funds" } });
  t.equal(poor.headers["payment-required"], undefined);
  holds(
    t,
    poor.body,
    fields({ ...RECORDED, balance: money, required: money, fundingAddress: address }),
    "insufficient_funds",
  );
});

t.test("a seller that takes the payment and fails", async (t) => {
  seller.script = {
    onProof: async ({ response, proof }) => {
      if (seller.proofs.at(-2)?.payload.authorization.nonce !== proof.payload.authorization.nonce)
        await seller.settle(proof);
      response.writeHead(500).end();
    },
  };
  const failed = await fetch({ url: seller.url });
  t.match(failed, { status: 502, body: { code: "paid_upstream_failed" } });
  holds(t, failed.body, fields({ ...PROBLEM, txHash: hash, amountPaid: exactly("0.001") }), "paid");
});

t.test("invalid requests", async (t) => {
  const send = (payload: string, contentType: string) =>
    app.inject({
      method: "POST",
      url: "/api/agents/spend",
      headers: { ...agent.headers, "content-type": contentType },
      payload,
    });
  t.match((await send("{", "application/json")).json(), { status: 400, code: "invalid_json" });
  for (const type of ["text/plain", "application/x-www-form-urlencoded", "application/xml"])
    t.match((await send("{}", type)).json(), { status: 415, code: "unsupported_media_type" }, type);
  const unknown = await spend({ recipient: PAYEE, amount: "1", note: "x" });
  t.match(unknown, { status: 422, body: { code: "validation_failed" } });
  const listed = listOf(fields({ path: text, message: text }));
  holds(t, unknown.body, fields({ ...PROBLEM, errors: listed }), "validation_failed");
  for (const [field, value, code] of [
    ["amount", "1e3", "invalid_amount"],
    ["amount", "0", "invalid_amount"],
    ["amount", "0.0000001", "invalid_amount"],
    ["recipient", "0x12", "invalid_address"],
  ] as const)
    t.match(await spend({ recipient: PAYEE, amount: "1", [field]: value }), {
      status: 422,
      body: { code },
    });
});
