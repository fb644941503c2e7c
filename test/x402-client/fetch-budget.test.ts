// Goal: free fetches fill neither disk nor memory, a refusal for lack of room comes before any cost, and every fetch is in the ledger.
import t from "tap";
import { deleteOldRows } from "../../server/infra/retention.ts";
import { BUDGET, FetchBudget } from "../../server/plugins/x402-client/budget.ts";
import { KEPT_BYTES_PER_DAY, placeForLedger } from "../../server/plugins/x402-client/ledger.ts";
import { until } from "../helpers/until.ts";
import { assertLedgerIsChain, market } from "./market.ts";

const MIB = 1024 * 1024;

t.test("an agent without a budget cannot fill the disk with free responses", async (t) => {
  const made = await market(t, { agent: { dailyLimit: "0" } });
  const { seller, database, agent } = made;
  const big = Buffer.alloc(MIB, "x");
  seller.script = { onUnpaid: ({ response }) => void response.writeHead(200).end(big) };
  for (let nth = 0; nth < 6; nth += 1) {
    const { status, body } = await made.fetch(
      { url: seller.url },
      { "idempotency-key": `k${nth}` },
    );
    t.equal(status, 200);
    t.equal((body["text"] as string).length, big.length);
  }
  const { rows } = await database.pool.query<{ kept: string; fetched: string; count: string }>(
    `SELECT (SELECT sum(pg_column_size(k.*)) FROM idempotency_keys k) AS kept,
            sum(bytes) AS fetched, count(*) FROM fetches WHERE agent_id = $1`,
    [agent.id],
  );
  t.match(rows, [{ fetched: String(6 * big.length), count: "6" }]);
  t.ok(Number(rows[0]?.kept) < 6 * 1_000, `${rows[0]?.kept} bytes kept`);
});

t.test("parallel fetches and bytes are bounded by agent, by owner and in total", async (t) => {
  const limits = {
    ...BUDGET,
    fetchesPerAgent: 2,
    fetchesPerOwner: 3,
    fetches: 4,
    bytesPerAgent: 8 * MIB,
    bytesPerOwner: 9 * MIB,
    bytes: 15 * MIB,
    answerBytes: 5 * MIB,
    waitMs: 50,
  };
  const of = (agentId: string, ownerId = agentId) => ({ agentId, ownerId });
  const budget = new FetchBudget(limits);
  const first = budget.enter(of("a"));
  const second = budget.enter(of("a"));
  t.throws(() => budget.enter(of("a")), { code: "fetch_capacity", extra: { scope: "agent" } });
  const sibling = budget.enter(of("a2", "a"));
  t.throws(() => budget.enter(of("a3", "a")), {
    code: "fetch_capacity",
    extra: { scope: "owner" },
  });
  const third = budget.enter(of("b"));
  t.throws(() => budget.enter(of("c")), { code: "fetch_capacity", extra: { scope: "service" } });
  t.ok(first.take(6 * MIB));
  t.notOk(second.take(3 * MIB), "more than one agent may hold");
  t.match(second.refusal, { code: "fetch_capacity", headers: { "retry-after": "2" } });
  await t.rejects(second.reserve(), { code: "fetch_capacity", extra: { scope: "agent" } });
  t.notOk(sibling.take(4 * MIB), "more than one owner's agents may hold");
  t.match(sibling.refusal, { code: "fetch_capacity", extra: { scope: "owner" } });
  t.ok(third.take(8 * MIB));
  t.notOk(sibling.take(2 * MIB), "more than all may hold");
  t.match(sibling.refusal, { code: "fetch_capacity", extra: { scope: "service" } });
  const waiting = new FetchBudget({ ...limits, waitMs: 10_000 });
  const holder = waiting.enter(of("a"));
  const next = waiting.enter(of("a"));
  await holder.reserve();
  const room = next.reserve();
  holder.end();
  holder.end();
  await room;
  t.ok(next.take(100 * MIB), "the memory reserved for a paid response is available");
  next.end();
  t.doesNotThrow(() => waiting.enter(of("a")));
});

