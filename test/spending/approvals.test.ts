// Goal: a payment that a rule refuses happens only after the owner's wallet signed an approval: once, on the
// approved terms, however often and on whichever replica it is requested.
import t, { type Test } from "tap";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import type { Address } from "viem";
import { callApi } from "../helpers/call.ts";
import { testApp } from "../helpers/app.ts";
import {
  asOwner,
  createAgent,
  signIn,
  signOrder,
  type NewTestAgent,
  type SignedInOwner,
} from "../helpers/owner.ts";
import { isFullTier } from "../helpers/tier.ts";
import { until } from "../helpers/until.ts";
import { checkLedger, statusesOf, usdcOf } from "./ledger.helper.ts";
import { killedMidway, startReplica } from "./replica.helper.ts";

const ctx = await testApp(t);
const { app, chain, database } = ctx;
const owner = await signIn(ctx);
const usdc = 1_000_000n;
const newAddress = (): Address => privateKeyToAccount(generatePrivateKey()).address;

interface ApprovalResponse {
  approvalId: string;
  idempotencyKey: string;
  state: string;
  status: string;
  next: string;
}

async function funded(body: Record<string, unknown> = {}): Promise<NewTestAgent> {
  const agent = await createAgent(ctx, owner, { dailyLimit: "10", allowlist: [], ...body });
  await chain.mint(agent.walletAddress, 50n * usdc);
  return agent;
}

const spend = (agent: NewTestAgent, body: Record<string, unknown>, key?: string) =>
  app.inject({
    method: "POST",
    url: "/api/agents/spend",
    headers: { ...agent.headers, ...(key === undefined ? {} : { "idempotency-key": key }) },
    payload: JSON.stringify({ requestApproval: true, ...body }),
  });

async function requestApproval(
  t: Test,
  agent: NewTestAgent,
  body: Record<string, unknown>,
  key?: string,
): Promise<ApprovalResponse> {
  const answer = await spend(agent, body, key);
  t.equal(answer.statusCode, 202, answer.body);
  return answer.json<ApprovalResponse>();
}

const approve = (id: string, by: SignedInOwner = owner) =>
  asOwner(app, by, { method: "POST", url: `/api/approvals/${id}/approve`, body: {} });
const decline = (id: string, by: SignedInOwner = owner) =>
  asOwner(app, by, { method: "POST", url: `/api/approvals/${id}/decline` });
const read = async (id: string) =>
  (await app.inject({ url: `/api/approvals/${id}`, headers: owner.headers })).json<
    Record<string, unknown>
  >();
const seenBy = (agent: NewTestAgent, id: string, wait = 0) =>
  app.inject({ url: `/api/agents/approvals/${id}?wait=${wait}`, headers: agent.headers });
const codeOf = (answer: { body: string }): string =>
  (JSON.parse(answer.body) as { code: string }).code;

t.test(
  "an agent that pays nothing by itself pays what is approved, and nothing else",
  async (t) => {
    const agent = await funded({ dailyLimit: "0" });
    const body = { recipient: newAddress(), amount: "2" };
    const { approvalId } = await requestApproval(t, agent, body, "shop");
    t.equal((await approve(approvalId)).statusCode, 200);
    t.equal((await spend(agent, body, "shop")).statusCode, 200);
    t.equal((await spend(agent, body, "again")).statusCode, 202, "each payment is asked for");
    t.equal(await usdcOf(ctx, body.recipient), 2n * usdc);
  },
);

t.test(
  "an approval lifts the owner's limit, and not the ceiling of the agent's task",
  async (t) => {
    const agent = await funded({ dailyLimit: "0" });
    const opened = await app.inject({
      method: "POST",
      url: "/api/agents/tasks",
      headers: agent.headers,
      payload: JSON.stringify({ id: "job", limit: "1" }),
    });
    t.equal(opened.statusCode, 201, opened.body);
    const body = { recipient: newAddress(), amount: "2", task: "job" };
    const above = await requestApproval(t, agent, body, "above");
    t.equal((await approve(above.approvalId)).statusCode, 200);
    const refused = await spend(agent, body, "above");
    t.match([refused.statusCode, codeOf(refused)], [403, "task_ceiling_exceeded"]);
    const within = await requestApproval(t, agent, { ...body, amount: "1" }, "within");
    t.equal((await approve(within.approvalId)).statusCode, 200);
    t.equal((await spend(agent, { ...body, amount: "1" }, "within")).statusCode, 200);
    const task = await app.inject({ url: "/api/tasks/job", headers: agent.headers });
    t.match(task.json(), { spent: "1", left: "0" }, "it counts");
  },
);

