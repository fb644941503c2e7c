// Goal: an owner's budget limits exactly the owner's own agents; what loosens it needs the owner's signature of exactly this
// change, and what tightens it never does.
import t, { type Test } from "tap";
import { generatePrivateKey, privateKeyToAccount, type PrivateKeyAccount } from "viem/accounts";
import { typedDataOf, type Orders } from "../../server/core/orders.ts";
import type { Budget } from "../../server/schemas/budgets.ts";
import { callApi, spendAs } from "../helpers/call.ts";
import { testApp } from "../helpers/app.ts";
import {
  asOwner,
  createAgent,
  nameRecoveryWallet,
  signIn,
  type NewTestAgent,
  type SignedInOwner,
} from "../helpers/owner.ts";
import { assertAuditsHold } from "./audit.helper.ts";

const ctx = await testApp(t, { listen: true });
const { app, chain } = ctx;
const PAYEE = privateKeyToAccount(generatePrivateKey()).address;

type Who = Pick<SignedInOwner, "headers">;
type Method = "GET" | "POST" | "PATCH" | "DELETE";
const call = (who: Who, method: Method, url: string, body?: unknown) =>
  callApi(app, who, method, url, body);
const codeOf = (answer: { json: () => unknown }) => (answer.json() as { code?: string }).code;
const spend = (agent: NewTestAgent, amount = "1") =>
  spendAs(app, agent, { recipient: PAYEE, amount });

async function funded(owner: SignedInOwner, more: object = {}): Promise<NewTestAgent> {
  const agent = await createAgent(ctx, owner, { dailyLimit: "100", allowlist: [PAYEE], ...more });
  await chain.mint(agent.walletAddress, 50_000_000n);
  return agent;
}

async function create(t: Test, owner: Who, body: object): Promise<Budget> {
  const answer = await call(owner, "POST", "/api/budgets", { name: "Team", ...body });
  t.equal(answer.statusCode, 201, answer.body);
  return answer.json<Budget>();
}

interface ToSign {
  order: Record<string, string>;
  typedData: Parameters<PrivateKeyAccount["signTypedData"]>[0];
}

t.test("agents share a budget beside their own limits", async (t) => {
  const owner = await signIn(ctx);
  const [one, two] = [await funded(owner), await funded(owner)];
  const budget = await create(t, owner, { dailyLimit: "3", agents: [one.id, two.id] });
  t.match(budget, { agentCount: 2, windows: [{ window: "24h", used: "0", available: "3" }] });
  t.equal((await spend(one, "2")).statusCode, 200);
  const refused = await spend(two, "1.5");
  t.equal(refused.statusCode, 403);
  t.match(refused.json(), {
    code: "budget_exceeded",
    retryable: true,
    approvable: true,
    policy: {
      rule: "budget",
      window: "24h",
      limit: "3",
      spent: "2",
      remaining: "1",
      budget: { id: budget.id, name: "Team", usedByOthers: "2" },
    },
    availableAt: String,
  });
  const me = (await callApi(app, two, "GET", "/api/agents/me")).json<{ limits: object }>();
  t.match(me.limits, {
    available: "1",
    boundBy: "budget",
    budgets: [{ id: budget.id, name: "Team", window: "24h", limit: "3", available: "1" }],
  });
  t.equal((await spend(two, "1")).statusCode, 200, "what is left can be used");
  const [listed] = (await call(owner, "GET", "/api/budgets")).json<{ items: Budget[] }>().items;
  t.match(listed, { windows: [{ used: "3", available: "0", availableAt: String }] });
  const shown = (await call(owner, "GET", `/api/agents/${one.id}`)).json<{ limits: object }>();
  t.match(shown.limits, { available: "0", boundBy: "budget" });
  const members = await call(owner, "GET", `/api/budgets/${budget.id}/agents?limit=1`);
  t.match(members.json(), { items: [{ id: two.id }], nextCursor: String });

  await t.test("the owner may approve one payment above it, which then counts", async (t) => {
    const asked = await spendAs(
      app,
      two,
      { recipient: PAYEE, amount: "1", requestApproval: true },
      "above",
    );
    const { approvalId } = asked.json<{ approvalId: string }>();
    const url = `/api/approvals/${approvalId}/approve`;
    const approved = await asOwner(app, owner, { method: "POST", url, body: {} });
    t.equal(approved.statusCode, 200, approved.body);
    const paid = await spendAs(
      app,
      two,
      { recipient: PAYEE, amount: "1", requestApproval: true },
      "above",
    );
    t.equal(paid.statusCode, 200, paid.body);
    const after = (await call(owner, "GET", `/api/budgets/${budget.id}`)).json<Budget>();
    t.match(after, { windows: [{ used: "4", available: "0" }] });
  });

  await t.test("an agent that is archived leaves it, and what it spent stays", async (t) => {
    const empty = await createAgent(ctx, owner, { name: "empty" });
    await call(owner, "PATCH", `/api/budgets/${budget.id}`, { addAgents: [empty.id] });
    const archived = await call(owner, "POST", `/api/agents/${empty.id}/archive`);
    t.equal(archived.statusCode, 200, archived.body);
    const after = (await call(owner, "GET", `/api/budgets/${budget.id}`)).json<Budget>();
    t.match(after, { agentCount: 2, windows: [{ used: "4" }] });
  });
});

