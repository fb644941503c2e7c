// Goal: what a change of budgets and stops does, and which change the owner must sign, is exact in every case: at each
// bound, for agents that are in already, and for what was named twice.
import t from "tap";
import { zeroHash, type Address } from "viem";
import { createPool } from "../../server/infra/db/pool.ts";
import { createPrisma } from "../../server/infra/db/prisma.ts";
import type { OwnerCall } from "../../server/plugins/agents/change.ts";
import {
  archiveBudget,
  budgetNotFound,
  changeBudget,
  createBudget,
} from "../../server/plugins/budgets/budgets.ts";
import {
  countBudgets,
  findBudget,
  joinBudget,
  listBudgets,
  listMembers,
  membersOf,
  type BudgetRow,
} from "../../server/plugins/budgets/store.ts";
import { SignatureNeeded, type Draft } from "../../server/plugins/orders/orders.ts";
import { KEPT_BYTES_PER_DAY, takeQuota } from "../../server/plugins/orders/store.ts";
import { resumeAll, stopAll } from "../../server/plugins/stop/stop.ts";
import { testDatabase } from "../helpers/postgres.ts";
import { randomAddress, seedAgent, type SeededAgent } from "../spending/guardrails-sql.helper.ts";

const { url } = await testDatabase(t);
const pool = createPool(url, { maxConnections: 4 });
const prisma = createPrisma(pool);
t.teardown(async () => {
  await prisma.$disconnect();
  await pool.end();
});

const CHAIN_ID = 5_042_002;
/** A signed limit that is not set. */
const NONE = String(2n ** 256n - 1n);
const SINGLE = { nonce: zeroHash, deadlineSeconds: 9n };
const SIGNED = { order: {}, signature: "0x" };

/** A caller whose signature of anything is right. `used`: what was signed for. */
function callOf(owner: { id: string; address: Address }, more: object = {}) {
  const used: unknown[] = [];
  const call = {
    prisma,
    requestId: "req_1",
    owner: { ...owner, chainId: 0, ...more },
    orders: {
      verify: async (...args: unknown[]) => ({ verified: args }),
      use: async (_tx: unknown, _owner: unknown, signed: unknown, draft: Draft) => {
        used.push([signed, shownDraft(draft)]);
      },
      requestingSignature: (_owner: unknown, work: () => Promise<unknown>) => work(),
    },
  } as unknown as OwnerCall;
  return { call, used };
}
function shownDraft(draft: Draft) {
  const { kind, agentId, chainId, version } = draft;
  return { kind, agentId, chainId, version, order: draft.build(SINGLE) };
}

/** What it returns; or the order that is missing, or the refusal. */
async function outcomeOf(work: Promise<unknown>): Promise<unknown> {
  try {
    return await work;
  } catch (error) {
    if (error instanceof SignatureNeeded) return { sign: shownDraft(error.draft).order };
    const { code, message, cause: _cause, ...rest } = error as Error & { code?: string };
    if (code === undefined) throw error;
    return { code, detail: (rest as { detail?: string }).detail ?? message };
  }
}

async function team(size: number) {
  const address = randomAddress();
  const agents: SeededAgent[] = [];
  while (agents.length < size) agents.push(await seedAgent(pool, { dailyLimit: 1n }));
  const id = agents[0]?.ownerId ?? "";
  await pool.query("UPDATE owners SET address = $2 WHERE id = $1", [id, address]);
  const ids = agents.map(({ agentId }) => agentId).toSorted();
  await pool.query(
    "UPDATE agents SET owner_id = $1, updated_at = '2026-01-01' WHERE id = ANY ($2)",
    [id, ids],
  );
  return { owner: { id, address }, ids, ...callOf({ id, address }) };
}
async function auditOf(ownerId: string) {
  const { rows } = await pool.query<{ entry: unknown }>(
    `SELECT jsonb_build_array(action, body::jsonb -> 'actor', body::jsonb -> 'before', body::jsonb -> 'after') AS entry
       FROM audit_log WHERE owner_id = $1 ORDER BY seq`,
    [ownerId],
  );
  return rows.map(({ entry }) => entry);
}
const budgetsOfAgents = async (ids: string[]) => {
  const { rows } = await pool.query<{ budgets: string[]; changed: boolean }>(
    "SELECT budget_ids AS budgets, updated_at > '2026-01-01' AS changed FROM agents WHERE id = ANY ($1) ORDER BY id",
    [ids],
  );
  return rows;
};