t.test("requested, listed, signed and paid once; not for a payment within the rules", async (t) => {
  const payee = newAddress();
  const listed = newAddress();
  const agent = await funded({ allowlist: [listed] });
  t.equal((await spend(agent, { recipient: listed, amount: "1" })).statusCode, 200);
  const body = { recipient: payee, amount: "2.5", memo: "lunch", reason: "The team is hungry." };
  const requested = await requestApproval(t, agent, body, "lunch");
  t.match(requested, {
    success: false,
    status: "approval_required",
    state: "open",
    paid: false,
    payee,
    amount: "2.5",
    site: null,
    network: "eip155:5042002",
    idempotencyKey: "lunch",
    denial: { code: "recipient_not_allowed", rule: "allowlist" },
    expiresAt: /^2/,
    next: /The owner has not decided yet. Wait/,
  });
  const list = await app.inject({ url: "/api/approvals?status=open", headers: owner.headers });
  t.match(list.json(), {
    items: [
      {
        id: requested.approvalId,
        agentId: agent.id,
        agentName: "Test agent",
        payee,
        reason: "The team is hungry.",
        memo: "lunch",
      },
    ],
  });
  const first = await callApi(
    app,
    owner,
    "POST",
    `/api/approvals/${requested.approvalId}/approve`,
    {},
  );
  t.equal(first.statusCode, 403, "a session without a signature approves nothing");
  t.match(first.json(), {
    code: "owner_signature_required",
    order: {
      agent: agent.id,
      payee,
      asset: "0x3600000000000000000000000000000000000000",
      maxAmount: "2500000",
      site: "",
      approvalId: requested.approvalId,
    },
    typedData: { primaryType: "ApprovePayment", domain: { name: "Purser", version: "3" } },
  });
  t.equal(await usdcOf(ctx, payee), 0n);
  const granted = await approve(requested.approvalId);
  t.match(granted.json(), { status: "granted" });
  t.match((await seenBy(agent, requested.approvalId)).json(), {
    status: "granted",
    next: /Repeat exactly the same call/,
  });
  // The same call without the fields that do not describe the payment.
  const paid = await spend(
    agent,
    { recipient: payee, amount: "2.5", memo: "lunch", requestApproval: undefined },
    "lunch",
  );
  t.equal(paid.statusCode, 200, paid.body);
  const { paymentId } = paid.json<{ paymentId: string }>();
  t.match(await read(requested.approvalId), { status: "used", paymentId });
  t.match(
    (await spend(agent, body, "lunch")).json(),
    { paymentId },
    "a repeat replays the payment",
  );
  t.equal(await usdcOf(ctx, payee), 2_500_000n);
  t.match(
    (await app.inject({ url: "/api/agents/me", headers: agent.headers })).json(),
    { limits: { spent: "3.5" } },
    "it counts as spent",
  );
  const payment = await app.inject({
    url: `/api/agents/me/payments/${paymentId}`,
    headers: agent.headers,
  });
  t.match(payment.json<{ trace: unknown[] }>().trace, [
    {},
    { rule: "expiry" },
    {
      rule: "allowlist",
      passed: true,
      detail: new RegExp(`${requested.approvalId} allows it once`),
    },
  ]);
  t.equal(
    codeOf(await spend(agent, { ...body, requestApproval: false }, "more")),
    "recipient_not_allowed",
  );
  const audit = await app.inject({
    url: `/api/agents/${agent.id}/audit`,
    headers: owner.headers,
  });
  t.match(audit.json<{ items: unknown[] }>().items[0], {
    action: "approval.granted",
    after: { approvalId: requested.approvalId, amount: "2.5" },
  });
  await checkLedger(t, ctx, { agentId: agent.id, payee });
});

