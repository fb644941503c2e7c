// Goal: no hot statement scans a big table: with 54,000 payments, each statement still reads only a few rows.
import { once } from "node:events";
import { get, type IncomingMessage } from "node:http";
import t from "tap";
import { createPrisma } from "../../server/infra/db/prisma.ts";
import { deleteOldRows } from "../../server/infra/retention.ts";
import { createPool, inTransaction, TIMEOUTS, type Sql } from "../../server/infra/db/pool.ts";
import { ordersOf } from "../../server/plugins/channels/store.ts";
import { acceptSettlements } from "../../server/plugins/settlement/accept.ts";
import { settleStore } from "../../server/plugins/facilitator/store.ts";
import { readServiceTotals } from "../../server/plugins/meta/store.ts";
import { acquireLease } from "../../server/plugins/settlement/lane-store.ts";
import { claim } from "../../server/plugins/settlement/store.ts";
import { testDatabase } from "../helpers/postgres.ts";
import { ASSET, PAYEE, randomAddress } from "../spending/guardrails-sql.helper.ts";
import {
  bad,
  BATCH,
  BURST,
  CHAIN_ID,
  seededApp,
  settleOfABurst,
  spendInEveryWay,
  thirdPartyRequests,
  TIMES,
} from "./hot-statements.ts";
import { databaseWithPlans, recordScans } from "./plans.ts";

/** These tests accept nothing through the store. */
const noSettlement = { acceptAll: async () => [], findByAuthorization: async () => undefined };

t.test("hot statements, with custom and with generic plans", async (t) => {
  const { database, app, baseUrl, owner, agent, seeded } = await seededApp(t, { listen: true });

  for (const mode of ["auto", "force_generic_plan"]) {
    await t.test(`payments, plan_cache_mode ${mode}`, async (t) => {
      const url = new URL(database.url);
      url.searchParams.set("options", `-c plan_cache_mode=${mode}`);
      const pool = createPool(url.href, { maxConnections: 2 });
      t.teardown(() => pool.end());
      const scans = recordScans(pool);
      await spendInEveryWay(t, pool, seeded);
      const blockedDays = mode === "auto" ? 50 : 40;
      const days = { blockedDays, bytesDays: 50, facilitatedDays: 50, statisticsDays: 50 };
      t.ok((await deleteOldRows(pool, days))["blocked"], "old refusals are deleted");
      t.same(bad(scans), []);
      const used = new Set(scans.map(({ index }) => index));
      for (const index of [
        "payments_counted_idx",
        "payments_outstanding_idx",
        "payments_settled_block_idx",
        "settlements_claimable_idx",
      ])
        t.ok(used.has(index), `${index} serves`, { used: [...used] });
      t.ok(scans.length > 40, "plans of functions and triggers are included");
      for (const { index, node, statement } of scans)
        if (index === "payments_counted_idx" && !statement.includes("window"))
          t.match(node, /^Index Only Scan$/, statement);
      await pool.query(
        "SELECT count(*) FROM payments WHERE memo = 'nothing has an index for this'",
      );
      t.equal(bad(scans).length, 1, "a full scan is detected");
    });
  }

  await t.test("a batch of a burst reads only its own rows, however many are open", async (t) => {
    const pool = createPool(database.url, { maxConnections: 1, timeouts: TIMEOUTS.engine });
    t.teardown(() => pool.end());
    const scans = recordScans(pool);
    await settleOfABurst(t, pool);
    const ofBatches = scans.filter(
      ({ table, statement }) =>
        table === "settlements" && /WITH claimed AS|WITH here AS|FOR UPDATE OF s/.test(statement),
    );
    t.ok(ofBatches.length >= 3 * 8, "plans of every batch were recorded");
    // Each of a hundred rows is read once to find it, and once more to update it.
    t.same(
      ofBatches.filter(({ rows }) => rows > 200),
      [],
    );
  });

  await t.test("reads of owners and agents", async (t) => {
    const scans = recordScans(app.pool, app.prismaPool);
    const read = async (url: string, headers: Record<string, string>) => {
      const before = scans.length;
      const answer = await app.inject({ url, headers });
      t.equal(answer.statusCode, 200, url);
      return scans.length - before;
    };
    const owned = `/api/agents/${agent.id}`;
    t.ok(await read(`${owned}/payments?limit=50`, owner.headers));
    const page = await app.inject({ url: `${owned}/payments?limit=50`, headers: owner.headers });
    const { nextCursor } = page.json<{ nextCursor: string }>();
    t.ok(await read(`${owned}/payments?limit=50&cursor=${nextCursor}`, owner.headers));
    t.ok(await read(`${owned}/payments?status=blocked`, owner.headers));
    t.ok(await read("/api/overview", owner.headers));
    t.ok(await read("/api/payments?search=words&limit=50", owner.headers));
    for (const by of ["payee", "site", "agent", "day"])
      t.ok(await read(`/api/spending?by=${by}&from=2020-01-01`, owner.headers));
    const days = "from=2020-01-01&to=2030-01-01";
    t.ok(await read(`/api/exports/movements.csv?${days}`, owner.headers));
    t.ok(await read(`/api/exports/ledger.beancount?${days}`, owner.headers));
    t.ok(await read("/api/agents/me", agent.headers));
    // No answer is kept for this payment; the statement that looks for one is planned all the same.
    const scansBefore = scans.length;
    const { rows } = await app.pool.query<{ id: string }>(
      "SELECT id FROM payments WHERE agent_id = $1 ORDER BY created_at DESC LIMIT 1",
      [agent.id],
    );
    const url = `/api/agents/me/payments/${rows[0]?.id}/answer`;
    t.equal((await app.inject({ url, headers: agent.headers })).statusCode, 404);
    t.ok(scans.slice(scansBefore).some(({ table }) => table === "idempotency_keys"));
    await readStream(`${baseUrl}/api/events`, { ...owner.headers, "last-event-id": "1-1" });
    t.same(bad(scans), []);
    const tables = new Set(scans.map(({ table }) => table));
    t.ok(tables.has("events") && tables.has("payments"));
  });
});