t.test("a new budget", async (t) => {
  const { owner, ids, call } = await team(3);
  const [a, b] = ids as [string, string, string];
  const made = await createBudget(call, {
    name: " Research ",
    dailyLimit: "1.5",
    monthlyLimit: "9",
    agents: [b, a, b],
  });
  t.match(made, {
    name: "Research",
    version: 1,
    dailyLimit: 1_500_000n,
    weeklyLimit: null,
    monthlyLimit: 9_000_000n,
    archivedAt: null,
  });
  const inIt = { budgets: [made.id], changed: true };
  t.same(await budgetsOfAgents(ids), [inIt, inIt, { budgets: [], changed: false }]);
  const alone = await createBudget(call, { name: "x", weeklyLimit: "0" });
  t.equal(alone.weeklyLimit, 0n);
  const listed = await listBudgets(prisma, owner.id);
  t.same(
    listed.map(({ id }) => id),
    [alone.id, made.id],
    "newest first",
  );
  t.same(await auditOf(owner.id), [
    [
      "budget.created",
      owner.address,
      null,
      {
        budgetId: made.id,
        name: "Research",
        version: 1,
        dailyLimit: "1.5",
        weeklyLimit: null,
        monthlyLimit: "9",
        added: [a, b],
      },
    ],
    [
      "budget.created",
      owner.address,
      null,
      {
        budgetId: alone.id,
        name: "x",
        version: 1,
        dailyLimit: null,
        weeklyLimit: "0",
        monthlyLimit: null,
      },
    ],
  ]);
  for (const [what, body, code] of [
    ["no limit", { name: "x" }, "validation_failed"],
    ["no limit in words", { name: "x", dailyLimit: null }, "validation_failed"],
    ["no amount", { name: "x", dailyLimit: "-1" }, "invalid_amount"],
    ["an unknown agent", { name: "x", dailyLimit: "1", agents: [a, "agt_x"] }, "not_found"],
  ] as const)
    t.match(await outcomeOf(createBudget(call, body as never)), { code }, what);
  t.equal(await countBudgets(prisma, owner.id), 2);
  t.same(
    (await listBudgets(prisma, owner.id)).map(({ id }) => id),
    [alone.id, made.id],
    "newest first",
  );
  t.same([...(await membersOf(prisma, owner.id))], [[made.id, { count: 2, agents: [a, b] }]]);
  const page = { limit: 10, after: undefined };
  const members = await listMembers(prisma, owner.id, made.id, page);
  t.same(
    members.map(({ id, name, status }) => ({ id, name, status })).toSorted(byId),
    [a, b].map((id) => ({ id, name: "seeded", status: "active" })),
  );

  await pool.query(
    "INSERT INTO budgets (id, owner_id, name, daily_limit) SELECT $1 || n, $1, 'x', 1 FROM generate_series(1, 97) n",
    [owner.id],
  );
  // Postgres reads the small table as it lies there, once it knows its size.
  await pool.query("ANALYZE budgets");
  const [first, ...others] = (await listBudgets(prisma, owner.id)).map(({ id }) => id);
  t.equal(others.length, 98);
  t.match(first, owner.id, "the newest of ninety-nine");
  t.same(others.slice(-2), [alone.id, made.id]);
  t.ok((await createBudget(call, { name: "x", dailyLimit: "1" })).id, "the hundredth");
  t.match(await outcomeOf(createBudget(call, { name: "x", dailyLimit: "1" })), {
    code: "conflict",
    detail: /100 budgets/,
  });
});
const byId = (left: { id: string }, right: { id: string }) => (left.id < right.id ? -1 : 1);

