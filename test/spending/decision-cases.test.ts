// Goal: purser_reserve is right in every branch that no random history reaches: who asks, which call it is, whether the
// agents wait, which permit lifts a refusal, and what is written.
import { randomBytes } from "node:crypto";
import t from "tap";
import type { Address, Hex } from "viem";
import { createPool } from "../../server/infra/db/pool.ts";
import { newId } from "../../server/core/ids.ts";
import { readGasBudget } from "../../server/core/gas.ts";
import { reserve, type ReservationRow } from "../../server/plugins/guardrails/store.ts";
import type { ReserveRequest } from "../../server/plugins/guardrails/types.ts";
import { limitsOf, writeGasLimits } from "../../server/plugins/settlement/gas-store.ts";
import { withOwnClock } from "../helpers/database-clock.ts";
import { testDatabase } from "../helpers/postgres.ts";
import { until } from "../helpers/until.ts";
import {
  ASSET,
  CHAIN_ID,
  PAYEE,
  randomAddress,
  reserveRequest,
  seedAgent,
  type SeededAgent,
  type SeededRules,
} from "./guardrails-sql.helper.ts";

const database = await testDatabase(t);
const clock = await withOwnClock(database);
const pool = createPool(database.url, { maxConnections: 3 });
t.teardown(() => pool.end());

const OTHER: Address = "0x3c44cdddb6a900fa2b585dd299e03d12fa4293bc";
const OTHER_CHAIN = 84_532;
const ROUTE = "POST /api/agents/spend";
const SITE = "https://a.example";
const randomHash = (): Hex => `0x${randomBytes(32).toString("hex")}`;
const BODY = randomBytes(32);
const agentWith = (rules: Partial<SeededRules> = {}) =>
  seedAgent(pool, { dailyLimit: 100n, ...rules });

type Row = Record<string, string | number | bigint | boolean | Buffer | null>;

async function insert(table: string, row: Row): Promise<void> {
  const names = Object.keys(row);
  const places = names.map((_, index) => `$${index + 1}`);
  await pool.query(
    `INSERT INTO ${table} (${names.join(", ")}) VALUES (${places.join(", ")})`,
    Object.values(row).map((value) => (typeof value === "bigint" ? String(value) : value)),
  );
}

const inMicros = (micros: bigint) =>
  new Date(Number((clock.now() + micros) / 1_000n)).toISOString();

const WRITES = new Set(["reserved", "blocked"]);

async function decide(
  agent: SeededAgent,
  more: Partial<ReserveRequest> = {},
  { amount = 1n, dryRun = false, paymentId = newId("pay") } = {},
): Promise<ReservationRow> {
  const row = await reserve(pool, { ...reserveRequest(agent, amount, more), paymentId, dryRun });
  if (!WRITES.has(row.outcome)) {
    const { rows } = await pool.query("SELECT FROM payments WHERE id = $1", [paymentId]);
    t.equal(rows.length, 0, `${row.outcome} writes nothing`);
  }
  return row;
}

/** The outcome, and the code where there is one. */
async function outcomeOf(...args: Parameters<typeof decide>): Promise<string> {
  const { outcome, code } = await decide(...args);
  return code === null ? outcome : `${outcome}: ${code}`;
}

const keyed = (
  agent: SeededAgent,
  more: Partial<NonNullable<ReserveRequest["idempotency"]>> = {},
) => ({
  idempotency: { subjectId: agent.agentId, route: ROUTE, key: "k", bodyHash: BODY, ...more },
});

/** Whether a statement waits for another one's lock. */
async function isWaiting(): Promise<boolean> {
  const { rows } = await database.pool.query(
    "SELECT FROM pg_locks WHERE NOT granted AND pid IN (SELECT pid FROM pg_stat_activity WHERE datname = current_database())",
  );
  return rows.length > 0;
}

async function paymentsOf({ agentId }: SeededAgent) {
  const { rows } = await pool.query<Record<string, unknown>>(
    "SELECT * FROM payments WHERE agent_id = $1 ORDER BY created_at, id",
    [agentId],
  );
  return rows;
}

/** The windows that are stored. */
async function windowsOf({ agentId }: SeededAgent) {
  const { rows } = await pool.query<Record<string, unknown>>(
    "SELECT payee, hours, amount, payments FROM spending_windows WHERE agent_id = $1",
    [agentId],
  );
  return rows;
}

async function agentRow({ agentId }: SeededAgent): Promise<Record<string, unknown>> {
  const { rows } = await pool.query("SELECT * FROM agents WHERE id = $1", [agentId]);
  return rows[0] as Record<string, unknown>;
}

t.test("the agent", async (t) => {
  const nobody = { ...(await agentWith()), agentId: "agt_nobody" };
  t.equal(await outcomeOf(nobody), "not_found");
  t.equal(await outcomeOf(nobody, {}, { dryRun: true }), "not_found");
});

t.test("a decision holds the agent's row, a dry run does not", async (t) => {
  const agent = await agentWith();
  const lock = "SELECT FROM agents WHERE id = $1 FOR UPDATE NOWAIT";
  for (const dryRun of [true, false]) {
    const client = await pool.connect();
    try {
      await client.query("BEGIN");
      await reserve(client, { ...reserveRequest(agent, 1n), paymentId: newId("pay"), dryRun });
      const locked = pool.query(lock, [agent.agentId]);
      if (dryRun) await t.resolves(locked);
      else await t.rejects(locked, { code: "55P03" });
    } finally {
      await client.query("ROLLBACK");
      client.release();
    }
  }
  const client = await pool.connect();
  try {
    await client.query("BEGIN");
    await reserve(client, {
      ...reserveRequest(agent, 100n),
      paymentId: newId("pay"),
      dryRun: false,
    });
    t.equal(await outcomeOf(agent, {}, { dryRun: true }), "allowed", "a dry run waits for nobody");
    const waiting = outcomeOf(agent);
    await until(isWaiting);
    await client.query("COMMIT");
    t.equal(await waiting, "blocked: daily_limit_exceeded", "it decides after the one before it");
  } finally {
    client.release();
  }
});

