// Goal: two transactions that change the same payment at the same moment have the outcome of one after the other, and none can wait for the other in a circle.
import t from "tap";
import type { PoolClient } from "pg";
import { createPool } from "../../server/infra/db/pool.ts";
import { testDatabase } from "../helpers/postgres.ts";
import {
  account,
  AGENT,
  ASSET,
  CHAIN,
  ChangedRows,
  h,
  LANE,
  OWNER,
  type Row,
} from "./changed-rows.ts";

const { url } = await testDatabase(t);
const pool = createPool(url, { maxConnections: 5 });
t.teardown(() => pool.end());
// Two payments fill a sum.
await pool.query(
  "CREATE OR REPLACE FUNCTION purser_sum_size() RETURNS INTEGER LANGUAGE sql IMMUTABLE AS 'SELECT 2'",
);

const TX = h("t5");
const reserved = (id: string): Row => ({ status: "reserved", nonce: h(id) });
const receipt = { kind: "receipt", tx: TX, block: "60", blockHash: h("b60") };
const state = { kind: "state", block: "70", blockHash: h("b70"), timestamp: "1" };
const failed = { status: "failed", proof: state, reason: "why", message: "Why." };
const sent: Row = {
  status: "submitted",
  tx_hash: TX,
  lane_address: LANE,
  lane_epoch: 4,
  attempts: 1,
};
const included: Row = {
  status: "included",
  mined_hash: TX,
  block_number: 60,
  block_hash: h("b60"),
  gas_used: 1,
  gas_cost: 10,
};
const payerOf = (id: string) => account(`payer ${id}`);

/** Each case has its own rows. */
async function prepare(client: PoolClient) {
  const rows = new ChangedRows(client, Date.now());
  await rows.agent();
  await client.query(
    `INSERT INTO agents (id, owner_id, name, network, wallet_address, daily_limit, window_tail_at)
     SELECT 'agt_2', owner_id, name, network, $1, daily_limit, window_tail_at FROM agents`,
    [account("wallet 2")],
  );
  for (const id of ["signed", "released"]) await rows.payment(id, reserved(id));
  for (const id of ["settled", "voided", "canceled"]) await rows.payment(id);
  await rows.payment("charged", { maximum: 100, nonce: `permit2:${h("charged")}` });
  await rows.settlement("corrected", {
    agent_id: AGENT,
    status: "failed",
    proof: state,
    error_reason: "why",
  });
  await rows.payment("corrected", { status: "voided" });
  // Like the two below, and before them in the table.
  for (const id of ["first", "second", "third", "fourth"])
    for (const other of [
      { nonce: h("x") },
      { chain_id: 1 },
      { asset: account("x") },
      { from_address: account("p") },
    ] as Row[])
      await rows.settlement(`${id} ${Object.keys(other)[0]}`, {
        from_address: payerOf(id),
        nonce: h(id),
        ...other,
      });
  // The later in the order of locks comes first in the table.
  for (const id of ["second", "first", "fourth", "third"])
    await rows.settlement(id, { from_address: payerOf(id), gas_hold: 0 });
  const gas = { gas_accounts: ["strangers"], gas_hold: 0 };
  await rows.settlement("carried", { ...sent, ...gas, from_address: payerOf("carried") });
  await rows.transaction(5, ["carried"], { attempts: [{ hash: TX }] });
  await rows.settlement("removed", { ...sent, ...gas, from_address: payerOf("removed") });
  await rows.transaction(6, ["removed"], included);
  for (const id of ["told", "ended", "differs", "left"]) {
    await throughChannel(rows, id, "agt_2");
    await throughChannel(rows, id);
  }
  await throughChannel(rows, "in use");
  await prepareStops(rows);
  await prepareBudgets(rows);
  await rows.payment("left before", {
    kind: "x402",
    status: "unknown",
    nonce: null,
    channel_id: h("left"),
    ceiling: 300,
    voucher: VOUCHER,
    created_at: "2026-01-01",
  });
}