t.test("which agents have room for a budget", async (t) => {
  const { ids, call } = await team(3);
  const [full, archived, free] = ids as [string, string, string];
  const set = (id: string, change: string) =>
    pool.query(`UPDATE agents SET ${change} WHERE id = $1`, [id]);
  await set(archived, "status = 'archived'");
  const create = (agents: string[]) =>
    outcomeOf(createBudget(call, { name: "x", dailyLimit: "1", agents }));
  await set(full, "budget_ids = '{p,q,r}'");
  const { id } = (await create([full])) as BudgetRow;
  const [first] = await budgetsOfAgents([full]);
  t.same(first?.budgets, [id, "p", "q", "r"].toSorted(), "the fourth, sorted");
  t.match(await create([full, free]), { code: "conflict", detail: /4 budgets/ });
  t.match(await create([free, archived]), { code: "conflict", detail: /archived/ });
  await joinBudget(prisma, "p", [full]);
  t.same((await budgetsOfAgents([full]))[0]?.budgets, first?.budgets, "it is in one once");
  t.match(
    await outcomeOf(changeBudget(call, CHAIN_ID, id, { agents: [full, free] })),
    { version: 2 },
    "in a whole list, one that has no room is no fault if it is in",
  );
  // Both may leave.
  await set(archived, `budget_ids = '{${id}}'`);
  const removeAgents = [archived, full].toSorted();
  t.match(await outcomeOf(changeBudget(call, CHAIN_ID, id, { removeAgents })), {
    sign: { agentsOut: removeAgents.join(", ") },
  });
});