t.test("an agent over its share is refused; a paid response is always read", async (t) => {
  const made = await market(t, { timings: { fetchRoomMs: 500 } });
  const { seller, app } = made;
  const { ownerId } = await app.prisma.agent.findUniqueOrThrow({ where: { id: made.agent.id } });
  const mine = { agentId: made.agent.id, ownerId };
  let release: () => void = () => undefined;
  const held = new Promise<void>((resolve) => (release = resolve));
  seller.script = {
    onUnpaid: async ({ response }) => {
      await held;
      response.writeHead(200).end("late");
    },
  };
  const running = Array.from({ length: BUDGET.fetchesPerAgent }, () =>
    made.fetch({ url: seller.url }),
  );
  await until(() => seller.unpaidRequests.length === BUDGET.fetchesPerAgent, 20_000);
  const refused = await made.fetch({ url: seller.url });
  t.match(refused, {
    status: 429,
    body: { code: "fetch_capacity", scope: "agent", paid: false },
  });
  t.equal(refused.headers["retry-after"], "2");
  release();
  for (const { status } of await Promise.all(running)) t.equal(status, 200);

  // Nearly the whole share is held: free responses are cut off, and payments are not begun.
  const lease = app.fetchBudget.enter(mine);
  lease.take(BUDGET.bytesPerAgent - 10);
  seller.script = {
    onUnpaid: ({ response }) => void response.writeHead(200).end("x".repeat(100_000)),
  };
  t.match(await made.fetch({ url: seller.url }), {
    status: 429,
    body: { code: "fetch_capacity" },
  });
  seller.script = { onUnpaid: ({ response }) => void response.writeHead(200).end("a few bytes") };
  t.match(await made.fetch({ url: seller.url }), { status: 200 }, "a small response always fits");
  seller.script = { onProof: ({ response }) => void response.writeHead(200).end("on credit") };
  lease.end();
  const begun = { "idempotency-key": "begun" };
  const unknown = await made.fetch({ url: seller.url }, begun);
  t.match(unknown, { status: 504, body: { code: "payment_status_unknown" } });
  seller.script = {};
  const proofs = seller.proofs.length;
  const hog = app.fetchBudget.enter(mine);
  hog.take(BUDGET.bytesPerAgent - MIB);
  const order = { url: seller.url, method: "POST", body: "1" };
  const key = { "idempotency-key": "no room" };
  // Each of them waits for room up to the limit.
  const [get, post, again] = await Promise.all([
    made.fetch({ url: seller.url }),
    made.fetch(order, key),
    made.fetch({ url: seller.url }, begun),
  ]);
  for (const response of [get, post])
    t.match(response, { status: 429, body: { code: "fetch_capacity", paid: false } });
  t.match(again, {
    status: 409,
    headers: { "retry-after": "1" },
    body: { code: "idempotency_in_progress", paymentId: unknown.body["paymentId"] },
  });
  t.notMatch(again.text, /othing was paid/, "a signed payment may have been made");
  t.equal(seller.proofs.length, proofs, "nothing was signed");
  hog.end();
  t.match(await made.fetch({ url: seller.url }), { status: 200, body: { paid: true } });
  const [proof] = seller.proofs;
  if (proof) await seller.settle(proof);
  t.match(await made.fetch({ url: seller.url }, begun), {
    status: 200,
    body: { paid: true, text: "on credit", paymentId: unknown.body["paymentId"] },
  });
  t.match(
    await made.fetch(order, key),
    { status: 200, body: { paid: true } },
    "the unpaid POST has not run: its key can be used when there is room",
  );

  const full = app.fetchBudget.enter(mine);
  full.take(BUDGET.bytesPerAgent - 10);
  const ran: string[] = [];
  seller.script = {
    onUnpaid: ({ request, response }) => {
      ran.push(String(request.method));
      response.writeHead(201).end("x".repeat(100_000));
    },
  };
  const lost = { "idempotency-key": "no room for the answer" };
  t.match(await made.fetch(order, lost), { status: 429, body: { code: "fetch_capacity" } });
  t.match(await made.fetch(order, lost), {
    status: 409,
    body: { code: "answer_not_kept", detail: /may have reached the target/, paid: false },
  });
  t.same(ran, ["POST"], "it has run, although its response found no room");
  full.end();
  seller.script = {};
  await assertLedgerIsChain(t, made);
});

