// Goal: an agent's spend moves exactly its amount, and the response follows the documented contract.
import t from "tap";
import { privateKeyToAccount, generatePrivateKey } from "viem/accounts";
import { testApp } from "../helpers/app.ts";
import { createAgent, signIn } from "../helpers/owner.ts";
import { usdcOf } from "./ledger.helper.ts";

const ctx = await testApp(t);
const { app, chain } = ctx;
const owner = await signIn(ctx);
const payee = privateKeyToAccount(generatePrivateKey()).address;
const usdc = 1_000_000n;

const spend = (headers: Record<string, string>, body: unknown, key?: string) =>
  app.inject({
    method: "POST",
    url: "/api/agents/spend",
    headers: { ...headers, ...(key === undefined ? {} : { "idempotency-key": key }) },
    payload: JSON.stringify(body),
  });

t.test("pays and returns the remaining limit", async (t) => {
  const agent = await createAgent(ctx, owner, { dailyLimit: "10", allowlist: [payee] });
  await chain.mint(agent.walletAddress, 5n * usdc);
  const answer = await spend(agent.headers, { recipient: payee, amount: "1.50", memo: "lunch" });
  t.equal(answer.statusCode, 200, answer.body);
  const body = answer.json();
  t.match(body, {
    success: true,
    recipient: payee,
    amount: "1.5",
    network: "eip155:5042002",
    remaining: "8.5",
    txHash: /^0x[0-9a-f]{64}$/,
  });
  t.equal(await usdcOf(ctx, payee), 1_500_000n);
  const me = await app.inject({ url: "/api/agents/me", headers: agent.headers });
  t.match(me.json(), {
    wallet: agent.walletAddress,
    balance: "3.5",
    limits: { limit: "10", spent: "1.5", reserved: "0", remaining: "8.5" },
    allowlist: [{ address: payee }],
  });
  const list = await app.inject({ url: "/api/agents/me/payments", headers: agent.headers });
  t.match(list.json(), { items: [{ id: body.paymentId, status: "settled", memo: "lunch" }] });
});

