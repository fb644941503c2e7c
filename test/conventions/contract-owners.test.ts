// Goal: a client written only from the published contract, field by field, works for owners: signing in, agents,
// keys, withdrawals, overview, listings.
import t from "tap";
import type { PrivateKeyAccount } from "viem/accounts";
import { testApp } from "../helpers/app.ts";
import { testAccount } from "../helpers/chain.ts";
import {
  address,
  atomic,
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
import { asOwner, signIn, siweMessage } from "../helpers/owner.ts";
import { reaching, seller } from "../marketplace/seller.ts";

const PAYEE = "0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC";
const OTHER = "0x90F79bf6EB2c4f870365E785982E1f101E93b906";
const UNKNOWN = "agt_00000000000000000000000000";
const account: PrivateKeyAccount = testAccount(1_000);
const shop = await seller(t);
const service = await testApp(t, reaching(shop));
const { app, chain } = service;
const owner = await signIn(service, account);

type Method = "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
async function call(method: Method, url: string, payload?: object, headers = owner.headers) {
  const response = await asOwner(app, { account, headers }, { method, url, body: payload });
  const isJson = /json/.test(String(response.headers["content-type"]));
  const body: unknown = isJson ? response.json() : response.body;
  return { status: response.statusCode, headers: response.headers, body };
}

const limits = fields({ limit: money, spent: money, reserved: money, remaining: money });
const payee = fields({ address, label: text });
const AGENT: Fields = {
  id: text,
  name: text,
  status: text,
  network,
  wallet: address,
  balance: orNull(money),
  dailyLimit: money,
  perPaymentLimit: orNull(money),
  expiresAt: orNull(time),
  allowlist: listOf(payee),
  limits,
};
const KEY: Fields = {
  id: text,
  label: text,
  prefix: text,
  last4: text,
  createdAt: time,
  expiresAt: orNull(time),
  revokedAt: orNull(time),
  lastUsedAt: orNull(time),
};

t.test("signing in and out", async (t) => {
  const nonce = await call("GET", "/api/auth/nonce");
  // At least 96 bits, in the letters and digits that EIP-4361 allows.
  holds(t, nonce.body, fields({ nonce: { pattern: /^[A-Za-z0-9]{16,}$/ } }), "nonce");
  const message = siweMessage(service, {
    nonce: (nonce.body as { nonce: string }).nonce,
    address: account.address,
  });
  const signed = { message, signature: await account.signMessage({ message }) };
  const { cookie: _none, ...fresh } = owner.headers;
  const entered = await call("POST", "/api/auth/verify", signed, fresh);
  t.equal(entered.status, 200);
  t.same(entered.body, { address: account.address });
  const cookie = String([entered.headers["set-cookie"]].flat()[0]);
  t.match(cookie, /; HttpOnly; SameSite=Strict/);
  const replayed = await call("POST", "/api/auth/verify", signed, fresh);
  t.match(replayed, { status: 401, body: { code: "invalid_signature" } });
  t.match(replayed.headers["www-authenticate"], /./);

  const headers = { ...fresh, cookie: cookie.split(";", 1)[0] ?? "" };
  const session = await call("GET", "/api/auth/session", undefined, headers);
  holds(t, session.body, fields({ address: exactly(account.address) }), "session");
  const sessions = await call("GET", "/api/auth/sessions", undefined, headers);
  holds(t, sessions.body, pageOf({ id: text, createdAt: time, current: flag }), "sessions");
  t.equal((await call("POST", "/api/auth/logout", undefined, headers)).status, 200);
  const gone = await call("GET", "/api/auth/session", undefined, headers);
  t.match(gone, { status: 401, body: { code: "session_required" } });
  t.match(gone.headers["www-authenticate"], /./);
  const key = { authorization: "Bearer purser_key" };
  t.match(await call("GET", "/api/agents/spend", undefined, key), {
    status: 401,
    body: { code: "session_required", detail: /key does not open GET \/api\/agents\/:id.*method/ },
  });
  const elsewhere = { ...owner.headers, origin: "https://elsewhere.example" };
  t.match(await call("POST", "/api/agents", {}, elsewhere), {
    status: 403,
    body: { code: "origin_not_allowed" },
  });
});

t.test("agents, their payees, keys and history", async (t) => {
  const made = await call("POST", "/api/agents", {
    name: "Contract",
    dailyLimit: "5",
    perPaymentLimit: "2.5",
    allowlist: [PAYEE, { address: OTHER, label: "Other" }],
  });
  t.equal(made.status, 201);
  const apiKey = { pattern: /^purser_[A-Za-z0-9_-]{32,}$/ };
  holds(t, made.body, fields({ agent: fields(AGENT), apiKey }), "POST /api/agents");
  const { agent, apiKey: key } = made.body as { agent: { id: string }; apiKey: string };
  const path = `/api/agents/${agent.id}`;

  holds(t, (await call("GET", "/api/agents")).body, pageOf(AGENT), "GET /api/agents");
  const one = await call("GET", path);
  holds(t, one.body, fields(AGENT), "GET /api/agents/:id");
  t.notMatch(JSON.stringify(one.body), key, "the key is shown once");
  const changed = await call("PATCH", path, { dailyLimit: "6", status: "paused" });
  t.match(changed, { status: 200, body: { dailyLimit: "6", status: "paused" } });
  t.match(await call("PATCH", path, { status: "active" }), { body: { status: "active" } });
  t.match(await call("GET", `/api/agents/${UNKNOWN}`), {
    status: 404,
    body: { code: "not_found" },
  });

  const allowlist = fields({ allowlist: listOf(payee) });
  for (const [method, url, body, size] of [
    ["PUT", `${path}/allowlist`, { allowlist: [PAYEE] }, 1],
    ["POST", `${path}/allowlist`, { address: OTHER, label: "Other" }, 2],
    ["DELETE", `${path}/allowlist/${OTHER}`, undefined, 1],
  ] as const) {
    const answer = await call(method, url, body);
    holds(t, answer.body, allowlist, `${method} ${url}`);
    t.equal((answer.body as { allowlist: unknown[] }).allowlist.length, size, method);
  }

  const issued = await call("POST", `${path}/keys`, { label: "second" });
  t.equal(issued.status, 201);
  holds(t, issued.body, fields({ key: fields(KEY), apiKey }), "POST keys");
  const { id } = (issued.body as { key: { id: string } }).key;
  const rotated = await call("POST", `${path}/keys/${id}/rotate`, { graceSeconds: 60 });
  holds(t, rotated.body, fields({ key: fields(KEY), apiKey }), "rotate");
  const revoked = await call("DELETE", `${path}/keys/${id}`);
  holds(t, revoked.body, fields({ key: fields({ ...KEY, revokedAt: time }) }), "revoke");
  holds(t, (await call("GET", `${path}/keys`)).body, pageOf(KEY), "GET keys");

  const audit = pageOf({ actor: address, action: text, createdAt: time });
  const history = await call("GET", `${path}/audit`);
  holds(t, history.body, audit, "GET audit");
  t.match(history.body, { items: [{ before: Object, after: Object }] });
  const payments = pageOf({ id: text, kind: text, status: text, amount: money });
  const query =
    "status=settled,blocked&kind=spend&from=2026-01-01T00:00:00Z&to=2036-01-01T00:00:00Z";
  holds(t, (await call("GET", `${path}/payments?${query}`)).body, payments, "GET payments");
  const csv = await call("GET", `${path}/payments`, undefined, {
    ...owner.headers,
    accept: "text/csv",
  });
  t.match(csv.headers["content-type"], /^text\/csv/);
});

t.test("a withdrawal, from the order to the transaction hash", async (t) => {
  const made = await call("POST", "/api/agents", { name: "Leaving", dailyLimit: "1" });
  const { agent } = made.body as { agent: { id: string; wallet: `0x${string}` } };
  const path = `/api/agents/${agent.id}`;
  await chain.mint(agent.wallet, 3_000_000n);
  t.match(await call("POST", `${path}/archive`), {
    status: 409,
    body: { code: "agent_has_funds" },
  });
  const prepared = await call("POST", `${path}/withdrawals/prepare`, { amount: "max" });
  const members = {
    wallet: exactly(agent.wallet),
    to: exactly(account.address),
    asset: address,
    nonce: hash,
  };
  const order = fields({ ...members, amount: exactly("3000000"), deadline: atomic });
  const typedData = fields({
    types: fields({ EIP712Domain: listOf(fields({ name: text, type: text })) }),
    primaryType: exactly("Withdraw"),
    domain: fields({ name: exactly("Purser"), chainId: count }),
    message: fields({ ...members, amount: exactly("3.00 USDC"), deadline: text }),
  });
  holds(t, prepared.body, fields({ order, typedData }), "prepare");
  const ready = prepared.body as { order: object; typedData: never };
  const wrong = {
    order: ready.order,
    signature: await testAccount(1_001).signTypedData(ready.typedData),
  };
  const refused = await call("POST", `${path}/withdrawals`, wrong);
  t.match(refused, { status: 401, body: { code: "invalid_signature" } });
  t.match(refused.headers["www-authenticate"], /./);
  const right = { order: ready.order, signature: await account.signTypedData(ready.typedData) };
  const done = await call("POST", `${path}/withdrawals`, right);
  t.equal(done.status, 200);
  holds(t, done.body, fields({ success: exactly(true), txHash: hash, paymentId: text }), "done");
  t.match(await call("POST", `${path}/withdrawals`, right), {
    status: 409,
    body: { code: "withdrawal_replayed" },
  });
  t.match(await call("POST", `${path}/archive`), { status: 200, body: { status: "archived" } });
});

t.test("the overview", async (t) => {
  const point = fields({ at: time, spent: money, count, blocked: count });
  const totals = fields({ balance: orNull(money), spent24h: money, agents: count });
  const overview = fields({ totals, hourly: listOf(point), daily: listOf(point) });
  holds(t, (await call("GET", "/api/overview")).body, overview, "GET /api/overview");
});

t.test("listings, created by owners and readable by all", async (t) => {
  const made = await call("POST", "/api/listings", { url: `${shop.origin}/weather`, name: "Rain" });
  t.equal(made.status, 201);
  const listing: Fields = {
    id: text,
    thirdParty: fields({
      untrusted: exactly(true),
      name: text,
      description: text,
      category: text,
    }),
    url: text,
    host: text,
    network,
    asset: address,
    payTo: address,
    price: money,
    maxPrice: money,
    status: text,
  };
  holds(t, made.body, fields(listing), "POST /api/listings");
  const { id } = made.body as { id: string };
  const query = "search=rain&network=eip155:5042002&maxPrice=1";
  const found = await app.inject(`/api/listings?${query}`);
  holds(t, found.json(), pageOf(listing), "GET /api/listings");
  t.equal(found.json<{ items: unknown[] }>().items.length, 1);
  holds(t, (await app.inject(`/api/listings/${id}`)).json(), fields(listing), "GET listing");
  t.match(await call("PATCH", `/api/listings/${id}`, { status: "paused" }), { status: 200 });
  t.equal((await call("DELETE", `/api/listings/${id}`)).status, 200);
  t.equal((await app.inject(`/api/listings/${id}`)).statusCode, 404);
});