t.test("a canceled call", async (t) => {
  const [agent, other] = [await agentWith(), await agentWith()];
  await insert("canceled_calls", { agent_id: agent.agentId, call: "c1" });
  const call = (of: SeededAgent, call: string, key: string) => keyed(of, { call, key });
  t.equal(await outcomeOf(agent, call(agent, "c1", "k1")), "canceled");
  t.equal(await outcomeOf(agent, call(agent, "c2", "k2")), "reserved");
  t.equal(await outcomeOf(other, call(other, "c1", "k3")), "reserved");
  t.equal(await outcomeOf(agent, call(agent, "c1", "k1"), { dryRun: true }), "allowed");
  t.equal((await paymentsOf(agent)).length, 1);
});

t.test("an idempotency key", async (t) => {
  const [agent, other] = [await agentWith(), await agentWith()];
  const first = await decide(agent, keyed(agent));
  t.equal(first.outcome, "reserved");
  t.match(await decide(agent, keyed(agent)), {
    outcome: "running",
    paymentId: first.paymentId,
    statusCode: null,
    response: null,
  });
  await pool.query(
    "UPDATE idempotency_keys SET status_code = 200, response = 'r' WHERE subject_id = $1",
    [agent.agentId],
  );
  t.match(await decide(agent, keyed(agent)), {
    outcome: "replay",
    paymentId: first.paymentId,
    statusCode: 200,
    response: "r",
  });
  const cases: [
    string,
    string,
    SeededAgent,
    Partial<NonNullable<ReserveRequest["idempotency"]>>,
  ][] = [
    ["another body", "key_reused", agent, { bodyHash: randomBytes(32) }],
    ["another route", "reserved", agent, { route: "POST /api/agents/x402-fetch" }],
    ["another key", "reserved", agent, { key: "k2" }],
    ["another agent", "reserved", other, {}],
  ];
  for (const [what, expected, of, more] of cases)
    t.equal(await outcomeOf(of, keyed(of, more)), expected, what);
  t.equal(await outcomeOf(agent, keyed(agent), { dryRun: true }), "allowed", "a dry run");
  t.equal((await paymentsOf(agent)).length, 3);
  const poor = await agentWith({ dailyLimit: 0n });
  await decide(poor, keyed(poor));
  t.equal(
    await outcomeOf(poor, keyed(poor)),
    "blocked: daily_limit_exceeded",
    "a refusal is not kept",
  );
});

t.test("a call without a key joins the earlier one", async (t) => {
  const agent = await agentWith();
  const joining = (key: string, more = {}) =>
    keyed(agent, { key, joins: { cameAtMs: 0, ...more } });
  const explicit = await decide(agent, keyed(agent, { key: "given" }));
  t.equal(explicit.outcome, "reserved");
  const first = await decide(agent, joining("k1"));
  t.equal(first.outcome, "reserved", "it does not join a call with a key of its own");
  t.match(await decide(agent, joining("k2")), { outcome: "running", paymentId: first.paymentId });
  const again = await decide(agent, joining("k3", { deliveredKey: "k1" }));
  t.equal(again.outcome, "reserved", "that response was delivered before");
  t.match(await decide(agent, joining("k4", { deliveredKey: "k1" })), {
    outcome: "running",
    paymentId: again.paymentId,
  });
  const { rows } = await pool.query(
    "SELECT key, implicit, call, payment_id FROM idempotency_keys WHERE subject_id = $1 ORDER BY key",
    [agent.agentId],
  );
  t.same(rows, [
    { key: "given", implicit: false, call: null, payment_id: explicit.paymentId },
    { key: "k1", implicit: true, call: null, payment_id: first.paymentId },
    { key: "k3", implicit: true, call: null, payment_id: again.paymentId },
  ]);
});

t.test("which earlier call is joined", async (t) => {
  const agent = await agentWith();
  const { paymentId } = await decide(agent, keyed(agent, { joins: { cameAtMs: 0 } }));
  const joins = async (change: string) => {
    const client = await pool.connect();
    try {
      await client.query("BEGIN");
      await client.query(change);
      const body = `'\\x${BODY.toString("hex")}'`;
      const { rows } = await client.query(
        `SELECT key FROM purser_joinable('${agent.agentId}', '${ROUTE}', ${body})`,
      );
      return rows.length > 0;
    } finally {
      await client.query("ROLLBACK");
      client.release();
    }
  };
  const ago = (micros: bigint) =>
    `'epoch'::timestamptz + ${clock.now() - micros} * interval '1 microsecond'`;
  const TEN_MINUTES = 600_000_000n;
  const settled = (at: string, more = "") =>
    `UPDATE payments SET status = 'settled', tx_hash = '0x${"ab".repeat(32)}', block_number = 1, settled_at = ${at}
      WHERE id = '${paymentId}'; UPDATE idempotency_keys SET updated_at = ${at} WHERE payment_id = '${paymentId}'; ${more}`;
  const cases: [string, string, boolean][] = [
    ["still open", "SELECT", true],
    ["settled now", settled(ago(0n)), true],
    ["settled less than ten minutes ago", settled(ago(TEN_MINUTES - 1n)), true],
    ["settled ten minutes ago", settled(ago(TEN_MINUTES)), false],
    [
      "answered later",
      settled(
        ago(TEN_MINUTES),
        `UPDATE idempotency_keys SET updated_at = ${ago(0n)} WHERE payment_id = '${paymentId}'`,
      ),
      true,
    ],
    [
      "settled after the answer",
      settled(
        ago(TEN_MINUTES),
        `UPDATE payments SET settled_at = ${ago(0n)} WHERE id = '${paymentId}'`,
      ),
      true,
    ],
    ["voided", `UPDATE payments SET status = 'voided' WHERE id = '${paymentId}'`, false],
    [
      "another body",
      `UPDATE idempotency_keys SET body_hash = sha256('other') WHERE payment_id = '${paymentId}'`,
      false,
    ],
    [
      "another route",
      `UPDATE idempotency_keys SET route = 'x' WHERE payment_id = '${paymentId}'`,
      false,
    ],
    [
      "another subject",
      `UPDATE idempotency_keys SET subject_id = 'x' WHERE payment_id = '${paymentId}'`,
      false,
    ],
    [
      "a newer call that was refused",
      `INSERT INTO idempotency_keys (subject_id, route, key, body_hash, implicit, created_at) SELECT subject_id, route, 'newer', body_hash, true, created_at + interval '1 second' FROM idempotency_keys WHERE payment_id = '${paymentId}'`,
      false,
    ],
  ];
  for (const [what, change, expected] of cases) t.equal(await joins(change), expected, what);
});