t.test("a task is a ceiling of the agent's own, which no other call passes", async (t) => {
  const agent = await createAgent(ctx, owner, { dailyLimit: "10", allowlist: [payee] });
  const other = await createAgent(ctx, owner, { dailyLimit: "10", allowlist: [payee] });
  await chain.mint(agent.walletAddress, 5n * usdc);
  await chain.mint(other.walletAddress, 5n * usdc);
  const call = async (url: string, payload?: object, headers = agent.headers) => {
    const answer = await app.inject({
      method: payload === undefined ? "GET" : "POST",
      url,
      headers,
      ...(payload && { payload: JSON.stringify(payload) }),
    });
    return { status: answer.statusCode, body: answer.json<Record<string, unknown>>() };
  };
  const pay = (amount: string, task: string, headers = agent.headers) =>
    call("/api/agents/spend", { recipient: payee, amount, task }, headers);
  const expiresAt = new Date(Date.now() + 3_600_000).toISOString();
  const terms = { id: "report-1", limit: "1", expiresAt, name: "The report" };

  t.match(await call("/api/agents/tasks", terms), {
    status: 201,
    body: { state: "open", left: "1" },
  });
  t.match(await call("/api/agents/tasks", terms), {
    status: 200,
    body: { name: "The report", expiresAt },
  });
  for (const changed of [{ limit: "2" }, { expiresAt: null }, { name: "Another" }])
    t.match(await call("/api/agents/tasks", { ...terms, ...changed }), {
      status: 409,
      body: { code: "task_exists" },
    });
  for (const id of ["", "../x", "a b", "=1+1", "a/b", "-a", "ä", "a\u0000b", "x".repeat(65)])
    t.match(
      await call("/api/agents/tasks", { id, limit: "1" }),
      { status: 422 },
      JSON.stringify(id),
    );
  for (const wrong of [{ limit: "0" }, { limit: "-1" }, { limit: "1e3" }])
    t.match(await call("/api/agents/tasks", { id: "wrong", ...wrong }), {
      status: 422,
      body: { code: "invalid_amount" },
    });
  const past = { id: "past", limit: "1", expiresAt: "2020-01-01T00:00:00Z" };
  t.match(await call("/api/agents/tasks", past), {
    status: 422,
    body: { code: "validation_failed" },
  });
  const leap = { id: "leap", limit: "1", expiresAt: "2030-06-30T23:59:60Z" };
  t.match(await call("/api/agents/tasks", leap), {
    status: 422,
    body: { code: "validation_failed" },
  });

  const paid = await pay("0.6", "report-1");
  t.match(paid, { status: 200, body: { amount: "0.6", task: "report-1" } });
  t.match(await pay("0.5", "report-1"), {
    status: 403,
    body: {
      code: "task_ceiling_exceeded",
      blocked: true,
      retryable: false,
      suggestion: /the owner cannot lift it/,
      policy: {
        rule: "task",
        window: "task",
        limit: "1",
        spent: "0.6",
        reserved: "0",
        remaining: "0.4",
        requested: "0.5",
      },
      availableAt: null,
    },
  });
  const asked = { recipient: payee, amount: "0.5", task: "report-1", requestApproval: true };
  t.match(await call("/api/agents/spend", asked), {
    status: 403,
    body: { code: "task_ceiling_exceeded" },
  });
  t.match(await pay("0.1", "report-1", other.headers), {
    status: 403,
    body: { code: "task_not_found" },
  });
  t.match(await call("/api/tasks/report-1", undefined, other.headers), { status: 404 });
  t.match(await call("/api/tasks/report-1/close", {}, other.headers), { status: 404 });

  const keyed = { ...agent.headers, "idempotency-key": "same-1" };
  t.match(await pay("0.1", "report-1", keyed), { status: 200, body: { task: "report-1" } });
  t.match(await pay("0.1", "report-1", keyed), { status: 200, body: { task: "report-1" } });
  await call("/api/agents/tasks", { id: "report-2", limit: "1" });
  t.match(await pay("0.1", "report-2", keyed), {
    status: 422,
    body: { code: "idempotency_key_reused" },
  });

  t.match(await call("/api/agents/me"), {
    body: {
      tasks: {
        open: 2,
        newest: [
          { id: "report-2", left: "1" },
          { id: "report-1", left: "0.3" },
        ],
      },
    },
  });
  t.match(await call("/api/tasks/report-1"), {
    body: { spent: "0.7", reserved: "0", left: "0.3", payments: 2 },
  });
  t.match(await call("/api/tasks/report-1/close", {}), {
    body: { state: "closed", spent: "0.7" },
  });
  t.match(await call("/api/tasks/report-1/close", {}), { status: 200 }, "closed once");
  t.match(await pay("0.1", "report-1"), { status: 403, body: { code: "task_ended" } });
  t.match(await call("/api/agents/tasks", terms), { status: 200, body: { state: "closed" } });
  t.match(await call("/api/agents/tasks?state=open"), { body: { items: [{ id: "report-2" }] } });
  const first = await call("/api/agents/tasks?limit=1");
  t.match(await call(`/api/agents/tasks?limit=1&cursor=${String(first.body["nextCursor"])}`), {
    body: { items: [{ id: "report-1" }], nextCursor: null },
  });

  const list = await call("/api/agents/me/payments?task=report-1");
  t.same(
    (list.body["items"] as { status: string; task: string }[]).map(({ status, task }) => [
      status,
      task,
    ]),
    [
      ["blocked", "report-1"],
      ["settled", "report-1"],
      ["blocked", "report-1"],
      ["settled", "report-1"],
    ],
  );
  const csv = await app.inject({
    url: `/api/agents/${agent.id}/payments`,
    headers: { cookie: owner.cookie, accept: "text/csv" },
  });
  t.match(csv.body, /,task\r\n/);
  t.match(csv.body, /,report-1\r\n/);
  const seen = await app.inject({
    url: `/api/agents/${agent.id}/tasks`,
    headers: { cookie: owner.cookie },
  });
  t.match(seen.json(), { items: [{ id: "report-2" }, { id: "report-1", spent: "0.7" }] });
  const unnamed = await call("/api/agents/tasks", { name: "No id", limit: "1", expiresAt });
  t.match(unnamed, { status: 201, body: { id: /^tsk_/, name: "No id", limit: "1", expiresAt } });
});