t.test("an approval lifts every spending limit and nothing else", async (t) => {
  const payee = newAddress();
  const agent = await funded({
    allowlist: [{ address: payee, perPaymentLimit: "1", dailyLimit: "1", expiresAt: null }],
    dailyLimit: "2",
    weeklyLimit: "2",
    monthlyLimit: "2",
    perPaymentLimit: "1",
    paymentsPerHour: 0,
  });
  const requested = await requestApproval(t, agent, { recipient: payee, amount: "3" }, "big");
  t.equal((await approve(requested.approvalId)).statusCode, 200);
  t.equal((await spend(agent, { recipient: payee, amount: "3" }, "big")).statusCode, 200);
  t.equal(await usdcOf(ctx, payee), 3n * usdc);

  const poor = await requestApproval(t, agent, { recipient: payee, amount: "100" }, "poor");
  t.equal((await approve(poor.approvalId)).statusCode, 200);
  t.equal(
    codeOf(await spend(agent, { recipient: payee, amount: "100" }, "poor")),
    "insufficient_funds",
  );
  t.match(
    await read(poor.approvalId),
    { status: "granted" },
    "a refusal does not use up the approval",
  );
  await chain.mint(agent.walletAddress, 100n * usdc);
  t.equal((await spend(agent, { recipient: payee, amount: "100" }, "poor")).statusCode, 200);

  const paused = await requestApproval(t, agent, { recipient: payee, amount: "4" }, "paused");
  const patch = (status: string) =>
    asOwner(app, owner, { method: "PATCH", url: `/api/agents/${agent.id}`, body: { status } });
  await patch("paused");
  t.equal(codeOf(await spend(agent, { recipient: payee, amount: "5" }, "no")), "agent_paused");
  t.equal(
    (await approve(paused.approvalId)).statusCode,
    200,
    "the owner may decide while the agent is paused",
  );
  t.equal(codeOf(await spend(agent, { recipient: payee, amount: "4" }, "paused")), "agent_paused");
  await patch("active");
  t.equal((await spend(agent, { recipient: payee, amount: "4" }, "paused")).statusCode, 200);
  t.equal(await usdcOf(ctx, payee), 107n * usdc);
});

t.test("20 repeats of an approved call pay once; it serves one call of one agent", async (t) => {
  const payee = newAddress();
  const [agent, other] = [await funded(), await funded()];
  const body = { recipient: payee, amount: "1" };
  const responses = await Promise.all(Array.from({ length: 20 }, () => spend(agent, body, "same")));
  t.same(new Set(responses.map(({ statusCode }) => statusCode)), new Set([202]));
  t.equal(
    new Set(responses.map((one) => one.json<ApprovalResponse>().approvalId)).size,
    1,
    "they share one approval",
  );
  const requested = responses[0]?.json<ApprovalResponse>() as ApprovalResponse;
  const different = await requestApproval(t, agent, body, "another key");
  t.match(
    different,
    { approvalId: requested.approvalId, idempotencyKey: "same" },
    "the response names the key of the open request",
  );
  await approve(requested.approvalId);
  t.match(await requestApproval(t, agent, body, "another key"), {
    state: "granted",
    idempotencyKey: "same",
  });
  t.not((await requestApproval(t, other, body, "same")).approvalId, requested.approvalId);
  const tries = await Promise.all(Array.from({ length: 20 }, () => spend(agent, body, "same")));
  t.ok(tries.every(({ statusCode }) => [200, 409].includes(statusCode)));
  t.ok(tries.some(({ statusCode }) => statusCode === 200));
  t.equal(await usdcOf(ctx, payee), usdc);
  t.equal((await statusesOf(ctx, agent.id))["settled"], 1);
  t.equal(
    (await requestApproval(t, agent, body, "another key")).state,
    "open",
    "a new call opens a new request",
  );
});