t.test("paid answers are stored up to a quota; over it nothing is signed", async (t) => {
  const made = await market(t);
  const { seller, database } = made;
  t.match(await made.fetch({ url: seller.url }, { "idempotency-key": "one" }), { status: 200 });
  await database.pool.query(
    "UPDATE fetches SET kept_bytes = $1, created_at = now() - interval '23 hours'",
    [KEPT_BYTES_PER_DAY],
  );
  const proofs = seller.proofs.length;
  const refused = await made.fetch({ url: seller.url }, { "idempotency-key": "two" });
  t.match(refused, {
    status: 429,
    body: { code: "fetch_quota_exceeded", quotaBytes: KEPT_BYTES_PER_DAY, paid: false },
  });
  const wait = Number(refused.headers["retry-after"]);
  t.ok(wait > 3_500 && wait <= 3_600, `Retry-After: ${wait}`);
  t.equal(seller.proofs.length, proofs);
  t.match(
    await made.fetch({ url: seller.url }),
    { status: 200, body: { paid: true } },
    "no key, nothing to store",
  );
  const replayed = await made.fetch({ url: seller.url }, { "idempotency-key": "one" });
  t.equal(replayed.headers["idempotent-replayed"], "true", "a stored answer is returned again");
  await database.pool.query("UPDATE fetches SET created_at = now() - interval '25 hours'");
  t.match(await made.fetch({ url: seller.url }, { "idempotency-key": "two" }), { status: 200 });
});

t.test("every fetch is in the ledger, without secrets, for agent and owner", async (t) => {
  const made = await market(t, { agent: { perPaymentLimit: "0.5" } });
  const { seller, app, agent, owner } = made;
  const token = "sk-live-0123456789abcdef0123";
  const path = `/v1/${token}/weather?key=s3cret`;
  const paid = await made.fetch({ url: `${seller.origin}${path}` });
  t.equal(paid.status, 200, JSON.stringify(paid.body));
  await made.fetch({ url: seller.url, dryRun: true });
  seller.script = { terms: () => seller.entry({ amount: "600000" }) };
  await made.fetch({ url: seller.url });
  seller.script = { onUnpaid: ({ response }) => void response.writeHead(200).end("hello") };
  await made.fetch({ url: seller.url });
  await made.fetch({ url: "http://10.0.0.1/" });
  seller.script = { onUnpaid: ({ request }) => void request.socket.destroy() };
  await made.fetch({ url: seller.url });

  const read = async (url: string, headers: Record<string, string>) => {
    const answer = await app.inject({ url, headers });
    t.equal(answer.statusCode, 200);
    t.notMatch(answer.body, /s3cret|sk-live/);
    return answer.json<{ items: object[]; nextCursor: string | null }>();
  };
  const mine = await read("/api/agents/me/fetches", agent.headers);
  t.match(mine.items, [
    { kind: "fetch", outcome: "failed", code: "upstream_error", status: null, bytes: 0 },
    { kind: "fetch", outcome: "refused", code: "url_blocked", origin: "http://10.0.0.1" },
    { kind: "fetch", outcome: "free", code: null, status: 200, bytes: 5, paymentId: null },
    { kind: "fetch", outcome: "refused", code: "per_payment_limit_exceeded", status: 402 },
    { kind: "quote", outcome: "quoted", status: 402, paymentId: null },
    {
      kind: "fetch",
      outcome: "paid",
      method: "GET",
      origin: seller.origin,
      path: "/v1/***/weather",
      status: 200,
      paymentId: paid.body["paymentId"],
      apiKeyId: agent.keyId,
    },
  ]);
  const page = await read(`/api/agents/${agent.id}/fetches?limit=4`, owner.headers);
  const rest = await read(
    `/api/agents/${agent.id}/fetches?limit=4&cursor=${page.nextCursor}`,
    owner.headers,
  );
  t.same([...page.items, ...rest.items], mine.items);
  await made.database.pool.query(
    "UPDATE fetches SET created_at = now() - interval '91 days' WHERE outcome = 'free'",
  );
  const deleted = await deleteOldRows(app.pool, app.config.retention);
  t.equal(deleted["fetches"], 1);
});

t.test("parts of a path that look like a key are not stored", async (t) => {
  const kept = (path: string) => placeForLedger(new URL(`https://x.example${path}`)).path;
  t.equal(
    kept("/v1/weather/new-york-city-hall-park?token=1#x"),
    "/v1/weather/new-york-city-hall-park",
  );
  t.equal(kept("/bot123456:ABC-DEF1234ghIkl-zyx57W2v1u123ew11/send"), "/***/send");
  t.equal(kept(`/k/${"a1".repeat(16)}`), "/k/***");
});