/** Owners with two agents each, the later in the order of locks first in the table; those with "idle" are locked all the time. */
async function prepareStops(rows: ChangedRows): Promise<void> {
  for (const owner of [
    "stops",
    "stops twice",
    "activates",
    "is activated",
    "resumes",
    "resumes twice",
    "resumes later",
  ]) {
    await rows.insert("owners", { id: owner, address: account(owner) });
    const row = { owner_id: owner, name: "a", network: `eip155:${CHAIN}`, daily_limit: 1 };
    const isResumed = owner.startsWith("resumes");
    for (const [name, created_at] of [
      ["2", "2026-01-02"],
      ["1", "2026-01-01"],
      ["idle", "2026-01-03"],
    ] as const) {
      const id = `${owner} ${name}`;
      const isStopped = isResumed && name !== "idle";
      const status = isStopped || name === "idle" ? "paused" : "active";
      await rows.insert("agents", {
        ...row,
        id,
        created_at,
        wallet_address: account(`w ${id}`),
        status,
        paused_by: isStopped ? "stop" : null,
      });
    }
  }
}

/** Two agents with a payment each in two budgets. Like them, and locked all the time: agt_2, and a third budget. */
async function prepareBudgets(rows: ChangedRows): Promise<void> {
  for (const id of ["budget 3", "budget 2", "budget 1"])
    await rows.insert("budgets", { id, owner_id: OWNER, name: id, daily_limit: 100 });
  for (const id of ["payer 2", "payer 1"])
    await rows.insert("agents", {
      id,
      owner_id: OWNER,
      name: "a",
      network: `eip155:${CHAIN}`,
      wallet_address: account(`w ${id}`),
      daily_limit: 1,
    });
  const row = { at: "2026-01-01", payer: account("w payer 1"), amount: 7, counted: true };
  for (const [agent_id, payment_id, budget_id] of [
    ["payer 2", "in 2", "budget 2"],
    ["payer 1", "in 1", "budget 1"],
    ["payer 1", "in both", "budget 2"],
    ["payer 1", "in both", "budget 1"],
    ["payer 1", "another", "budget 3"],
    ["agt_2", "in 1", "budget 3"],
    ["agt_2", "in both", "budget 3"],
  ] as const)
    await rows.insert("budget_payments", { agent_id, payment_id, budget_id, ...row });
}

const VOUCHER = Buffer.alloc(65);

/** A payment through a channel of its own. */
async function throughChannel(rows: ChangedRows, id: string, agent_id = AGENT): Promise<void> {
  await rows.insert("channels", {
    agent_id,
    id: h(id),
    chain_id: CHAIN,
    asset: ASSET,
    receiver: account(id),
    receiver_authorizer: account("a"),
    withdraw_delay: 900,
    signer: account("s"),
    salt: h(id),
    ceiling: 300,
    voucher: VOUCHER,
    busy_payment: id === "left" ? "left before" : id,
    ...(id === "left" && { status: "closing", reason: "owner" }),
  });
  const row = { kind: "x402", nonce: null, channel_id: h(id), ceiling: 400, voucher: VOUCHER };
  const isOthers = agent_id !== AGENT || id === "in use";
  if (!isOthers)
    await rows.payment(id, id === "told" ? { ...row, status: "reserved", voucher: null } : row);
}

type Call = (client: PoolClient) => Promise<unknown>;
const call =
  (text: string, values: unknown[] = []): Call =>
  async (client) =>
    (await client.query<{ result: unknown }>(text, values)).rows[0]?.result;
const onPayment = (name: string, id: string, ...more: unknown[]): Call =>
  call(
    `SELECT purser_${name}(${["$1", "$2", ...more.map((_, index) => `$${index + 3}`)].join(", ")})::text AS result`,
    [AGENT, id, ...more],
  );
const finalize = (...outcomes: { id: string; from?: string; [more: string]: unknown }[]): Call =>
  call("SELECT purser_settlements_finalize($1, $2) AS result", [
    CHAIN,
    JSON.stringify(
      outcomes.map(({ id, from = payerOf(id), ...outcome }) => ({
        from,
        asset: ASSET,
        nonce: h(id),
        ...outcome,
      })),
    ),
  ]);
const finished = (count: number) => ({ finished: count, corrected: [] });
const lockAgentOf = (id: string) =>
  call("SELECT id AS result FROM agents WHERE id = $1 FOR UPDATE", [id]);
