// Goal: any running replica releases what a dead one reserved; retention deletes old rows and keeps those of open
// payments.
import t from "tap";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { testApp } from "../helpers/app.ts";
import { asOwner, createAgent, signIn } from "../helpers/owner.ts";
import { until } from "../helpers/until.ts";
import { reserveUnsigned, statusesOf } from "./ledger.helper.ts";
import { readAllTime } from "../../server/plugins/facilitator/store.ts";
import { deleteOldRows } from "../../server/infra/retention.ts";

const ctx = await testApp(t);
const { app, chain, database } = ctx;
const owner = await signIn(ctx);
const payee = privateKeyToAccount(generatePrivateKey()).address;
const agent = await createAgent(ctx, owner, { dailyLimit: "1", allowlist: [payee] });

const reserve = async () => {
  const result = await reserveUnsigned(ctx, agent, { to: payee, amountAtomic: 1n });
  if (result.kind !== "reserved") throw new Error(result.kind);
  return result.paymentId;
};

t.test("a replica that starts releases reservations that were never signed", async (t) => {
  const paymentId = await reserve();
  const young = await reserve();
  await database.pool.query(
    "UPDATE payments SET created_at = created_at - interval '2 minutes' WHERE id = $1",
    [paymentId],
  );
  await Promise.all([
    testApp(t, { chain, database, listen: true }),
    testApp(t, { chain, database, listen: true }),
  ]);
  await until(async () => (await statusesOf(ctx, agent.id))["voided"] === 1, 20_000);
  t.same(await statusesOf(ctx, agent.id), { voided: 1, reserved: 1 });
  const { rows } = await database.pool.query<{ id: string; failure_code: string | null }>(
    "SELECT id, failure_code FROM payments WHERE agent_id = $1 ORDER BY created_at",
    [agent.id],
  );
  t.same(rows, [
    { id: paymentId, failure_code: "not_signed" },
    { id: young, failure_code: null },
  ]);
});

/** Rows inserted directly, with ages on both sides of each retention limit. */
const hex = (char: string, length: number): string => `0x${char.repeat(length)}`;
const days = { blockedDays: 90, bytesDays: 30, facilitatedDays: 90, statisticsDays: 400 };

t.test(
  "retention: old responses and events are deleted, those of open payments are kept",
  async (t) => {
    const open = await reserve();
    const withdrawal = "pay_withdrawal";
    await database.pool.query(
      `INSERT INTO payments (agent_id, id, kind, status, chain_id, asset, counterparty, amount, nonce)
     VALUES ($1, $2, 'withdrawal', 'submitted', $3, $4, $5, 1, $6)`,
      [
        agent.id,
        withdrawal,
        chain.chainId,
        chain.usdc.toLowerCase(),
        payee.toLowerCase(),
        hex("a", 64),
      ],
    );
    const { rows: owners } = await database.pool.query<{ id: string }>(
      "SELECT owner_id AS id FROM agents WHERE id = $1",
      [agent.id],
    );
    await database.pool.query(
      `INSERT INTO idempotency_keys (subject_id, route, key, body_hash, payment_id, created_at)
     SELECT s, 'r', k, decode(repeat('00', 32), 'hex'), p, now() - age::interval
       FROM (VALUES ($1, 'old', NULL, '49 hours'), ($1, 'open', $2, '49 hours'), ($1, 'young', NULL, '25 hours'),
                    ($3, 'withdrawal', $4, '49 hours'), ($3, 'gone', 'pay_gone', '49 hours'))
            AS v (s, k, p, age)`,
      [agent.id, open, owners[0]?.id, withdrawal],
    );
    await database.pool.query("UPDATE events SET created_at = now() - interval '3 days'");
    await asOwner(app, owner, {
      method: "PATCH",
      url: `/api/agents/${agent.id}`,
      body: { name: "Renamed" },
    });
    const deleted = await deleteOldRows(database.pool, days, 1);
    t.equal(deleted["answers"], 2);
    t.ok((deleted["events"] ?? 0) > 1, "in more than one batch");
    const { rows } = await database.pool.query("SELECT key FROM idempotency_keys ORDER BY key");
    t.same(rows, [{ key: "open" }, { key: "withdrawal" }, { key: "young" }]);
    const events = await database.pool.query("SELECT 1 FROM events");
    t.equal(events.rowCount, 1);

    await database.pool.query(
      "INSERT INTO auth_nonces (nonce, expires_at) VALUES ('0123456789abcdef', now() - interval '2 hours')",
    );
    t.equal((await deleteOldRows(database.pool, days))["nonces"], 1);
    const me = await app.inject({ url: "/api/auth/session", headers: owner.headers });
    t.equal(me.statusCode, 200, "a session in use is kept");
  },
);