t.test("what tightens needs no signature, what loosens does", async (t) => {
  const owner = await signIn(ctx);
  const [agent, other] = [await createAgent(ctx, owner), await createAgent(ctx, owner)];
  const { id } = await create(t, owner, { dailyLimit: "10", agents: [agent.id] });
  const url = `/api/budgets/${id}`;
  const tighter = [
    { dailyLimit: "9" },
    { weeklyLimit: "20" },
    { addAgents: [other.id] },
    { name: "Research" },
  ];
  for (const body of tighter)
    t.equal((await call(owner, "PATCH", url, body)).statusCode, 200, JSON.stringify(body));
  const looser: [Method, object][] = [
    ["PATCH", { dailyLimit: "9.000001" }],
    ["PATCH", { weeklyLimit: null }],
    ["PATCH", { removeAgents: [agent.id] }],
    ["PATCH", { agents: [other.id] }],
    ["PATCH", { dailyLimit: "1", weeklyLimit: "21" }],
    ["DELETE", {}],
  ];
  for (const [method, body] of looser) {
    const answer = await call(owner, method, url, body);
    t.equal(codeOf(answer), "owner_signature_required", JSON.stringify(body));
  }
  t.match((await call(owner, "GET", url)).json(), {
    dailyLimit: "9",
    weeklyLimit: "20",
    agents: [agent.id, other.id].toSorted(),
    agentCount: 2,
    version: 5,
    name: "Research",
  });

  await t.test("the whole list of agents, in place of what is added and removed", async (t) => {
    const both = { agents: [agent.id], addAgents: [other.id] };
    t.equal(codeOf(await call(owner, "PATCH", url, both)), "validation_failed");
    const more = await createAgent(ctx, owner);
    const third = { agents: [agent.id, other.id, more.id] };
    const added = await call(owner, "PATCH", url, third);
    t.match(added.json(), { agents: third.agents.toSorted(), agentCount: 3 }, added.body);
    const fewer = { agents: [agent.id, other.id] };
    t.match((await call(owner, "PATCH", url, fewer)).json(), { order: { agentsOut: more.id } });
    const left = await asOwner(app, owner, { method: "PATCH", url, body: fewer });
    t.match(left.json(), { agentCount: 2, version: 7 }, left.body);
  });

  await t.test("an order for an older version is refused, and none works twice", async (t) => {
    const asked = (await call(owner, "PATCH", url, { dailyLimit: "12" })).json<ToSign>();
    t.match(asked.order, { version: "8", dailyLimit: "12000000", agentsOut: "", status: "active" });
    const signature = await owner.account.signTypedData(asked.typedData);
    const authorization = { order: asked.order, signature };
    await call(owner, "PATCH", url, { dailyLimit: "8" });
    const late = await call(owner, "PATCH", url, { dailyLimit: "12", authorization });
    t.equal(late.statusCode, 409);
    t.match(late.json(), { code: "policy_changed", order: { version: "9" } });
    const newer = late.json<{ order: Orders["Budget"] }>().order;
    const chainId = ctx.config.networks[0].chainId;
    const inTexts = typedDataOf("Budget", newer, chainId, "readable");
    t.match(inTexts.message, { dailyLimit: "12.00 USDC", monthlyLimit: "no limit" });
    const signedTexts = await owner.account.signTypedData(inTexts as never);
    const byTexts = { order: newer, signature: signedTexts };
    const raised = await call(owner, "PATCH", url, { dailyLimit: "12", authorization: byTexts });
    t.equal(raised.statusCode, 200, "signed in the form with texts");
    const other = await call(owner, "PATCH", url, { dailyLimit: "500", authorization });
    t.equal(codeOf(other), "policy_changed", "nor for another limit");
  });

  await t.test("an order is for one owner, budget and set of agents", async (t) => {
    const body = { removeAgents: [agent.id] };
    const asked = (await call(owner, "PATCH", url, body)).json<ToSign>();
    t.equal(asked.order["agentsOut"], agent.id);
    const signature = await owner.account.signTypedData(asked.typedData);
    const authorization = { order: asked.order, signature };
    const more = { removeAgents: [agent.id, other.id], authorization };
    t.equal(codeOf(await call(owner, "PATCH", url, more)), "policy_changed");
    const second = await create(t, owner, { dailyLimit: "10", agents: [agent.id] });
    const elsewhere = `/api/budgets/${second.id}`;
    t.equal(
      codeOf(await call(owner, "PATCH", elsewhere, { ...body, authorization })),
      "policy_changed",
    );
    const thief = await signIn(ctx);
    t.equal(
      codeOf(await call(thief, "PATCH", url, { ...body, authorization })),
      "invalid_signature",
    );
    t.equal((await call(owner, "PATCH", url, { ...body, authorization })).statusCode, 200);
  });

  await t.test("the recovery wallet only tightens", async (t) => {
    const wallet = privateKeyToAccount(generatePrivateKey());
    await nameRecoveryWallet(app, owner, wallet);
    const second = await signIn(ctx, wallet, owner.account.address);
    t.equal((await call(second, "PATCH", url, { dailyLimit: "3" })).statusCode, 200);
    t.equal(
      codeOf(await call(second, "PATCH", url, { dailyLimit: "4" })),
      "second_wallet_only_tightens",
    );
  });

  await t.test("archived, it limits nobody and cannot be changed", async (t) => {
    const archived = await asOwner(app, owner, { method: "DELETE", url, body: {} });
    t.equal(archived.statusCode, 200, archived.body);
    t.match(archived.json(), { agents: [], agentCount: 0, archivedAt: String });
    t.equal(codeOf(await call(owner, "PATCH", url, { dailyLimit: "1" })), "conflict");
    const { items } = (await call(owner, "GET", "/api/budgets")).json<{ items: Budget[] }>();
    t.notOk(items.some((one) => one.id === id));
  });
});