t.test("the database's clock and the chain's", async (t) => {
  const agent = await agentWith();
  const at = (seconds: bigint) => {
    const timestampSeconds = clock.now() / 1_000_000n + seconds;
    return { balance: { atomic: 10n ** 20n, blockNumber: 1n, timestampSeconds } };
  };
  await clock.set((clock.now() / 1_000_000n) * 1_000_000n);
  const cases: [bigint, string][] = [
    [-121n, "clock_apart"],
    [-115n, "clock_apart"],
    [-114n, "reserved"],
    [120n, "reserved"],
    [121n, "clock_apart"],
  ];
  for (const [seconds, expected] of cases)
    t.equal(await outcomeOf(agent, at(seconds)), expected, `${seconds} s`);
  // A seller's shorter time: an authorization with less than six seconds left would be refused.
  for (const [validForSeconds, seconds, expected] of [
    [60, -55n, "clock_apart"],
    [60, -54n, "reserved"],
    [10, -31n, "clock_apart"],
    [10, -30n, "reserved"],
    [10, 120n, "reserved"],
  ] as const)
    t.equal(
      await outcomeOf(agent, { ...at(seconds), validForSeconds }),
      expected,
      `${seconds} s of ${validForSeconds}`,
    );
  t.equal(await outcomeOf(agent, at(-9_999n), { dryRun: true }), "allowed", "a dry run");
  const now = clock.now() / 1_000_000n;
  const until = async (seconds: bigint) => (await decide(agent, at(seconds))).validBefore;
  t.equal(await until(-7n), now - 7n + 120n, "by the clock that is behind");
  t.equal(await until(7n), now + 120n);
  t.equal((await decide(agent)).validBefore, now + 120n, "without a block's time");
});

t.test("agents wait for reconciliation on that chain", async (t) => {
  const agent = await agentWith();
  await insert("ledger_cursors", { chain_id: CHAIN_ID, asset: ASSET, next_block: 1 });
  t.equal(await outcomeOf(agent), "reserved", "reconciliation runs");
  const hold = (chain: number, asset: string) =>
    pool.query(
      "UPDATE ledger_cursors SET chain_id = $1, asset = $2, hold_until_block = 9 WHERE next_block = 1",
      [chain, asset],
    );
  await hold(OTHER_CHAIN, ASSET);
  t.equal(await outcomeOf(agent), "reserved", "another chain waits");
  await hold(CHAIN_ID, OTHER);
  t.equal(await outcomeOf(agent), "reserved", "another asset waits");
  await hold(CHAIN_ID, ASSET);
  t.equal(await outcomeOf(agent), "held");
  t.equal(await outcomeOf(agent, {}, { dryRun: true }), "allowed", "a dry run");
  t.equal(
    await outcomeOf(agent, { refusal: { code: "url_blocked" } }),
    "blocked: url_blocked",
    "refused anyway",
  );
  await pool.query("DELETE FROM ledger_cursors");
});

t.test("the agent's key, at the moment of the decision", async (t) => {
  const [agent, other] = [await agentWith(), await agentWith()];
  const key = (id: string, more: Row) =>
    insert("api_keys", {
      id,
      key_hash: randomBytes(32),
      prefix: "p",
      last4: "l",
      agent_id: agent.agentId,
      ...more,
    });
  await clock.set((clock.now() / 1_000n) * 1_000n + 1_000_000n);
  await key("key_good", {});
  await key("key_other", { agent_id: other.agentId });
  await key("key_revoked", { revoked_at: inMicros(2_000_000n) });
  await key("key_expired", { expires_at: inMicros(2_000_000n) });
  const asks = (apiKeyId: string) => outcomeOf(agent, { apiKeyId });
  await clock.pass(1_990_000n);
  for (const id of ["key_good", "key_revoked", "key_expired"])
    t.equal(await asks(id), "reserved", `${id}, before`);
  await clock.pass(10_000n);
  t.equal(await asks("key_revoked"), "unauthorized: api_key_revoked");
  t.equal(await asks("key_expired"), "unauthorized: api_key_expired");
  t.equal(await asks("key_good"), "reserved");
  t.equal(await asks("key_other"), "unauthorized: invalid_api_key");
  t.equal(await asks("key_nobody"), "unauthorized: invalid_api_key");
});

t.test("no two payments have the same time, whatever the clock shows", async (t) => {
  const agent = await agentWith();
  const start = clock.now();
  const times = [await decide(agent), await decide(agent)];
  await clock.set(start - 60_000_000n);
  times.push(await decide(agent));
  await clock.set(start + 60_000_000n);
  times.push(await decide(agent));
  t.same(
    times.map(({ decidedAtMicros }) => decidedAtMicros - start),
    [0n, 1n, 2n, 60_000_000n],
  );
});