t.test(
  "retention: refusals, raw bytes, facilitated payments, statistics and sums, each after its own time",
  async (t) => {
    const { pool } = database;
    const asset = chain.usdc.toLowerCase();
    await pool.query(
      `INSERT INTO payments (agent_id, id, kind, status, chain_id, asset, amount, denial_code, created_at)
     SELECT $1, 'pay_' || age, 'spend', 'blocked', $2, $3, 1, 'agent_paused', now() - age * interval '1 day'
       FROM unnest(ARRAY[89, 91, 92]) AS age`,
      [agent.id, chain.chainId, asset],
    );
    // Settled 29, 31, 91 and 92 days ago; the last authorization is valid for another year.
    await pool.query(
      `WITH made AS (
       SELECT n, now() - age * interval '1 day' AS at, '0x' || lpad(n::text, 64, '0') AS hash,
              extract(epoch FROM now()) + CASE n WHEN 4 THEN 31536000 ELSE 60 - age * 86400 END AS valid_before
         FROM (VALUES (1, 29), (2, 31), (3, 91), (4, 92)) AS v (n, age)),
     sent AS (
       INSERT INTO relayer_transactions (chain_id, lane_address, nonce, status, to_address, calldata, gas_limit,
                                         mined_hash, block_number, created_at, finalized_at)
       SELECT $1, $2, 1000 + n, 'mined', $3, 'c', 1, hash, 1, at, at FROM made),
     signed AS (
       INSERT INTO relayer_attempts (hash, chain_id, lane_address, nonce, attempt, raw, max_fee_wei, priority_fee_wei)
       SELECT hash, $1, $2, 1000 + n, 1, 'r', 1, 1 FROM made),
     carried AS (
       INSERT INTO settlement_transactions (chain_id, lane_address, lane_nonce, position, action, from_address, asset, nonce)
       SELECT $1, $2, 1000 + n, 0, 'transfer', $2, $3, hash FROM made)
     INSERT INTO settlements (from_address, chain_id, asset, nonce, id, kind, to_address, value, valid_after,
                              valid_before, signature, relay, status, tx_hash, proof, created_at, settled_at, final_at)
     SELECT $2, $1, $3, hash, 'pay_s' || n, 'facilitated', $2, 7, 0, floor(valid_before), '', true, 'settled', hash,
            '{"kind": "unrecorded"}', at, at, at
       FROM made`,
      [chain.chainId, payee.toLowerCase(), asset],
    );
    await pool.query(
      `INSERT INTO facilitator_hours (hour, operation, outcome, count)
     SELECT now() - age * interval '1 day', 'verify', 'ok', 1 FROM unnest(ARRAY[399, 401]) AS age`,
    );
    await pool.query(
      `INSERT INTO payment_sums (agent_id, payee, level, after_at, to_at, amount, payments)
     SELECT $1, '', 1, now() - (age + 1) * interval '1 day', now() - age * interval '1 day', 5, 1
       FROM unnest(ARRAY[59, 61]) AS age`,
      [agent.id],
    );
    await pool.query(
      `WITH budget AS (
         INSERT INTO budgets (id, owner_id, name, daily_limit) SELECT 'bud_1', owner_id, 'a', 1 FROM agents WHERE id = $1),
       sums AS (
         INSERT INTO payment_sums (agent_id, payee, level, after_at, to_at, amount, payments)
         SELECT 'bud_1', '', 1, now() - (age + 1) * interval '1 day', now() - age * interval '1 day', 5, 1
           FROM unnest(ARRAY[59, 61]) AS age)
       INSERT INTO budget_payments (agent_id, payment_id, budget_id, at, payer, amount, counted)
       SELECT $1, 'pay_' || age, 'bud_1', now() - age * interval '1 day', '', 1, TRUE FROM unnest(ARRAY[61, 63]) AS age`,
      [agent.id],
    );
    // A claim of channels, 92 days ago: it is nobody's payment, and never expires.
    await pool.query(
      `INSERT INTO settlements (from_address, chain_id, asset, nonce, id, kind, to_address, value, valid_after, valid_before,
                                terms, signature, relay, status, tx_hash, proof, created_at, settled_at, final_at)
     SELECT from_address, chain_id, asset, 'channel:' || nonce, 'pay_claim', kind, to_address, 0, 0, 2::numeric ^ 64,
            '{"scheme": "channel-claim"}', '', relay, status, tx_hash, proof, created_at, settled_at, final_at
       FROM settlements WHERE id = 'pay_s4'`,
    );
    const everBefore = await readAllTime(app.prisma);
    const deleted = await deleteOldRows(pool, days, 1);
    t.match(deleted, {
      blocked: 2,
      bytes: 3,
      thirdParties: 2,
      hours: 1,
      sums: 2,
      budgetPayments: 1,
    });
    const read = async (sql: string) =>
      (await pool.query<{ v: unknown }>(sql)).rows.map(({ v }) => v);
    t.same(await read("SELECT id AS v FROM payments WHERE status = 'blocked'"), ["pay_89"]);
    t.same(await read("SELECT id AS v FROM settlements WHERE kind = 'facilitated' ORDER BY id"), [
      "pay_s1",
      "pay_s2",
      "pay_s4",
    ]);
    t.same(
      await read("SELECT count(*)::int AS v FROM relayer_attempts WHERE hash LIKE '0x000%'"),
      [4],
      "every hash is kept",
    );
    t.same(
      await read(
        "SELECT nonce::int AS v FROM relayer_attempts WHERE raw <> '' AND hash LIKE '0x000%'",
      ),
      [1001],
    );
    t.same(
      await read(
        "SELECT nonce::int AS v FROM relayer_transactions WHERE calldata <> '' AND nonce > 1000",
      ),
      [1001],
    );
    t.same(
      await read("SELECT lane_nonce::int AS v FROM settlement_transactions ORDER BY 1"),
      [1001, 1002, 1004],
    );
    t.same(await read("SELECT settled::int + volume::int AS v FROM facilitator_past"), [8]);
    t.same(await deleteOldRows(pool, days), {}, "a second run deletes nothing");
    t.same(await readAllTime(app.prisma), everBefore, "the all-time totals are kept");
  },
);