t.test("another owner's budget or agent is not found", async (t) => {
  const [owner, thief] = [await signIn(ctx), await signIn(ctx)];
  const [agent, own] = [await createAgent(ctx, owner), await createAgent(ctx, thief)];
  const budget = await create(t, owner, { dailyLimit: "1", agents: [agent.id] });
  const ofThief = await create(t, thief, { dailyLimit: "1", agents: [own.id] });
  const attempts: [Method, string, object | undefined][] = [
    ["GET", `/api/budgets/${budget.id}`, undefined],
    ["GET", `/api/budgets/${budget.id}/agents`, undefined],
    ["PATCH", `/api/budgets/${budget.id}`, { dailyLimit: "0" }],
    ["PATCH", `/api/budgets/${budget.id}`, { addAgents: [own.id] }],
    ["DELETE", `/api/budgets/${budget.id}`, {}],
    ["PATCH", `/api/budgets/${ofThief.id}`, { addAgents: [agent.id] }],
    ["PATCH", `/api/budgets/${ofThief.id}`, { removeAgents: [agent.id] }],
    ["POST", "/api/budgets", { name: "x", dailyLimit: "0", agents: [agent.id] }],
  ];
  for (const [method, url, body] of attempts)
    t.equal(codeOf(await call(thief, method, url, body)), "not_found", `${method} ${url}`);
});

t.test("budgets move to the recovery wallet with their agents", async (t) => {
  const owner = await signIn(ctx);
  const agent = await createAgent(ctx, owner);
  const { id } = await create(t, owner, { dailyLimit: "2", agents: [agent.id] });
  const wallet = privateKeyToAccount(generatePrivateKey());
  await nameRecoveryWallet(app, owner, wallet);
  const move = { method: "POST", url: "/api/recovery/move", body: {} } as const;
  const moved = await asOwner(app, owner, move, wallet);
  t.equal(moved.statusCode, 200, moved.body);
  const heir = await signIn(ctx, wallet);
  const url = `/api/budgets/${id}`;
  t.match((await call(heir, "GET", url)).json(), {
    agents: [agent.id],
    agentCount: 1,
    dailyLimit: "2",
  });
  t.equal((await call(owner, "GET", url)).statusCode, 404);
  t.equal((await call(heir, "PATCH", url, { dailyLimit: "1" })).statusCode, 200);
  const raise = { method: "PATCH", url, body: { dailyLimit: "3" } } as const;
  t.equal((await asOwner(app, heir, raise)).statusCode, 200);
});

t.test("the bounds are kept, and a budget has a limit", async (t) => {
  const owner = await signIn(ctx);
  const agent = await createAgent(ctx, owner);
  const bad: [object, string][] = [
    [{ name: "x" }, "validation_failed"],
    [{ name: " ", dailyLimit: "1" }, "validation_failed"],
    [{ name: "x".repeat(61), dailyLimit: "1" }, "validation_failed"],
    [{ name: "x", dailyLimit: "-1" }, "invalid_amount"],
    [{ name: "x", dailyLimit: "1", other: 1 }, "validation_failed"],
  ];
  for (const [body, code] of bad)
    t.equal(codeOf(await call(owner, "POST", "/api/budgets", body)), code, JSON.stringify(body));
  for (let count = 0; count < 4; count += 1)
    await create(t, owner, { dailyLimit: "1", agents: [agent.id] });
  const fifth = { name: "x", dailyLimit: "1", agents: [agent.id] };
  t.equal(codeOf(await call(owner, "POST", "/api/budgets", fifth)), "conflict");
  await ctx.database.pool.query(
    `INSERT INTO budgets (id, owner_id, name, daily_limit)
     SELECT 'bud_' || n, (SELECT owner_id FROM agents WHERE id = $1), 'x', 1 FROM generate_series(1, 96) n`,
    [agent.id],
  );
  const more = { name: "x", dailyLimit: "1" };
  t.equal(codeOf(await call(owner, "POST", "/api/budgets", more)), "conflict", "a hundred");
});

t.test("the audits of all these owners are valid", async (t) => {
  await assertAuditsHold(t, app.prisma);
});