t.test("which change of a budget is signed", async (t) => {
  const { owner, ids, call, used } = await team(4);
  const [a, b, c, d] = ids as [string, string, string, string];
  const { id } = await createBudget(call, {
    name: "Team",
    dailyLimit: "10",
    weeklyLimit: "20",
    agents: [a, b],
  });
  let version = 1;
  const limits = { dailyLimit: "10000000", weeklyLimit: "20000000", monthlyLimit: NONE };
  const order = (more: object) => ({
    owner: /^0x/,
    budgetId: id,
    version: String(version + 1),
    name: "Team",
    ...limits,
    status: "active",
    agentsOut: "",
    nonce: zeroHash,
    deadline: "9",
    ...more,
  });
  const change = (body: object, by = call) => outcomeOf(changeBudget(by, CHAIN_ID, id, body));
  for (const [what, body, signed] of [
    ["a higher limit", { dailyLimit: "10.5" }, { dailyLimit: "10500000" }],
    ["a limit less", { weeklyLimit: null }, { weeklyLimit: NONE }],
    [
      "one higher, one lower",
      { dailyLimit: "1", weeklyLimit: "21" },
      { dailyLimit: "1000000", weeklyLimit: "21000000" },
    ],
    ["an agent less", { removeAgents: [b, c] }, { agentsOut: b }],
    ["another list", { agents: [c, b] }, { agentsOut: a }],
    ["nobody left", { agents: [] }, { agentsOut: `${a}, ${b}` }],
    [
      "one in, one out, and another name",
      { addAgents: [c], removeAgents: [a], name: " New " },
      { agentsOut: a, name: /^New$/ },
    ],
  ] as const)
    t.match(await change(body), { sign: order(signed) }, what);
  for (const [what, body, code] of [
    ["two ways at once", { agents: [a], addAgents: [c] }, "validation_failed"],
    ["two ways at once", { agents: [a], removeAgents: [b] }, "validation_failed"],
    ["two ways at once", { agents: [a], addAgents: [c], removeAgents: [b] }, "validation_failed"],
    ["in and out", { addAgents: [c, d], removeAgents: [d] }, "validation_failed"],
    ["no limit is left", { dailyLimit: null, weeklyLimit: null }, "validation_failed"],
    ["no amount", { dailyLimit: "x" }, "invalid_amount"],
    ["an unknown agent", { addAgents: ["agt_x"] }, "not_found"],
    ["an unknown agent", { removeAgents: ["agt_x"] }, "not_found"],
  ] as const)
    t.match(await change(body), { code }, what);
  const before = await findBudget(prisma, owner.id, id);
  for (const body of [
    {},
    { name: "Team" },
    { dailyLimit: "10" },
    { addAgents: [a] },
    { removeAgents: [c] },
    { agents: [b, a] },
  ])
    t.same(await change(body), before, `nothing changes: ${JSON.stringify(body)}`);
  t.equal((await auditOf(owner.id)).length, 1, "and nothing was noted");
  t.same(used, []);

  const stored = async (body: object, expected: object, members: string[]) => {
    version += 1;
    t.match(await change(body), { version, ...expected }, JSON.stringify(body));
    const row = await findBudget(prisma, owner.id, id);
    t.match(row, { version, ...expected });
    t.ok(row && row.updatedAt > row.createdAt);
    t.same((await membersOf(prisma, owner.id)).get(id)?.agents ?? [], members);
  };
  await stored({ dailyLimit: "9" }, { dailyLimit: 9_000_000n }, [a, b]);
  await stored({ monthlyLimit: "30" }, { monthlyLimit: 30_000_000n }, [a, b]);
  await stored({ addAgents: [b, c] }, {}, [a, b, c]);
  await stored({ agents: [c, d, b, a] }, {}, [a, b, c, d]);
  await stored({ name: "Other " }, { name: /^Other$/ }, [a, b, c, d]);
  t.same(used, [], "all of that without a signature");
  await stored(
    { removeAgents: [d], dailyLimit: "11", authorization: SIGNED },
    { dailyLimit: 11_000_000n },
    [a, b, c],
  );
  t.match(used, [
    [
      { verified: [{ id: owner.id }, "Budget", SIGNED, CHAIN_ID] },
      {
        kind: "Budget",
        agentId: "",
        chainId: CHAIN_ID,
        version: null,
        order: { agentsOut: d, dailyLimit: "11000000", version: "7", status: "active" },
      },
    ],
  ]);
  await stored({ name: "Signed", authorization: SIGNED }, { name: "Signed" }, [a, b, c]);
  t.equal(used.length, 2, "a signature that was not needed is used up");
  const audit = (await auditOf(owner.id)) as [string, string, object, object][];
  t.match(audit.at(-2), [
    "budget.changed",
    owner.address,
    { budgetId: id, name: "Other", version: 6, dailyLimit: "9" },
    { budgetId: id, version: 7, dailyLimit: "11", weeklyLimit: "20", removed: [d] },
  ]);
  t.match(audit.at(3), ["budget.changed", owner.address, {}, { added: [c] }]);
  t.notOk("removed" in (audit.at(3)?.[3] ?? {}), "who stays is not named");

  for (const other of [
    { ...owner, id: "own_x" },
    { ...owner, id: (await team(1)).owner.id },
  ])
    t.same(
      await change({ name: "x" }, callOf(other).call),
      await outcomeOf(Promise.reject(budgetNotFound())),
    );
  t.match(await outcomeOf(Promise.reject(budgetNotFound())), { code: "not_found" });

  t.match(await outcomeOf(archiveBudget(call, CHAIN_ID, id, undefined)), {
    sign: { status: "archived", agentsOut: "", version: "9", name: "Signed" },
  });
  t.equal((await findBudget(prisma, owner.id, id))?.archivedAt, null);
  const archived = await archiveBudget(call, CHAIN_ID, id, SIGNED as never);
  t.match(archived, { version: 9, archivedAt: Date });
  t.match(used.at(-1), [{}, { order: { status: "archived" } }]);
  t.equal((await membersOf(prisma, owner.id)).size, 0, "its agents left it");
  t.match((await auditOf(owner.id)).at(-1), [
    "budget.archived",
    owner.address,
    { version: 8 },
    { version: 9, agents: 3 },
  ]);
  t.match(await change({ name: "x" }), { code: "conflict", detail: /archived/ });
  t.same(await listBudgets(prisma, owner.id), []);
  t.equal(await countBudgets(prisma, owner.id), 0);
});