t.test("an open payment is reserved in a window until it leaves it", async (t) => {
  const agent = await agentWith({
    paymentsPerHour: 9,
    dailyLimit: 90n,
    weeklyLimit: 90n,
    monthlyLimit: 90n,
  });
  await pool.query("UPDATE allowlist_entries SET daily_limit = 90 WHERE agent_id = $1", [
    agent.agentId,
  ]);
  const first = await decide(agent, {}, { amount: 7n });
  const drawn = newId("pay");
  await decide(agent, {}, { amount: 5n, paymentId: drawn });
  // A withdrawal leaves the wallet, and no limit counts it.
  await pool.query(
    "UPDATE payments SET kind = 'withdrawal', created_at = created_at - interval '1 second' WHERE id = $1",
    [drawn],
  );
  await pool.query("UPDATE agents SET window_sum = 7 WHERE id = $1", [agent.agentId]);
  await pool.query("DELETE FROM spending_windows WHERE agent_id = $1", [agent.agentId]);
  const passed = { hourly: 1n, payee: 24n, daily: 24n, weekly: 168n, monthly: 720n };
  const amounts = { hourly: 1n, payee: 7n, daily: 7n, weekly: 7n, monthly: 7n };
  for (const hours of [1n, 24n, 168n, 720n])
    for (const beside of [-1n, 0n]) {
      await clock.set(first.decidedAtMicros + hours * 3_600_000_000n + beside);
      const { snapshot } = await decide(agent, {}, { dryRun: true });
      const reported = {
        hourly: [snapshot?.hourlySpent, snapshot?.hourlyReserved],
        payee: [snapshot?.payeeSpent, snapshot?.payeeReserved],
        daily: [snapshot?.spent, snapshot?.reserved],
        weekly: [snapshot?.weeklySpent, snapshot?.weeklyReserved],
        monthly: [snapshot?.monthlySpent, snapshot?.monthlyReserved],
      };
      for (const [name, numbers] of Object.entries(reported)) {
        const window = name as keyof typeof passed;
        const isInside = hours * 10n + beside < passed[window] * 10n;
        t.same(numbers, [0n, isInside ? amounts[window] : 0n], `${name} at ${hours} h ${beside}`);
      }
    }
});

t.test("a settled payment is spent, an open one is reserved", async (t) => {
  const agent = await agentWith({ weeklyLimit: 90n });
  const { paymentId } = await decide(agent, {}, { amount: 7n });
  await decide(agent, {}, { amount: 5n });
  await pool.query(
    `UPDATE payments SET status = 'settled', tx_hash = $2, block_number = 1, settled_at = now() WHERE id = $1`,
    [paymentId, randomHash()],
  );
  const { snapshot } = await decide(agent, {}, { dryRun: true });
  t.match(snapshot, { spent: 7n, reserved: 5n, weeklySpent: 7n, weeklyReserved: 5n });
  const others = Object.keys(snapshot ?? {}).filter((name) => /^(hourly|payee|monthly)/.test(name));
  t.same(others, [], "a limit that is not set is not shown as one of nothing");
});

t.test("a nonce that the payee chose is used once", async (t) => {
  const agent = await agentWith();
  const nonce = randomHash();
  const asks = (more: Partial<ReserveRequest> = {}) =>
    outcomeOf(agent, { nonce, prescribed: true, ...more }, { dryRun: true });
  t.equal(await asks(), "allowed");
  const used = "denied: challenge_already_used";
  const { paymentId } = await decide(agent, { nonce, prescribed: true });
  t.equal(await asks(), used, "by an open payment");
  const earlier = { code: "url_blocked" } as const;
  t.equal(await asks({ refusal: earlier }), "denied: url_blocked", "an earlier refusal is first");
  t.equal(
    await outcomeOf(await agentWith(), { nonce, prescribed: true }, { dryRun: true }),
    "allowed",
    "another wallet has nonces of its own",
  );
  t.equal(
    await outcomeOf(agent, { nonce }, { dryRun: true }),
    "allowed",
    "our own nonce is random",
  );
  t.equal(await asks({ nonce: randomHash() }), "allowed", "another nonce");
  const changes: [string, string][] = [
    ["another chain", "chain_id = 1"],
    ["another asset", `asset = '${OTHER}'`],
    ["no longer open", "status = 'voided'"],
  ];
  const inChanged = async (sql: string) => {
    const client = await pool.connect();
    try {
      await client.query("BEGIN");
      await client.query(sql);
      const row = await reserve(client, {
        ...reserveRequest(agent, 1n, { nonce, prescribed: true }),
        paymentId: newId("pay"),
        dryRun: true,
      });
      return row.code;
    } finally {
      await client.query("ROLLBACK");
      client.release();
    }
  };
  for (const [what, set] of changes)
    t.equal(await inChanged(`UPDATE payments SET ${set} WHERE id = '${paymentId}'`), null, what);
  await pool.query("UPDATE payments SET status = 'voided' WHERE id = $1", [paymentId]);
  t.equal(await asks(), "allowed");
  const settlement = `INSERT INTO settlements (from_address, chain_id, asset, nonce, id, kind, to_address, value, valid_after,
      valid_before, signature, relay, status, class)
    VALUES ('${agent.walletAddress}', ${CHAIN_ID}, '${ASSET}', '${nonce}', 'set_1', 'facilitated', '${PAYEE}', 1, 0, 9, '\\x00', true,
      'queued', 1)`;
  t.equal(await inChanged(settlement), "challenge_already_used", "by a settlement");
  for (const [what, from, to] of [
    ["of another wallet", agent.walletAddress, randomAddress()],
    ["on another chain", `${CHAIN_ID}`, "1"],
    ["of another asset", ASSET, OTHER],
    ["with another nonce", nonce, randomHash()],
  ] as const)
    t.equal(await inChanged(settlement.replace(from, to)), null, what);
});

t.test("which entry of a payee applies", async (t) => {
  const agent = await agentWith({ allowlist: [] });
  const entry = (address: Address, site: string, limit: bigint | null) =>
    insert("allowlist_entries", {
      agent_id: agent.agentId,
      address,
      site,
      per_payment_limit: limit,
    });
  await entry(PAYEE, "", 5n);
  await entry(PAYEE, SITE, 7n);
  const asks = (more: Partial<ReserveRequest>, amount: bigint) =>
    outcomeOf(agent, more, { amount, dryRun: true });
  const over = "denied: payee_per_payment_limit_exceeded";
  t.equal(await asks({}, 6n), over, "a plain payment: the entry for everywhere");
  t.equal(await asks({ site: "https://b.example" }, 6n), over, "another site: that entry, too");
  t.equal(await asks({ site: SITE }, 7n), "allowed", "there: its own");
  t.equal(await asks({ site: SITE }, 8n), over);
  const there = await decide(agent, { site: SITE }, { dryRun: true });
  t.equal(there.snapshot?.site, undefined, "nothing about the site where it allows the payment");
});