const lockAgent = lockAgentOf(AGENT);
const agentRow = (id: string) => `SELECT FROM agents WHERE id = '${id}'`;
const stop = (owner: string) => call("SELECT purser_stop($1, 'somebody') AS result", [owner]);
const resume = (owner: string) => call("SELECT purser_resume($1) AS result", [owner]);
const activate = (id: string): Call => {
  const set = call("UPDATE agents SET status = 'active' WHERE id = $1 RETURNING status AS result", [
    id,
  ]);
  return (client) => set(client).catch((error: { code?: string }) => error.code);
};
const statesOf = (owner: string) =>
  `SELECT string_agg(status, ' ' ORDER BY id) AS states FROM agents WHERE owner_id = '${owner}'`;
const lockBudget = (id: string) =>
  call("SELECT id AS result FROM budgets WHERE id = $1 FOR UPDATE", [id]);
const budgetRow = (id: string) => `SELECT FROM budgets WHERE id = '${id}'`;
/** As purser_settlements_finalize locks them. */
const lockBudgets = call(
  `SELECT purser_budgets_lock('{payer 2, payer 1}', '{in 2, in 1}')::text AS result`,
);
const budgetsOf = (locks: boolean) =>
  call(
    `SELECT cardinality(windows) AS result FROM purser_budgets_take('{budget 1, budget 2}', ${locks})`,
  );

const pidOf = (client: PoolClient) => (client as unknown as { processID: number }).processID;

/** Whether the call waits for that other connection, as soon as it does so or has ended. */
async function waitsFor(ended: Promise<unknown>, client: PoolClient, other: PoolClient) {
  let isEnded = false;
  void ended.catch(() => undefined).finally(() => (isEnded = true));
  for (;;) {
    const { rows } = await pool.query<{ waits: boolean }>(
      "SELECT $1 = ANY (pg_blocking_pids($2)) AS waits",
      [pidOf(other), pidOf(client)],
    );
    if (isEnded || rows[0]?.waits) return !isEnded;
  }
}

interface Race {
  first: Call;
  second: Call;
  /** What the second returns when the first has committed. */
  returns: unknown;
  /** Rows that nobody has locked while the second waits, so that those who have them can go on. */
  free?: string;
  /** A query, and its row at the end. */
  after?: [text: string, row: object];
}
const lockChannel = (id: string) =>
  call("SELECT id AS result FROM channels WHERE agent_id = $1 AND id = $2 FOR UPDATE", [
    AGENT,
    h(id),
  ]);
const statusOf = (id: string) =>
  `SELECT status FROM payments WHERE id = '${id}' AND agent_id = '${AGENT}'`;
const paymentRow = (id: string) =>
  `SELECT FROM payments WHERE id = '${id}' AND agent_id = '${AGENT}'`;