t.test("many agents leave a budget: at most a hundred at a time", async (t) => {
  const { owner, ids, call, used } = await team(1);
  await pool.query(
    `INSERT INTO agents (id, owner_id, name, network, wallet_address, daily_limit)
     SELECT $1 || n, $1, 'a', 'eip155:1', '0x' || lpad(to_hex(n), 40, '0'), 1 FROM generate_series(1, 101) n`,
    [owner.id],
  );
  const { rows } = await pool.query<{ id: string }>(
    "SELECT id FROM agents WHERE owner_id = $1 AND id <> $2",
    [owner.id, ids[0]],
  );
  const many = rows.map(({ id }) => id);
  const { id } = await createBudget(call, { name: "x", dailyLimit: "1", agents: many });
  const replace = (agents: string[]) =>
    outcomeOf(changeBudget(call, CHAIN_ID, id, { agents, authorization: SIGNED as never }));
  t.match(await replace([]), { code: "validation_failed" });
  t.match(await replace(many.slice(0, 1)), { version: 2 });
  t.equal(used.length, 1);
  const [created, changed] = (await auditOf(owner.id)) as [string, string, object, object][];
  t.match(created?.[3], { added: 101 }, "counted instead of named");
  t.match(changed?.[3], { removed: 100 });
  const some = many.slice(1, 81);
  t.match(await outcomeOf(changeBudget(call, CHAIN_ID, id, { addAgents: some })), { version: 3 });
  const audit = (await auditOf(owner.id)) as [string, string, object, { added?: string[] }][];
  t.same(audit.at(-1)?.[3].added, some.toSorted(), "80 are named");
});

t.test("with half of the day's quota used, only what allows nothing more is refused", async (t) => {
  const { owner, ids, call } = await team(1);
  const { id } = await createBudget(call, { name: "x", dailyLimit: "9" });
  await takeQuota(prisma, owner.id, { bytes: KEPT_BYTES_PER_DAY / 2, dryRun: false });
  const change = (body: object) => outcomeOf(changeBudget(call, CHAIN_ID, id, body));
  t.match(await change({ name: "y" }), { code: "rate_limited" });
  t.match(await change({ name: "y", dailyLimit: "8" }), { version: 2 });
  t.match(await change({ name: "z", addAgents: ids }), { version: 3 });
  t.match(await change({ name: "signed", authorization: SIGNED }), { version: 4 });
});

t.test("a stop and its end", async (t) => {
  const { owner, ids, call, used } = await team(2);
  t.equal(await resumeAll(call, CHAIN_ID, undefined), 0, "nothing to resume needs no signature");
  const recovery = randomAddress();
  const second = { second: { address: recovery, chainId: 0 } };
  const stopped = await stopAll(callOf(owner, second).call);
  t.match(stopped, { by: recovery, agents: 2, at: Date });
  t.same(await stopAll(call), stopped, "stopping twice changes nothing");
  const stoppedAt = String(Math.floor(stopped.at.getTime() / 1000));
  t.match(await outcomeOf(resumeAll(call, CHAIN_ID, undefined)), {
    sign: { owner: /^0x/, stoppedAt: new RegExp(`^${stoppedAt}$`), nonce: zeroHash, deadline: "9" },
  });
  t.equal(await resumeAll(call, CHAIN_ID, SIGNED as never), 2);
  t.match(used, [
    [
      { verified: [{ id: owner.id }, "Resume", SIGNED, CHAIN_ID] },
      { kind: "Resume", agentId: "", chainId: CHAIN_ID, version: null, order: { stoppedAt } },
    ],
  ]);
  t.same(await auditOf(owner.id), [
    ["owner.stopped", recovery, null, { agents: 2 }],
    ["owner.resumed", owner.address, null, { agents: 2 }],
  ]);
  const { rows } = await pool.query("SELECT DISTINCT status FROM agents WHERE id = ANY ($1)", [
    ids,
  ]);
  t.same(rows, [{ status: "active" }]);
});
