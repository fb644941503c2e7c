// Goal: a task is opened once, with exact terms, and what is open, reserved and left of it is what its row and its payments say.
import t from "tap";
import { toHex } from "viem";
import { createPool } from "../../server/infra/db/pool.ts";
import { createPrisma } from "../../server/infra/db/prisma.ts";
import {
  closeTask,
  countOpenTasks,
  findTask,
  listTasks,
} from "../../server/plugins/tasks/store.ts";
import {
  MOST_OPEN_TASKS,
  openTask,
  taskNotFound,
  taskOnWire,
} from "../../server/plugins/tasks/tasks.ts";
import { testDatabase } from "../helpers/postgres.ts";
import { ASSET, PAYEE, seedAgent } from "./guardrails-sql.helper.ts";

const { url } = await testDatabase(t);
const pool = createPool(url, { maxConnections: 2 });
const prisma = createPrisma(pool);
t.teardown(async () => {
  await prisma.$disconnect();
  await pool.end();
});

const outcomeOf = (work: Promise<unknown>): Promise<unknown> =>
  work.catch(({ code }: { code?: string }) => ({ code }));

t.test("a task is opened once", async (t) => {
  const { agentId } = await seedAgent(pool, { dailyLimit: 1n });
  const open = (body: object) => outcomeOf(openTask(prisma, agentId, body as never));
  const soon = new Date(Date.now() + 60_000).toISOString();
  const terms = { id: "job", limit: "1.5", name: " Job ", expiresAt: soon };
  t.match(await open(terms), {
    isNew: true,
    task: {
      id: "job",
      name: "Job",
      ceilingAtomic: 1_500_000n,
      endsAt: new Date(soon),
      closedAt: null,
    },
  });
  t.match(await open({ ...terms, name: "Job" }), { isNew: false, task: { id: "job" } });
  for (const other of [
    { limit: "1.6" },
    { name: "Other" },
    { name: null },
    { expiresAt: null },
    { expiresAt: new Date(Date.now() + 70_000).toISOString() },
  ])
    t.match(await open({ ...terms, ...other }), { code: "task_exists" }, JSON.stringify(other));
  const plain = { id: "plain", limit: "1" };
  t.match(await open(plain), { isNew: true, task: { name: null, endsAt: null, hasEnded: false } });
  t.match(await open({ ...plain, name: null, expiresAt: null }), { isNew: false });
  t.match(await open({ ...plain, expiresAt: soon }), { code: "task_exists" });
  for (const [body, code] of [
    [{ limit: "0" }, "invalid_amount"],
    [{ limit: "x" }, "invalid_amount"],
    [{ limit: "1", expiresAt: "2030-01-01T00:00:60Z" }, "validation_failed"],
    [{ limit: "1", expiresAt: "2020-01-01T00:00:00Z" }, "validation_failed"],
  ] as const)
    t.match(await open(body), { code }, JSON.stringify(body));
  t.match(await open({ limit: "1" }), { isNew: true, task: { id: /^tsk_/ } });
  t.match(taskNotFound(), { code: "not_found" });
  t.equal(await findTask(prisma, agentId, "none"), undefined);
});

t.test("what is open, reserved and left of tasks", async (t) => {
  const { agentId } = await seedAgent(pool, { dailyLimit: 1n });
  const at = (seconds: number) => `clock_timestamp() + ${seconds} * interval '1 second'`;
  await pool.query(
    `INSERT INTO tasks (agent_id, id, ceiling, used, payments, ends_at, closed_at, created_at) VALUES
       ($1, 'open', 10000000, 3000000, 2, NULL, NULL, ${at(-9)}), ($1, 'ends', 1, 0, 0, ${at(60)}, NULL, ${at(-8)}),
       ($1, 'ended', 1000000, 2000000, 1, ${at(-1)}, NULL, ${at(-7)}), ($1, 'closed', 1, 0, 0, NULL, ${at(-1)}, ${at(-6)}),
       ($1, 'late', 5000000, 1000000, 1, NULL, NULL, ${at(-5)})`,
    [agentId],
  );
  const payment = (id: string, task: string, status: string, amount: number) =>
    pool.query(
      `INSERT INTO payments (agent_id, id, kind, status, chain_id, asset, counterparty, amount, nonce, task_id, failure_code,
         tx_hash, block_number, settled_at)
       VALUES ($1, $2, 'spend', $3, 1, '${ASSET}', '${PAYEE}', $4, $5, $6, CASE $3 WHEN 'voided' THEN 'x' END,
         CASE $3 WHEN 'settled' THEN $5 END, CASE $3 WHEN 'settled' THEN 1 END, CASE $3 WHEN 'settled' THEN now() END)`,
      [agentId, id, status, amount, toHex(id, { size: 32 }), task],
    );
  await payment("p1", "open", "reserved", 1_000_000);
  await payment("p2", "open", "settled", 2_000_000);
  await payment("p3", "open", "voided", 4_000_000);
  await payment("p4", "late", "reserved", 2_000_000);
  const seen = async (id: string) => {
    const task = await findTask(prisma, agentId, id);
    if (!task) throw new Error(`no ${id}`);
    return taskOnWire(task);
  };
  t.match(await seen("open"), {
    id: "open",
    name: null,
    state: "open",
    limit: "10",
    spent: "2",
    reserved: "1",
    left: "7",
    payments: 2,
    expiresAt: null,
    closedAt: null,
    createdAt: String,
  });
  t.match(await seen("ends"), { state: "open", spent: "0", reserved: "0", expiresAt: String });
  t.match(await seen("ended"), { state: "ended", left: "0", spent: "2" });
  t.match(await seen("closed"), { state: "closed", closedAt: String });
  t.match(await seen("late"), { reserved: "1", spent: "0" }, "it ended between two reads");
  const page = { limit: 10, after: undefined };
  const list = async (onlyOpen: boolean, some = page) =>
    (await listTasks(prisma, agentId, { page: some, onlyOpen })).map(({ id }) => id);
  t.same(await list(false), ["late", "closed", "ended", "ends", "open"], "newest first");
  t.same(await list(true), ["late", "ends", "open"]);
  t.same(await list(true, { limit: 1, after: undefined }), ["late", "ends"], "one more than asked");
  t.same(await listTasks(prisma, "agt_none", { page, onlyOpen: false }), []);
  t.equal(await countOpenTasks(prisma, agentId), 3);
  const { closedAt } = await seen("closed");
  for (const id of ["closed", "ends"]) await closeTask(prisma, agentId, id);
  t.equal((await seen("closed")).closedAt, closedAt, "the first time counts");
  t.equal((await seen("ends")).state, "closed");
  t.same(await list(true), ["late", "open"], "no other was closed");
  await pool.query(
    "INSERT INTO tasks (agent_id, id, ceiling) SELECT $1, 'm' || n, 1 FROM generate_series(1, $2::int) n",
    [agentId, MOST_OPEN_TASKS - 3],
  );
  const open = (id: string) => outcomeOf(openTask(prisma, agentId, { id, limit: "1" }));
  t.match(await open("last"), { isNew: true });
  t.match(await open("more"), { code: "too_many_tasks" });
});