t.test("a statement prepared on a small table still reads only its own rows", async (t) => {
  const database = await databaseWithPlans(t);
  const pool = createPool(database.url, { maxConnections: 1, timeouts: TIMEOUTS.money });
  t.teardown(() => pool.end());
  const claims = settleStore(pool, noSettlement);
  const [first, ...others] = thirdPartyRequests(BURST);
  if (!first) throw new Error("no request");
  const accepted = await acceptSettlements(database.pool, [first]);
  const [row] = accepted.map(({ settlement }) => settlement);
  if (!row) throw new Error("not accepted");
  // Often enough for Postgres to switch to a generic plan.
  for (let times = 0; times < 8; times += 1) {
    await claims.find(first.authorization);
    await claims.claimSuccess(row);
  }
  for (let at = 0; at < others.length; at += 500)
    await acceptSettlements(database.pool, others.slice(at, at + 500));
  const scans = recordScans(pool);
  t.equal((await claims.find(first.authorization))?.id, first.id);
  t.equal(await claims.claimSuccess(row), false, "success was claimed by the first call");
  const read = scans.filter(({ table }) => table === "settlements");
  t.ok(read.length >= 2, "plans of both were recorded");
  t.same(
    read.filter(({ rows }) => rows > 2),
    [],
  );
});

t.test("a lane's statements prepared on a small table still read only their rows", async (t) => {
  const database = await databaseWithPlans(t);
  const pool = createPool(database.url, { maxConnections: 1, timeouts: TIMEOUTS.engine });
  t.teardown(() => pool.end());
  for (let times = 0; times < 8; times += 1) await settleOfABurst(t, pool, 1);
  const scans = recordScans(pool);
  await settleOfABurst(t, pool);
  const read = scans.filter(({ table }) => table === "settlements");
  t.ok(read.length > 30, "plans were recorded");
  const most = (statement: string) => (statement.includes("SKIP LOCKED") ? BURST : BATCH);
  t.same(
    read.filter(({ rows, statement }) => rows > most(statement)),
    [],
  );
});

t.test("a claim and the record of a returned success are HOT updates", async (t) => {
  const { pool } = await testDatabase(t);
  await acceptSettlements(pool, thirdPartyRequests(4));
  const lane = { chainId: CHAIN_ID, address: randomAddress() };
  await acquireLease(pool, lane, "me", 60_000);
  const lease = { ...lane, owner: "me", epoch: 1n };
  const written = async (sql: Sql): Promise<{ all: number; hot: number }> => {
    const { rows } = await sql.query<{ all: number; hot: number }>(
      `SELECT n_tup_upd::int AS all, n_tup_hot_upd::int AS hot FROM pg_stat_xact_user_tables
        WHERE relname = 'settlements'`,
    );
    return rows[0] ?? { all: 0, hot: 0 };
  };
  const writesOf = <T>(work: (sql: Sql) => Promise<T>) =>
    inTransaction(pool, async (sql) => {
      const before = await written(sql);
      const done = await work(sql);
      const after = await written(sql);
      t.same([after.all - before.all, after.hot - before.hot], [4, 4]);
      return done;
    });
  const room = { batchable: 4, ownSolo: 0, thirdPartySolo: 0 };
  const claimed = await writesOf((sql) => claim(sql, lease, room));
  const successes = await writesOf((sql) => {
    const claims = settleStore(sql, noSettlement);
    return Promise.all(claimed.map((record) => claims.claimSuccess(record)));
  });
  t.same(successes, Array(4).fill(true));
  // Postgres parses a generated column's expression again for each row of an update, even if its inputs do not
  // change.
  const { rows } = await pool.query(
    "SELECT attname FROM pg_attribute WHERE attrelid = 'settlements'::regclass AND attgenerated <> ''",
  );
  t.same(rows, [], "there is no generated column");
  // Constraints guarantee their values instead.
  const rewrite = (change: string) => pool.query(`UPDATE settlements SET ${change}`);
  await t.rejects(rewrite("class = 0"), /settlements_class_is_its_kinds/);
  await t.rejects(rewrite("only_lane = from_address"), /settlements_only_lane_is_its_terms/);
});