t.test("an agent that is restricted to its sites", async (t) => {
  const agent = await agentWith();
  await pool.query("UPDATE agents SET fetch_scope = 'sites' WHERE id = $1", [agent.agentId]);
  const asks = (more: Partial<ReserveRequest>) => outcomeOf(agent, more, { dryRun: true });
  t.equal(await asks({ site: SITE }), "denied: origin_not_allowed");
  t.equal(await asks({}), "allowed", "a direct payment");
  const listed = "https://listed.example";
  await insert("allowlist_entries", { agent_id: agent.agentId, address: PAYEE, site: listed });
  t.equal(await asks({ site: listed }), "allowed", "a site of the agent");
  const refusal = { code: "url_blocked" } as const;
  t.equal(await asks({ site: SITE, refusal }), "denied: url_blocked", "an earlier refusal");
});

t.test("what a decision knows about a site and its payees", async (t) => {
  const [agent, other] = [await agentWith({ allowlist: [] }), await agentWith({ allowlist: [] })];
  const [first, second] = [`0x${"1".repeat(40)}`, `0x${"2".repeat(40)}`] as const;
  const ago = (minutes: bigint) => inMicros(-minutes * 60_000_000n);
  await clock.set((clock.now() / 1_000n) * 1_000n);
  const entries: [Address, string, Row?][] = [
    [OTHER, SITE, { created_at: ago(3n) }],
    [second, "https://two.example", { created_at: ago(2n) }],
    [first, "https://two.example", { created_at: ago(2n) }],
    [OTHER, "https://two.example", { created_at: ago(3n) }],
    [OTHER, "https://past.example", { expires_at: inMicros(0n) }],
    [OTHER, "https://soon.example", { expires_at: inMicros(1_000n) }],
    [second, "https://everywhere.example"],
    [second, ""],
    ...["f", "e", "d", "c", "b", "g"].map((name): [Address, string] => [
      PAYEE,
      `https://${name}.example`,
    ]),
  ];
  for (const [address, site, more] of entries)
    await insert("allowlist_entries", { agent_id: agent.agentId, address, site, ...more });
  await insert("allowlist_entries", {
    agent_id: other.agentId,
    address: OTHER,
    site: "https://x.example",
  });
  const facts = async (payee: string | null, site: string | null, scope = "any") => {
    const { rows } = await pool.query<{ facts: unknown }>(
      `SELECT purser_site_facts($1, $2, $3, $4, clock_timestamp()) AS facts`,
      [agent.agentId, payee, site, scope],
    );
    return rows[0]?.facts;
  };
  const payeeSites = ["b", "c", "d", "e", "f"].map((name) => `https://${name}.example`);
  const sitesOfOther = [
    SITE,
    "https://past.example",
    "https://soon.example",
    "https://two.example",
  ];
  const nobody = randomAddress();
  const two = "https://two.example";
  const cases: [string, unknown, ...Parameters<typeof facts>][] = [
    ["nothing", {}, nobody, null],
    [
      "another payee is expected",
      { site: SITE, seenPayee: nobody, expectedPayee: OTHER },
      nobody,
      SITE,
    ],
    [
      "the newest entry, then the lowest address",
      { site: two, seenPayee: nobody, expectedPayee: first },
      nobody,
      two,
    ],
    ["an entry that has expired", { site: "https://past.example" }, nobody, "https://past.example"],
    [
      "an entry that has not",
      { site: "https://soon.example", seenPayee: nobody, expectedPayee: OTHER },
      nobody,
      "https://soon.example",
    ],
    ["of another agent", { site: "https://x.example" }, nobody, "https://x.example"],
    ["the payee is not known", { site: SITE }, null, SITE],
    ["some of the payee's sites", { payeeSites }, PAYEE, null],
    ["of the payee that is listed there, nothing", { site: SITE }, OTHER, SITE],
    ["of one that is listed for everywhere, nothing", { site: SITE }, second, SITE],
    [
      "listed elsewhere",
      { site: "https://x.example", payeeSites: sitesOfOther.toSorted() },
      OTHER,
      "https://x.example",
    ],
    ["confined to sites, a direct payment", { payeeSites }, PAYEE, null, "sites"],
    [
      "confined, at a site of the agent",
      { site: SITE, confined: true, siteListed: true },
      second,
      SITE,
      "sites",
    ],
    [
      "confined, at another",
      { site: "https://x.example", confined: true, siteListed: false },
      second,
      "https://x.example",
      "sites",
    ],
  ];
  for (const [what, expected, ...of] of cases) t.same(await facts(...of), expected, what);
});

/** An owner's permit for one call of this agent. */
async function permit(agent: SeededAgent, more: Row = {}) {
  const id = newId("apr");
  const permitNonce = randomHash();
  await insert("approvals", {
    id,
    owner_id: agent.ownerId,
    agent_id: agent.agentId,
    state: "granted",
    call: BODY,
    key: "k",
    kind: "spend",
    chain_id: CHAIN_ID,
    asset: ASSET,
    payee: OTHER,
    amount: 200n,
    site: "",
    denial_code: "recipient_not_allowed",
    denial: "{}",
    permit_nonce: permitNonce,
    permit_until: clock.now() / 1_000_000n + 120n,
    expires_at: inMicros(3_600_000_000n),
    decided_at: inMicros(0n),
    ...more,
  });
  return { id, permitNonce };
}

const stateOf = async (id: string) => {
  const { rows } = await pool.query("SELECT state, payment_id FROM approvals WHERE id = $1", [id]);
  return rows[0] as { state: string; payment_id: string | null };
};