const RACES: Record<string, Race> = {
  "a reservation is signed while it is released": {
    first: (client) => new ChangedRows(client, 0).settlement("signed", { agent_id: AGENT }),
    second: onPayment("void_unsigned", "signed", "why", "Why."),
    returns: "false",
    after: [statusOf("signed"), { status: "submitted" }],
  },
  "a payment is settled while it is voided": {
    first: call(
      "SELECT purser_payments_settled(ARRAY[$1], ARRAY[$2], ARRAY[$3], ARRAY[60]::bigint[], NULL)::text AS result",
      [AGENT, "settled", TX],
    ),
    second: onPayment("payment_voided", "settled", "why", "Why."),
    returns: "",
    after: [statusOf("settled"), { status: "settled" }],
  },
  "a reservation is released while its agent is locked": {
    first: lockAgent,
    second: onPayment("void_unsigned", "released", "why", "Why."),
    returns: "true",
    free: paymentRow("released"),
  },
  "a payment is voided while its agent is locked": {
    first: lockAgent,
    second: onPayment("payment_voided", "voided", "why", "Why."),
    returns: "",
    free: paymentRow("voided"),
  },
  "a maximum is charged while its agent is locked": {
    first: lockAgent,
    second: onPayment("payment_amount", "charged", 30),
    returns: "",
    free: paymentRow("charged"),
  },
  "a payment is corrected while its agent is locked": {
    first: lockAgent,
    second: finalize({
      id: "corrected",
      from: account("wallet"),
      status: "settled",
      proof: receipt,
    }),
    returns: { finished: 0, corrected: [{ id: "corrected", kind: "failed_to_settled" }] },
    free: paymentRow("corrected"),
  },
  "two outcomes of one settlement, in another order": {
    first: finalize({ id: "first", status: "settled", proof: receipt }),
    second: finalize({ id: "second", ...failed }, { id: "first", ...failed }),
    returns: finished(1),
    free: "SELECT FROM settlements WHERE id = 'second'",
    after: [
      "SELECT string_agg(status, ' ' ORDER BY id) AS status FROM settlements WHERE id IN ('first', 'second')",
      { status: "settled failed" },
    ],
  },
  "two outcomes while one of the settlements is locked": {
    first: call("SELECT id AS result FROM settlements WHERE id = 'third' FOR UPDATE"),
    second: finalize({ id: "fourth", ...failed }, { id: "third", ...failed }),
    returns: finished(2),
    free: "SELECT FROM settlements WHERE id = 'fourth'",
  },
  "one transaction is found in a block twice: its gas is charged once": {
    first: call(
      "SELECT purser_transaction_final($1, $2, 5, 'included', $3, 60, $4, 1, '[]', '{}', '{}', 10) AS result",
      [CHAIN, LANE, TX, h("b60")],
    ),
    second: call(
      "SELECT purser_transaction_final($1, $2, 5, 'included', $3, 60, $4, 1, '[]', '{}', '{}', 10) AS result",
      [CHAIN, LANE, TX, h("b60")],
    ),
    returns: finished(0),
    after: ["SELECT used::int FROM gas_accounts WHERE account = 'strangers'", { used: 10 }],
  },
  "one transaction leaves its block twice: its gas is returned once": {
    first: call("SELECT purser_transaction_reopened($1, $2, 6, $3) AS result", [
      CHAIN,
      LANE,
      h("b60"),
    ]),
    second: call("SELECT purser_transaction_reopened($1, $2, 6, $3) AS result", [
      CHAIN,
      LANE,
      h("b60"),
    ]),
    returns: finished(0),
    after: ["SELECT used::int FROM gas_accounts WHERE account = 'strangers'", { used: 0 }],
  },
  "a voucher is stored while its payment is locked": {
    first: call(`${paymentRow("told")} FOR UPDATE`),
    second: onPayment("voucher_signed", "told", VOUCHER),
    returns: "",
    free: `SELECT FROM channels WHERE agent_id = '${AGENT}' AND id = '${h("told")}'`,
    after: [statusOf("told"), { status: "submitted" }],
  },
  "a seller reports a charge while the channel is locked": {
    first: lockChannel("ended"),
    second: onPayment("voucher_ended", "ended", 10, null),
    returns: "",
    free: paymentRow("ended"),
    after: [statusOf("ended"), { status: "settled" }],
  },
  "a seller's total differs while the channel is locked": {
    first: lockChannel("differs"),
    second: onPayment("channel_corrected", "differs", 10, 300, VOUCHER, false),
    returns: "",
    free: paymentRow("differs"),
    after: [statusOf("differs"), { status: "settled" }],
  },
  "a channel is closed while a late charge is recorded: its claims are counted once": {
    first: onPayment("voucher_ended", "left", 10, null),
    second: onPayment("channel_closed", h("left"), 10, 0),
    returns: "",
    after: [
      `SELECT sum(charged)::int AS charged FROM payments WHERE channel_id = '${h("left")}'`,
      { charged: 10 },
    ],
  },
  "payments are summed up twice": {
    first: call("SELECT purser_write_sums($1)::text AS result", [AGENT]),
    second: call("SELECT purser_write_sums($1)::text AS result", [AGENT]),
    returns: "",
    after: [
      `SELECT sum(s.payments)::int - (SELECT count(*)::int - count(*)::int % 2 FROM payments WHERE counted) AS surplus
         FROM payment_sums s WHERE s.payee = '' AND s.level = 1`,
      { surplus: 0 },
    ],
  },
  "an owner stops everything while a payment is decided": {
    first: lockAgentOf("stops 1"),
    second: stop("stops"),
    returns: true,
    free: agentRow("stops 2"),
    after: [statesOf("stops"), { states: "paused paused paused" }],
  },
  "an owner stops everything twice": {
    first: stop("stops twice"),
    second: stop("stops twice"),
    returns: false,
    after: [statesOf("stops twice"), { states: "paused paused paused" }],
  },
  "an agent becomes active while its owner stops everything": {
    first: stop("activates"),
    second: activate("activates 1"),
    returns: "PU006",
    after: [statesOf("activates"), { states: "paused paused paused" }],
  },
  "an owner stops everything while an agent becomes active": {
    first: activate("is activated idle"),
    second: stop("is activated"),
    returns: true,
    after: [statesOf("is activated"), { states: "paused paused paused" }],
  },
  "a stop ends while an agent is changed": {
    first: lockAgentOf("resumes 1"),
    second: resume("resumes"),
    returns: 2,
    free: agentRow("resumes 2"),
    after: [statesOf("resumes"), { states: "active active paused" }],
  },
  "a stop ends twice": {
    first: resume("resumes twice"),
    second: resume("resumes twice"),
    returns: 0,
    after: [statesOf("resumes twice"), { states: "active active paused" }],
  },
  "outcomes of two agents are written while one of them pays": {
    first: lockAgentOf("payer 1"),
    second: lockBudgets,
    returns: "",
    free: agentRow("payer 2"),
  },
  "outcomes of two budgets are written while one of them decides": {
    first: lockBudget("budget 1"),
    second: lockBudgets,
    returns: "",
    free: budgetRow("budget 2"),
  },
  "a payment is decided while one of its budgets decides another": {
    first: lockBudget("budget 1"),
    second: budgetsOf(true),
    returns: 2,
    free: budgetRow("budget 2"),
  },
  "a payment fails while one of its budgets decides another": {
    first: lockBudget("budget 1"),
    second: call("SELECT purser_budget_change('payer 1', 'in both', 7, FALSE)::text AS result"),
    returns: "",
    free: budgetRow("budget 2"),
  },
};