t.test("without a key, the same body joins the open request and pays once", async (t) => {
  const payee = newAddress();
  const agent = await funded();
  const body = { recipient: payee, amount: "1" };
  const requested = await requestApproval(t, agent, body);
  t.match(requested.idempotencyKey, /^approval-[0-9a-f]{32}$/);
  t.equal((await requestApproval(t, agent, body)).approvalId, requested.approvalId);
  await approve(requested.approvalId);
  const tries = await Promise.all(Array.from({ length: 8 }, () => spend(agent, body)));
  t.ok(tries.every(({ statusCode }) => [200, 409].includes(statusCode)));
  t.equal((await spend(agent, body)).headers["idempotent-replayed"], "true");
  t.equal(await usdcOf(ctx, payee), usdc);
});

t.test("a decline holds for the same payment and revokes an approval", async (t) => {
  const payee = newAddress();
  const agent = await funded();
  const body = { recipient: payee, amount: "2" };
  const requested = await requestApproval(t, agent, body, "k");
  t.match((await decline(requested.approvalId)).json(), { status: "declined" });
  t.equal((await decline(requested.approvalId)).statusCode, 200, "declining twice is no error");
  const again = await spend(agent, body, "k");
  t.match([again.statusCode, codeOf(again)], [403, "approval_declined"]);
  t.equal(codeOf(await spend(agent, body, "another")), "approval_declined");
  t.equal(codeOf(await approve(requested.approvalId)), "approval_closed");
  t.match((await seenBy(agent, requested.approvalId)).json(), { next: /The owner declined/ });

  const second = await requestApproval(t, agent, { ...body, amount: "1" }, "k2");
  await approve(second.approvalId);
  await decline(second.approvalId);
  t.equal(
    codeOf(await spend(agent, { ...body, amount: "1", requestApproval: false }, "k2")),
    "recipient_not_allowed",
  );
  t.equal(await usdcOf(ctx, payee), 0n);
});

t.test("two tabs and a replayed signature decide once; no other owner can decide", async (t) => {
  const payee = newAddress();
  const agent = await funded();
  const { approvalId } = await requestApproval(t, agent, { recipient: payee, amount: "1" }, "k");
  const url = `/api/approvals/${approvalId}/approve`;
  const send = (body: object, headers = owner.headers) =>
    app.inject({ method: "POST", url, headers, payload: JSON.stringify(body) });
  const otherOwner = await signIn(ctx);
  for (const path of [url, `/api/approvals/${approvalId}/decline`])
    t.equal((await callApi(app, otherOwner, "POST", path, {})).statusCode, 404);
  t.equal(
    (await seenBy(await funded(), approvalId)).statusCode,
    404,
    "another agent cannot read it",
  );

  const sign = async (account = owner.account) => signOrder(account, (await send({})).json());
  t.equal(
    codeOf(await send({ authorization: await sign(otherOwner.account) })),
    "invalid_signature",
    "signed by another wallet",
  );
  const [one, two] = [await sign(), await sign()];
  const elsewhere = await requestApproval(t, agent, { recipient: payee, amount: "2" }, "k2");
  t.equal(
    codeOf(
      await callApi(app, owner, "POST", `/api/approvals/${elsewhere.approvalId}/approve`, {
        authorization: one,
      }),
    ),
    "invalid_signature",
    "signed for another approval",
  );
  const order = one?.order as Record<string, unknown>;
  t.equal(
    codeOf(await send({ authorization: { ...one, order: { ...order, maxAmount: "9000000" } } })),
    "invalid_signature",
    "signed for another amount",
  );
  const both = await Promise.all([send({ authorization: one }), send({ authorization: two })]);
  t.same(new Set(both.map(({ statusCode }) => statusCode)), new Set([200, 409]));
  const [won, lost] = both[0].statusCode === 200 ? [one, two] : [two, one];
  t.equal(
    (await send({ authorization: won })).statusCode,
    200,
    "a repeat is accepted: its response may have been lost",
  );
  t.equal(codeOf(await send({ authorization: lost })), "approval_closed");
  t.equal((await spend(agent, { recipient: payee, amount: "1" }, "k")).statusCode, 200);
  t.equal(
    (await send({ authorization: won })).statusCode,
    200,
    "a replay is accepted after the approval was used",
  );
  const { rows } = await database.pool.query("SELECT 1 FROM owner_orders WHERE approval_id = $1", [
    approvalId,
  ]);
  t.equal(rows.length, 1, "one signed order is stored");
  t.equal(await usdcOf(ctx, payee), usdc);
});