t.test("an owner's permit lifts the refusal of exactly that call", async (t) => {
  const unlisted = { to: OTHER };
  const refused = "recipient_not_allowed";
  interface Case {
    what: string;
    code?: string | null;
    permit?: Row;
    more?: Partial<ReserveRequest>;
    key?: Partial<NonNullable<ReserveRequest["idempotency"]>>;
    amount?: bigint;
    prepare?: (agent: SeededAgent) => Promise<unknown>;
  }
  const cases: Case[] = [
    { what: "unlisted, and above the daily limit", code: null },
    { what: "less than approved", code: null, amount: 1n },
    { what: "one unit more", code: refused, amount: 201n },
    { what: "another key", code: refused, key: { key: "k2" } },
    { what: "another request", code: refused, key: { bodyHash: randomBytes(32) } },
    { what: "another payee", code: refused, permit: { payee: randomAddress() } },
    { what: "another chain", code: refused, permit: { chain_id: OTHER_CHAIN } },
    { what: "another asset", code: refused, permit: { asset: OTHER } },
    { what: "another site", code: refused, permit: { site: SITE } },
    { what: "at that site", code: null, permit: { site: SITE }, more: { site: SITE } },
    { what: "at a site, approved directly", code: refused, more: { site: SITE } },
    {
      what: "it would be valid too long",
      code: refused,
      permit: { permit_until: clock.now() / 1_000_000n + 119n },
    },
    { what: "used", code: refused, permit: { state: "used", payment_id: "p" } },
    {
      what: "a nonce of another contract",
      code: refused,
      more: { nonce: `permit2:${randomHash()}` },
    },
    { what: "a nonce that the payee chose", code: refused, more: { prescribed: true } },
    {
      what: "more than the balance",
      code: "insufficient_funds",
      more: { balance: { atomic: 199n, blockNumber: 1n } },
    },
    { what: "just the balance", code: null, more: { balance: { atomic: 200n, blockNumber: 1n } } },
    {
      what: "above the request's own maximum",
      code: "price_exceeds_max",
      more: { maxAmountAtomic: 199n },
    },
    { what: "the target refused", code: "url_blocked", more: { refusal: { code: "url_blocked" } } },
    {
      what: "paused",
      code: "agent_paused",
      prepare: ({ agentId }) =>
        pool.query("UPDATE agents SET status = 'paused' WHERE id = $1", [agentId]),
    },
    {
      what: "expired",
      code: "agent_expired",
      prepare: ({ agentId }) =>
        pool.query(`UPDATE agents SET expires_at = '${inMicros(0n)}' WHERE id = $1`, [agentId]),
    },
    {
      what: "every limit of the agent",
      code: null,
      prepare: ({ agentId }) =>
        pool.query(
          "UPDATE agents SET per_payment_limit = 1, payments_per_hour = 0, weekly_limit = 1, monthly_limit = 1 WHERE id = $1",
          [agentId],
        ),
    },
    {
      what: "an expired payee with limits",
      code: null,
      prepare: ({ agentId }) =>
        insert("allowlist_entries", {
          agent_id: agentId,
          address: OTHER,
          daily_limit: 1,
          per_payment_limit: 1,
          expires_at: inMicros(0n),
        }),
    },
    {
      what: "a payee who is listed for another site",
      code: null,
      prepare: ({ agentId }) =>
        insert("allowlist_entries", { agent_id: agentId, address: OTHER, site: SITE }),
    },
  ];
  for (const { what, code = null, permit: row, more, key, amount = 200n, prepare } of cases) {
    const agent = await agentWith();
    await prepare?.(agent);
    const { id, permitNonce } = await permit(agent, row);
    const before = await stateOf(id);
    const request = { ...unlisted, ...keyed(agent, key), ...more };
    const dry = await decide(agent, request, { amount, dryRun: true });
    t.equal(dry.code, code, `${what}: a dry run`);
    t.same(await stateOf(id), before, "a dry run uses nothing");
    if (code === null) t.same(dry.snapshot?.approval, { id, nonce: permitNonce });
    const decided = await decide(agent, request, { amount });
    t.equal(decided.code, code, what);
    const [payment] = await paymentsOf(agent);
    if (code === null) {
      t.equal(payment?.["nonce"], permitNonce, "the nonce that the owner signed");
      t.same(await stateOf(id), { state: "used", payment_id: decided.paymentId });
      t.equal(decided.validBefore, clock.now() / 1_000_000n + 120n);
    } else {
      t.same(await stateOf(id), before, "nothing is used");
      t.equal(payment?.["nonce"], null);
      t.equal(payment?.["valid_before"], null);
    }
  }
  const listed = await agentWith();
  const { id } = await permit(listed, { payee: PAYEE });
  t.equal(await outcomeOf(listed, keyed(listed)), "reserved");
  t.equal((await stateOf(id)).state, "granted", "what is allowed anyway uses no permit");
});

t.test(
  "a permit is used once, and comes back with a reservation that was never signed",
  async (t) => {
    const agent = await agentWith();
    const { id } = await permit(agent);
    const { id: others } = await permit(await agentWith());
    const { paymentId } = await decide(agent, { to: OTHER, ...keyed(agent) });
    await pool.query("SELECT purser_use_permit($1, 'another')", [id]);
    t.same(await stateOf(id), { state: "used", payment_id: paymentId });
    t.same(await stateOf(others), { state: "granted", payment_id: null });
    const restore = (agentId: string, payment: string) =>
      pool.query("SELECT purser_restore_permit($1, $2)", [agentId, payment]);
    await restore("agt_other", paymentId ?? "");
    await restore(agent.agentId, "pay_other");
    t.equal((await stateOf(id)).state, "used");
    await restore(agent.agentId, paymentId ?? "");
    t.same(await stateOf(id), { state: "granted", payment_id: null });
    for (const [state, expected] of [
      ["open", "expired"],
      ["granted", "expired"],
      ["declined", "granted"],
    ] as const) {
      await pool.query("DELETE FROM approvals WHERE agent_id = $1", [agent.agentId]);
      const { id } = await permit(agent, { state: "used", payment_id: "pay_1" });
      await permit(agent, { state });
      await restore(agent.agentId, "pay_1");
      t.same(await stateOf(id), { state: expected, payment_id: null }, `another one is ${state}`);
    }
    await pool.query("DELETE FROM approvals WHERE agent_id = $1", [agent.agentId]);
    const { id: own } = await permit(agent, { state: "used", payment_id: "pay_1" });
    await permit(agent, { state: "open", call: randomBytes(32) });
    await restore(agent.agentId, "pay_1");
    t.same(
      await stateOf(own),
      { state: "granted", payment_id: null },
      "a request for another call takes no permit away",
    );
  },
);