/** Calls that need no lock of these rows. */
const WITHOUT_LOCKS: Record<string, [Call, string]> = {
  "payments in no budget": [
    call("SELECT purser_budgets_lock('{payer 1}', '{in none}')::text AS result"),
    agentRow("payer 1"),
  ],
  "a decision that nothing follows": [budgetsOf(false), budgetRow("budget 1")],
};

const client = await pool.connect();
await prepare(client).finally(() => client.release());
for (const [what, { first, second, returns, free, after }] of Object.entries(RACES))
  await t.test(what, async (t) => {
    const [one, two, other] = [await pool.connect(), await pool.connect(), await pool.connect()];
    try {
      // Another agent's work goes on all the time, and that in another channel.
      await other.query("BEGIN");
      await other.query("SELECT FROM channels WHERE agent_id = 'agt_2' OR id = $1 FOR UPDATE", [
        h("in use"),
      ]);
      await other.query(
        "SELECT FROM agents WHERE id = 'agt_2' OR id IN ('stops idle', 'resumes idle', 'resumes later 1') FOR UPDATE",
      );
      await other.query("SELECT FROM budgets WHERE id = 'budget 3' FOR UPDATE");
      await one.query("BEGIN");
      await first(one);
      const result = second(two);
      t.ok(await waitsFor(result, two, one), "it waits");
      if (free !== undefined) await t.resolves(pool.query(`${free} FOR UPDATE NOWAIT`));
      await one.query("COMMIT");
      t.notOk(await waitsFor(result, two, other), "it goes on");
      t.same(await result, returns);
      if (after) t.same((await pool.query(after[0])).rows, [after[1]]);
    } finally {
      for (const client of [one, other, two]) {
        await client.query("ROLLBACK").catch(() => undefined);
        client.release();
      }
    }
  });

for (const [what, [make, row]] of Object.entries(WITHOUT_LOCKS))
  await t.test(what, async (t) => {
    const client = await pool.connect();
    try {
      await client.query("BEGIN");
      await make(client);
      await t.resolves(pool.query(`${row} FOR UPDATE NOWAIT`));
    } finally {
      await client.query("ROLLBACK");
      client.release();
    }
  });