t.test("open requests and approvals expire", async (t) => {
  const payee = newAddress();
  const agent = await funded();
  const body = { recipient: payee, amount: "1" };
  const age = (id: string) =>
    database.pool.query(
      "UPDATE approvals SET expires_at = now() - interval '1 second' WHERE id = $1",
      [id],
    );
  const open = await requestApproval(t, agent, body, "k");
  await age(open.approvalId);
  t.match(await read(open.approvalId), { status: "expired" }, "before the sweep");
  t.equal(codeOf(await approve(open.approvalId)), "approval_closed");
  const again = await requestApproval(t, agent, body, "k");
  t.not(again.approvalId, open.approvalId);
  await approve(again.approvalId);
  await database.pool.query(
    "UPDATE approvals SET permit_until = extract(epoch FROM now())::bigint + 60 WHERE id = $1",
    [again.approvalId],
  );
  t.equal(
    codeOf(await spend(agent, { ...body, requestApproval: false }, "k")),
    "recipient_not_allowed",
    "an authorization would outlive the signed order",
  );
  await age(again.approvalId);
  const third = await requestApproval(t, agent, body, "k");
  t.not(third.approvalId, again.approvalId);
  await app.inject({ method: "GET", url: "/api/health" });
  const { rows } = await database.pool.query(
    "SELECT state FROM approvals WHERE agent_id = $1 ORDER BY created_at",
    [agent.id],
  );
  t.same(rows, [{ state: "expired" }, { state: "expired" }, { state: "open" }]);
});

t.test("an agent may have five open requests", async (t) => {
  const agent = await funded();
  const recipient = newAddress();
  for (const cents of [1, 2, 3, 4, 5])
    await requestApproval(t, agent, { recipient, amount: `0.0${cents}` });
  const sixth = await spend(agent, { recipient, amount: "0.06" });
  t.match([sixth.statusCode, codeOf(sixth)], [429, "too_many_approvals"]);
  t.equal(sixth.json<{ approvalIds: string[] }>().approvalIds.length, 5);
  t.equal(
    (await spend(agent, { recipient, amount: "0.05" })).statusCode,
    202,
    "a repeat of an open one joins it",
  );
});

t.test("killed between approval and payment: the same key still pays, once", async (t) => {
  const payee = newAddress();
  const agent = await funded();
  const doomed = [];
  for (const [point, amount] of [
    ["reserved", "1"],
    ["signed", "2"],
  ] as const) {
    const body = { recipient: payee, amount, requestApproval: true };
    const { approvalId } = await requestApproval(t, agent, body, point);
    await approve(approvalId);
    doomed.push({ point, approvalId, body });
  }
  const requests = doomed.map(({ point, body }) => ({
    point,
    path: "/api/agents/spend",
    headers: { ...agent.headers, "idempotency-key": point },
    body,
  }));
  await killedMidway(t, ctx, requests);
  for (const { point, approvalId, body } of doomed) {
    t.match(await read(approvalId), { status: "used" });
    const held = await spend(agent, body, point);
    t.equal(held.statusCode, 409, "its reservation still counts");
  }
  await database.pool.query(
    "UPDATE payments SET created_at = created_at - interval '601 seconds' WHERE agent_id = $1 AND status = 'reserved'",
    [agent.id],
  );
  t.equal(await app.payments.sweepUnsigned({ olderThanSeconds: 600 }), doomed.length);
  for (const { point, approvalId, body } of doomed) {
    t.match(await read(approvalId), { status: "granted", paymentId: null }, "usable again");
    const paid = await Promise.all(Array.from({ length: 5 }, () => spend(agent, body, point)));
    t.ok(paid.some(({ statusCode }) => statusCode === 200));
    t.match(await read(approvalId), { status: "used" });
  }
  t.equal(await usdcOf(ctx, payee), 3n * usdc);
  await checkLedger(t, ctx, { agentId: agent.id, payee });
});