t.test("a permit that is being decided on is waited for", async (t) => {
  const agent = await agentWith();
  const { id } = await permit(agent);
  const call = [agent.agentId, BODY, "k", CHAIN_ID, ASSET, OTHER, "", "1", "0"];
  const ask = (holds: boolean) =>
    `SELECT id FROM purser_permit($1, $2, $3, $4, $5, $6, $7, $8, $9, ${holds})`;
  const client = await pool.connect();
  try {
    await client.query("BEGIN");
    t.same((await client.query(ask(true), call)).rows, [{ id }]);
    t.same((await pool.query(ask(false), call)).rows, [{ id }], "a dry run waits for nobody");
    const dry = { ...keyed(agent), to: OTHER };
    t.equal(await outcomeOf(agent, dry, { dryRun: true }), "allowed", "nor does its decision");
    const waiting = pool.query(ask(true), call);
    await until(isWaiting);
    await client.query("SELECT purser_use_permit($1, 'pay_1')", [id]);
    await client.query("COMMIT");
    t.same((await waiting).rows, [], "it was used meanwhile");
  } finally {
    client.release();
  }
});

t.test("what a reservation writes", async (t) => {
  const agent = await agentWith({ weeklyLimit: 50n });
  await insert("api_keys", {
    id: `key_${agent.agentId}`,
    key_hash: randomBytes(32),
    prefix: "p",
    last4: "l",
    agent_id: agent.agentId,
  });
  const request: Partial<ReserveRequest> = {
    ...keyed(agent, { call: "c1" }),
    apiKeyId: `key_${agent.agentId}`,
    requestId: "req_1",
    memo: "memo",
    url: "https://a.example/x",
    isMaximum: true,
    gas: { hold: 17n, floorAtomic: 1n },
    requirement: { scheme: "exact" },
  };
  const { paymentId, validBefore } = await decide(agent, request, { amount: 3n });
  t.match(await paymentsOf(agent), [
    {
      id: paymentId,
      kind: "spend",
      status: "reserved",
      chain_id: BigInt(CHAIN_ID),
      asset: ASSET,
      counterparty: PAYEE,
      amount: 3n,
      maximum: 3n,
      memo: "memo",
      api_key_id: `key_${agent.agentId}`,
      request_id: "req_1",
      denial_code: null,
      denial_key: null,
      url: "https://a.example/x",
      requirement: { scheme: "exact" },
      nonce: /^0x/,
      valid_before: validBefore,
      gas_hold: 17n,
      repeats: 0,
    },
  ]);
  t.match(await agentRow(agent), { window_sum: 3n, unsummed: 1, refusals: 0 });
  const { rows } = await pool.query("SELECT * FROM idempotency_keys WHERE subject_id = $1", [
    agent.agentId,
  ]);
  t.match(rows, [
    {
      key: "k",
      route: ROUTE,
      payment_id: paymentId,
      implicit: false,
      call: "c1",
      status_code: null,
    },
  ]);
  const week = { payee: "", hours: 168 };
  t.same(await windowsOf(agent), [{ ...week, amount: 3n, payments: 1n }]);
  await decide(agent, { gas: { hold: 0n, floorAtomic: 0n } });
  t.same(await windowsOf(agent), [{ ...week, amount: 4n, payments: 2n }], "it goes on from there");
  const [, plain] = await paymentsOf(agent);
  t.match(plain, { maximum: null, gas_hold: 0n, memo: null });
  const simple = await agentWith();
  await decide(simple);
  t.match(await paymentsOf(simple), [{ gas_hold: 0n }], "without gas of ours");
  t.same(await windowsOf(simple), [], "without a limit that needs a window");
});

t.test("what a refusal writes: one row an hour for the same refusal", async (t) => {
  const agent = await agentWith({ dailyLimit: 5n, weeklyLimit: 5n });
  // The first half of an hour, so that the hour does not change in between.
  await clock.set((clock.now() / 3_600_000_000n + 1n) * 3_600_000_000n);
  const refuse = (more: Partial<ReserveRequest> = {}, amount = 9n) =>
    decide(agent, { url: "u", gas: { hold: 17n, floorAtomic: 0n }, ...more }, { amount });
  const first = await refuse();
  t.match(first, { outcome: "blocked", code: "daily_limit_exceeded", validBefore: null });
  await clock.pass(1_000_000n);
  const balance = { atomic: 77n, blockNumber: 1n };
  t.equal((await refuse({ balance })).paymentId, first.paymentId, "the same again");
  const [again] = await paymentsOf(agent);
  t.match(again, { policy: { balance: "77" } }, "with the facts of the newest");
  t.equal(Number(again?.["updated_at"]) - Number(again?.["created_at"]), 1_000);
  t.match(await paymentsOf(agent), [
    {
      status: "blocked",
      denial_code: "daily_limit_exceeded",
      repeats: 1,
      gas_hold: 0n,
      nonce: null,
      valid_before: null,
      amount: 9n,
      counterparty: PAYEE,
    },
  ]);
  t.match(await agentRow(agent), { refusals: 1, window_sum: 0n, unsummed: 0 });
  const different: [string, Partial<ReserveRequest>, bigint?][] = [
    ["amount", {}, 8n],
    ["maximum", { maxAmountAtomic: 99n }],
    ["code", { maxAmountAtomic: 1n }],
    ["payee", { to: OTHER }],
    ["kind", { kind: "x402" }],
    ["url", { url: "v" }],
    ["listing", { listingId: "lst_1" }],
  ];
  for (const [index, [what, more, amount]] of different.entries()) {
    await refuse(more, amount);
    await refuse(more, amount);
    t.equal((await paymentsOf(agent)).length, 2 + index, `another ${what} is another refusal`);
  }
  t.match(await agentRow(agent), { refusals: 8 });
  await clock.pass(3_600_000_000n);
  await refuse();
  t.match(await agentRow(agent), { refusals: 1 }, "the next hour counts anew");
  t.equal((await paymentsOf(agent)).length, 9);
});