t.test("a settle reads only the recent orders of its receiver", async (t) => {
  const receiver = randomAddress();
  const EACH = 5_000 * TIMES;
  for (const mode of ["auto", "force_generic_plan"]) {
    const database = await databaseWithPlans(t);
    await database.pool.query("ALTER TABLE settlements DISABLE TRIGGER USER");
    // Claims of the receiver, refunds of its payers, claims of others, and payments; two are open, and three recent.
    await database.pool.query(
      `INSERT INTO settlements (from_address, chain_id, asset, nonce, id, kind, to_address, value, valid_after, valid_before,
                                signature, relay, status, tx_hash, block_number, proof, settled_at, class, terms)
       SELECT CASE n % 4 WHEN 0 THEN $2 ELSE '0x' || lpad(to_hex(n), 40, '0') END, $1, $3,
              CASE n % 4 WHEN 3 THEN '' ELSE 'channel:' END || '0x' || encode(sha256(n::text::bytea), 'hex'), 'pay_' || n, 'facilitated', $4, 1, 0, 4102444800,
              '\\x00', true, CASE WHEN n < 2 THEN 'queued' ELSE 'settled' END, CASE WHEN n >= 2 THEN '0x' || repeat('0', 64) END,
              CASE WHEN n >= 2 THEN 1000000 - n END, '{}', CASE WHEN n >= 2 THEN now() + (8.5 - n) * interval '1 day' END, 2,
              CASE n % 4
                WHEN 0 THEN '{"scheme": "channel-claim", "claims": [{}]}'::jsonb
                WHEN 1 THEN jsonb_build_object('scheme', 'channel-refund', 'claims', '[{}]'::jsonb,
                                               'config', jsonb_build_object('receiver', $2::text))
                WHEN 2 THEN '{"scheme": "channel-claim", "claims": [{}]}'::jsonb END
         FROM generate_series(0, $5 - 1) n`,
      [CHAIN_ID, receiver, ASSET, PAYEE, 4 * EACH],
    );
    await database.pool.query("VACUUM (ANALYZE) settlements");
    const url = new URL(database.url);
    url.searchParams.set("options", `-c plan_cache_mode=${mode}`);
    const pool = createPool(url.href, { maxConnections: 1 });
    t.teardown(() => pool.end());
    const scans = recordScans(pool);
    const found = await ordersOf(createPrisma(pool), CHAIN_ID, receiver);
    t.same(found, { open: ["pay_0", "pay_1"], newest: 999_996n }, mode);
    const [scan, ...others] = scans.filter(({ table }) => table === "settlements");
    t.same(others, []);
    t.match(scan, { index: "settlements_receiver_orders_idx", rows: 5 }, mode);
  }
});

t.test("the totals of a day read the settlements of that day, not the whole table", async (t) => {
  const database = await databaseWithPlans(t);
  await database.pool.query("ALTER TABLE settlements DISABLE TRIGGER USER");
  const MINUTES = 30_000;
  await database.pool.query(
    `INSERT INTO settlements (from_address, chain_id, asset, nonce, id, kind, agent_id, to_address, value, valid_after, valid_before,
                              signature, relay, status, tx_hash, proof, created_at, settled_at, class)
     SELECT $2, $1, $3, '0x' || encode(sha256(n::text::bytea), 'hex'), 'pay_' || n, 'spend', 'agt_1', $4, 1, 0, 4102444800,
            '\\x00', true, 'settled', '0x' || repeat('0', 64), '{}', at, at, 1
       FROM generate_series(1, $5::integer) n, LATERAL (SELECT now() - ($5::integer - n) * interval '1 minute' AS at) times`,
    [CHAIN_ID, randomAddress(), ASSET, PAYEE, MINUTES],
  );
  await database.pool.query("VACUUM (ANALYZE) settlements");
  const pool = createPool(database.url, { maxConnections: 2 });
  t.teardown(() => pool.end());
  const scans = recordScans(pool);
  const { settled } = await readServiceTotals(createPrisma(pool));
  t.equal(settled, 24 * 60);
  const read = scans.filter(({ table }) => table === "settlements");
  t.ok(read.length > 0, "the plan was recorded");
  // The index names ranges of pages, so some rows before that day are read too.
  t.same(
    read.filter(({ node, rows }) => node === "Seq Scan" || rows > MINUTES / 8),
    [],
  );
});

/**
 * Reads until the first payment event. Not with fetch: its connection would outlive the stream and delay the
 * shutdown.
 */
async function readStream(url: string, headers: Record<string, string>): Promise<void> {
  const request = get(url, { headers, agent: false });
  const [response] = (await once(request, "response")) as [IncomingMessage];
  let read = "";
  for await (const chunk of response) {
    read += String(chunk);
    if (read.includes("event: payment")) break;
  }
  request.destroy();
}