t.test("editing a row in the database creates no signature", async (t) => {
  const payee = newAddress();
  const thief = newAddress();
  const agent = await funded();
  const edit = (sql: string, id: string, values: unknown[] = []) =>
    database.pool.query(`UPDATE approvals SET ${sql} WHERE id = $1`, [id, ...values]);
  const attempt = async (key: string, body: Record<string, unknown>) => {
    const answer = await spend(agent, { ...body, requestApproval: false }, key);
    t.match([answer.statusCode, codeOf(answer)], [503, "policy_not_signed"], key);
  };
  const callOf = async (key: string, body: Record<string, unknown>) => {
    const { approvalId } = await requestApproval(t, agent, body, key);
    return approvalId;
  };

  const unsigned = await callOf("unsigned", { recipient: thief, amount: "1" });
  await edit(
    "state = 'granted', permit_nonce = '0x' || repeat('ab', 32), permit_until = extract(epoch FROM now())::bigint + 3600",
    unsigned,
  );
  await attempt("unsigned", { recipient: thief, amount: "1" });
  await edit("state = 'declined', payment_id = NULL", unsigned);

  // An approval of 1 USDC, copied in the database to a larger amount and another payee.
  const small = await callOf("small", { recipient: payee, amount: "1" });
  await approve(small);
  const more = await callOf("more", { recipient: thief, amount: "9" });
  await database.pool.query(
    `UPDATE approvals m SET state = 'granted', permit_nonce = s.permit_nonce, permit_until = s.permit_until
       FROM approvals s WHERE m.id = $1 AND s.id = $2`,
    [more, small],
  );
  await attempt("more", { recipient: thief, amount: "9" });
  await edit("state = 'declined', payment_id = NULL", more);
  await database.pool.query(
    "UPDATE owner_orders SET document = jsonb_set(document, '{maxAmount}', '\"9000000\"') WHERE approval_id = $1",
    [small],
  );
  await attempt("small", { recipient: payee, amount: "1" });
  t.equal(await usdcOf(ctx, thief), 0n);
  await database.pool.query(
    "UPDATE owner_orders SET document = jsonb_set(document, '{maxAmount}', '\"1000000\"') WHERE approval_id = $1",
    [small],
  );
  t.equal((await spend(agent, { recipient: payee, amount: "1" }, "small")).statusCode, 200);

  // A used approval, marked unused again: the order's only authorization is already spent on chain.
  await edit("state = 'granted', payment_id = NULL", small);
  await database.pool.query("DELETE FROM idempotency_keys WHERE subject_id = $1", [agent.id]);
  const twice = await spend(agent, { recipient: payee, amount: "1" }, "small");
  t.not(twice.statusCode, 200, twice.body);
  t.equal(await usdcOf(ctx, payee), usdc, "paid only once");
  t.equal(await usdcOf(ctx, thief), 0n);
});

t.test("agents wait on any replica, and the owner's events are in order", async (t) => {
  const payee = newAddress();
  const agent = await funded();
  const replicas = await Promise.all(
    Array.from({ length: isFullTier ? 2 : 1 }, () => startReplica(t, ctx)),
  );
  const requested = await requestApproval(t, agent, { recipient: payee, amount: "1" }, "wait");
  const startedMs = performance.now();
  const waiting = [...replicas, ...replicas].map(async ({ url }) => {
    const answer = await fetch(`${url}/api/agents/approvals/${requested.approvalId}?wait=30`, {
      headers: { authorization: agent.headers["authorization"] ?? "" },
    });
    return (await answer.json()) as { status: string };
  });
  const here = seenBy(agent, requested.approvalId, 30);
  const short = await seenBy(agent, requested.approvalId, 1);
  t.match(short.json(), { status: "open" }, "the wait ran out");
  // A timer may fire slightly early.
  t.ok(performance.now() - startedMs >= 900);
  await approve(requested.approvalId);
  t.match((await here).json(), { status: "granted" });
  for (const { status } of await Promise.all(waiting)) t.equal(status, "granted");
  t.ok(
    performance.now() - startedMs < 28_000,
    "the waits ended by the decision, not by their timeout",
  );
  await until(async () => {
    const { rows } = await database.pool.query(
      "SELECT type FROM events WHERE subject_id = $1 ORDER BY tx, seq",
      [requested.approvalId],
    );
    return (
      rows.map((row: { type: string }) => row.type).join() === "approval.requested,approval.granted"
    );
  });
});