t.test("retention: orders that nobody signed, sessions and notes that ended", async (t) => {
  const { pool } = database;
  const read = async (sql: string) =>
    (await pool.query<{ v: unknown }>(sql)).rows.map(({ v }) => v);
  const signed = await read("SELECT nonce AS v FROM owner_orders WHERE used_at IS NOT NULL");
  t.ok(signed.length > 0);
  await pool.query("UPDATE owner_orders SET deadline = 1");
  await pool.query(
    `INSERT INTO owner_orders (nonce, kind, owner_id, agent_id, version, chain_id, document, digest, deadline)
     SELECT '0x' || lpad(minutes::text, 64, '0'), kind, owner_id, agent_id, version, chain_id, document, digest,
            extract(epoch FROM now()) - minutes * 60
       FROM (SELECT * FROM owner_orders LIMIT 1) one, unnest(ARRAY[59, 61]) AS minutes`,
  );
  await pool.query(
    `INSERT INTO sessions (id, owner_id, token_hash, expires_at, revoked_at)
     SELECT v.id, a.owner_id, sha256(v.id::bytea), now() + expires::interval, now() + revoked::interval
       FROM agents a, (VALUES ('ended', '-8 days', NULL), ('revoked', '1 day', '-8 days'), ('listed', '-6 days', NULL),
                              ('just revoked', '1 day', '-6 days')) AS v (id, expires, revoked)
      WHERE a.id = $1`,
    [agent.id],
  );
  await pool.query(
    `INSERT INTO paywall_notes (kind, hash, until)
     VALUES ('nonce', 'old', now() - interval '1 s'), ('nonce', 'valid', now() + interval '1 hour')`,
  );
  t.match(await deleteOldRows(pool, days, 1), { preparedOrders: 1, sessions: 2, paywallNotes: 1 });
  t.same(
    await read("SELECT nonce AS v FROM owner_orders WHERE used_at IS NOT NULL"),
    signed,
    "what an owner signed is evidence",
  );
  t.same(await read("SELECT right(nonce, 2) AS v FROM owner_orders WHERE used_at IS NULL"), ["59"]);
  t.same(
    await read(
      "SELECT id AS v FROM sessions WHERE id IN ('ended', 'revoked', 'listed', 'just revoked') ORDER BY id",
    ),
    ["just revoked", "listed"],
  );
  t.same(await read("SELECT hash AS v FROM paywall_notes WHERE hash IN ('old', 'valid')"), [
    "valid",
  ]);
});

t.test("retention: a table that fails does not keep the others", async (t) => {
  const { pool } = database;
  const failing = {
    query: async (text: string, values: unknown[]) => {
      if (text.includes("canceled_calls")) throw new Error("a lock timeout");
      return pool.query(text, values);
    },
  } as unknown as typeof pool;
  await pool.query("UPDATE events SET created_at = now() - interval '3 days'");
  await t.rejects(deleteOldRows(failing, days), { message: /not deleted: .*a lock timeout/ });
  t.equal((await pool.query("SELECT 1 FROM events")).rowCount, 0);
});