t.test("too many different refusals are counted on one row for each rule", async (t) => {
  const agent = await agentWith({ dailyLimit: 5n });
  await clock.set((clock.now() / 3_600_000_000n + 1n) * 3_600_000_000n);
  const refuse = (more: Partial<ReserveRequest> = {}, amount = 9n) =>
    decide(agent, more, { amount });
  const known = await refuse();
  const hour = (micros: bigint, refusals = 99) =>
    pool.query(
      "UPDATE agents SET refusals = $3, refusals_hour = 'epoch'::timestamptz + $2 * interval '1 microsecond' WHERE id = $1",
      [agent.agentId, String(micros), refusals],
    );
  await hour(clock.now());
  await refuse({ url: "the hundredth" });
  t.match(await agentRow(agent), { refusals: 100 });
  const apiKeyId = `key_${agent.agentId}`;
  await insert("api_keys", {
    id: apiKeyId,
    key_hash: randomBytes(32),
    prefix: "p",
    last4: "l",
    agent_id: agent.agentId,
  });
  const full: Partial<ReserveRequest> = {
    apiKeyId,
    memo: "m",
    listingId: "lst_1",
    requirement: {},
    isMaximum: true,
  };
  const folded = await refuse({ url: "one more", ...full });
  t.equal((await refuse({ url: "and one more", to: PAYEE }, 8n)).paymentId, folded.paymentId);
  t.equal((await refuse()).paymentId, known.paymentId, "one that has a row keeps it");
  t.not((await refuse({ maxAmountAtomic: 1n })).paymentId, folded.paymentId, "another rule");
  const rows = await paymentsOf(agent);
  t.match(
    rows.find(({ id }) => id === folded.paymentId),
    {
      counterparty: null,
      amount: 0n,
      url: null,
      memo: null,
      listing_id: null,
      requirement: null,
      maximum: null,
      api_key_id: null,
      repeats: 1,
      denial_code: "daily_limit_exceeded",
    },
  );
  t.equal(rows.length, 4);
  t.match(await agentRow(agent), { refusals: 100 });
  await hour(clock.now() - 3_600_000_000n, 100);
  await refuse({ url: "in another hour" });
  t.match(await agentRow(agent), { refusals: 1 });
});

t.test("a decision changes nothing of another agent", async (t) => {
  const HOUR = 3_600_000_000n;
  await clock.set((clock.now() / HOUR + 1n) * HOUR);
  const limits = { dailyLimit: 9n, weeklyLimit: 9n };
  // In the table, one is before the agent and one after it.
  const [before, agent, after] = [
    await agentWith(limits),
    await agentWith(limits),
    await agentWith(limits),
  ];
  const all = [before, agent, after];
  for (const one of all) await decide(one, keyed(one, { key: "k0" }), { amount: 3n });
  await clock.pass(24n * HOUR);
  for (const one of all) await permit(one);
  const others = async () => {
    const tables = ["payments", "spending_windows", "approvals", "payment_sums"];
    const { rows } = await pool.query(
      ["SELECT to_jsonb(a) AS row FROM agents a WHERE id = ANY($1)"]
        .concat(
          tables.map((table) => `SELECT to_jsonb(r) FROM ${table} r WHERE agent_id = ANY($1)`),
        )
        .join(" UNION ALL ") + " ORDER BY 1",
      [[before.agentId, after.agentId]],
    );
    return rows;
  };
  const old = await others();
  const decisions: [string, Partial<ReserveRequest>, bigint][] = [
    ["blocked: daily_limit_exceeded", {}, 10n],
    ["blocked: weekly_limit_exceeded", {}, 7n],
    ["reserved", keyed(agent, { key: "k1" }), 6n],
    ["reserved", { to: OTHER, ...keyed(agent) }, 6n],
  ];
  for (const [expected, more, amount] of decisions) {
    t.equal(await outcomeOf(agent, more, { amount }), expected);
    t.same(await others(), old, expected);
  }
  t.match(await agentRow(agent), { window_sum: 12n, unsummed: 3, refusals: 2 });
  await decide(after, {}, { amount: 10n });
  t.match(await agentRow(after), { refusals: 1 }, "the same refusal is another agent's own");
});

t.test("gas is charged to the owner, and only for what is reserved", async (t) => {
  const chainId = 8_453;
  await writeGasLimits(
    pool,
    chainId,
    limitsOf({ ...readGasBudget(""), agents: 100n, owner: 10n }, 1n),
  );
  const agent = await agentWith();
  const asks = (hold: bigint, more: Partial<ReserveRequest> = {}, dryRun = false) =>
    outcomeOf(agent, { chainId, gas: { hold, floorAtomic: 0n }, ...more }, { dryRun });
  const held = async () => {
    const { rows } = await pool.query<{ account: string; held: bigint }>(
      "SELECT account, held FROM gas_accounts WHERE chain_id = $1",
      [chainId],
    );
    return rows;
  };
  const account = `owner:${agent.ownerId}`;
  t.equal(await asks(10n, {}, true), "allowed");
  t.equal(await asks(10n, { to: OTHER }), "blocked: recipient_not_allowed");
  t.same(await held(), [], "neither a dry run nor a refusal");
  t.equal(await asks(11n), "blocked: gas_budget_exhausted");
  t.equal(await asks(6n), "reserved");
  t.same(await held(), [{ account, held: 6n }]);
  t.equal(await asks(5n), "blocked: gas_budget_exhausted");
  t.equal(await asks(4n), "reserved", "all of it");
  t.same(await held(), [{ account, held: 10n }]);
  t.equal(await outcomeOf(agent, { chainId }), "reserved", "a payment without gas of ours");
  t.same(await held(), [{ account, held: 10n }]);
  t.equal(await asks(1n, { gas: { hold: 1n, floorAtomic: 2n } }), "blocked: amount_below_floor");
});

t.test("payments are summed up as soon as they fill a sum", async (t) => {
  await pool.query(
    "CREATE OR REPLACE FUNCTION public.purser_sum_size() RETURNS INTEGER LANGUAGE sql IMMUTABLE AS 'SELECT 2'",
  );
  const agent = await agentWith();
  const sums = async () => {
    const { rows } = await pool.query(
      "SELECT amount, payments FROM payment_sums WHERE agent_id = $1 AND payee = ''",
      [agent.agentId],
    );
    return rows;
  };
  await decide(agent, {}, { amount: 3n });
  t.same([await sums(), (await agentRow(agent))["unsummed"]], [[], 1]);
  await decide(agent, {}, { amount: 4n });
  t.same([await sums(), (await agentRow(agent))["unsummed"]], [[{ amount: 7n, payments: 2n }], 0]);
});
