// Goal: after long downtime, a reorganisation or the restore of an old database, nothing is missed or paid twice,
// and the limits count everything.
import { randomBytes } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import t from "tap";
import { Client } from "pg";
import type { Address } from "viem";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { RestoreHold, SOME_BLOCK } from "../../server/plugins/reconciliation/hold.ts";
import {
  beginHold,
  liftHold,
  placeHold,
  readHold,
} from "../../server/plugins/reconciliation/hold-store.ts";
import { closeLaneDifference } from "../../server/plugins/reconciliation/store.ts";
import { lowerNextNonce } from "../../server/plugins/settlement/lane-store.ts";
import { post, signedPayment } from "../facilitator/payments.ts";
import { testApp, type TestApp } from "../helpers/app.ts";
import { testChain } from "../helpers/chain.ts";
import { signIn } from "../helpers/owner.ts";
import { testDatabase, type TestDatabase } from "../helpers/postgres.ts";
import { until } from "../helpers/until.ts";
import { startReplica, type Replica } from "../spending/replica.helper.ts";
import {
  alarms,
  RECONCILIATION_TIMINGS,
  assertLedgerEqualsChain,
  reconciliationWorld,
  differences,
  sentToSeller,
  overview,
  ready,
  reconcile,
  relay,
  sendTo,
  settlementOf,
  spend,
  untilRead,
  usdc,
} from "./world.ts";

t.test("a long downtime leaves no gap", { timeout: 300_000 }, async (t) => {
  const ctx = await reconciliationWorld(t);
  const { chain, app } = ctx;
  const [sender] = chain.accounts;
  await chain.mint(sender?.address ?? "0x", 100n * usdc);
  const early = await sentToSeller(ctx, { amount: usdc, validForSeconds: 86_400 });
  await reconcile(ctx);
  const used = await relay(ctx, early.authorization);
  // No reading meanwhile: more blocks than one query returns, in steps that a slow machine can mine in time.
  for (let step = 0; step < 22; step += 1) await chain.testClient.mine({ blocks: 100 });
  await sendTo(ctx, ctx.agent.walletAddress, 7n * usdc);
  for (let step = 0; step < 2; step += 1) await chain.testClient.mine({ blocks: 100 });
  // The state before the downtime, as if the engine had been down too.
  await ctx.database.pool.query(
    `UPDATE settlements SET status = 'failed', error_reason = 'invalid_exact_evm_payload_authorization_valid_before',
       tx_hash = NULL, block_number = NULL, settled_at = NULL, proof = '{"kind":"unrecorded"}' WHERE id = $1`,
    [early.id],
  );
  await ctx.database.pool.query(
    "UPDATE payments SET status = 'voided', tx_hash = NULL WHERE id = $1",
    [early.id],
  );
  let passes = 0;
  let isMore = true;
  while (isMore) {
    isMore = await app.reconciliation.read(chain.chainId);
    passes += 1;
    if (passes > 50) throw new Error("it does not come to an end");
  }
  t.match(await settlementOf(ctx, early.id), { status: "settled", tx_hash: used });
  const { rows } = await ctx.database.pool.query(
    "SELECT amount::int FROM payments WHERE kind = 'incoming'",
  );
  t.same(rows, [{ amount: 7_000_000 }]);
  const head = await chain.publicClient.getBlockNumber({ cacheTime: 0 });
  t.match(await overview(ctx), { ledger: [{ equalsChain: true, asOfBlock: String(head) }] });
  await assertLedgerEqualsChain(t, ctx);
});

t.test("payments that a reorganisation removed are reverted here, and read again", async (t) => {
  const ctx = await reconciliationWorld(t);
  const { chain } = ctx;
  await chain.mint(chain.accounts[0]?.address ?? "0x", 100n * usdc);
  const { id, authorization } = await sentToSeller(ctx, { amount: 2n * usdc });
  const snapshot = await chain.testClient.snapshot();
  await sendTo(ctx, ctx.agent.walletAddress, 5n * usdc);
  const lost = await relay(ctx, authorization);
  await untilRead(ctx, async () => (await settlementOf(ctx, id))?.status === "settled");
  const incoming = async () => {
    const { rows } = await ctx.database.pool.query<{ status: string; amount: number }>(
      "SELECT status, amount::int FROM payments WHERE kind = 'incoming' ORDER BY created_at",
    );
    return rows;
  };
  t.same(await incoming(), [{ status: "settled", amount: 5_000_000 }]);

  await chain.testClient.revert({ id: snapshot });
  await chain.testClient.mine({ blocks: 4 });
  await sendTo(ctx, ctx.agent.walletAddress, 6n * usdc);
  await untilRead(ctx, async () => (await settlementOf(ctx, id))?.status !== "settled");
  t.match(await settlementOf(ctx, id), { status: "queued", payment: "submitted" });
  t.same(await incoming(), [
    { status: "voided", amount: 5_000_000 },
    { status: "settled", amount: 6_000_000 },
  ]);
  t.match((await differences(ctx)).map(({ kind, repaired }) => `${kind} ${repaired}`).sort(), [
    "incoming_gone true",
    "payment_not_on_chain true",
  ]);
  t.ok(alarms(ctx).includes("ledger_incoming_gone"));
  const again = await relay(ctx, authorization);
  t.not(again, lost);
  await untilRead(ctx, async () => (await settlementOf(ctx, id))?.tx_hash === again);
  t.match(await overview(ctx), { ledger: [{ equalsChain: true }] });
  await assertLedgerEqualsChain(t, ctx);
});

t.test("a restored older database learns the later payments from the chain", async (t) => {
  const chain = await testChain(t);
  const before = await testDatabase(t);
  const ctx = await reconciliationWorld(t, { chain, database: before, dailyLimit: "10" });
  t.equal((await spend(ctx, "1")).statusCode, 200);
  const open = await sentToSeller(ctx, { amount: 2n * usdc });
  await reconcile(ctx);
  await ctx.app.close();

  // A backup; then the service continues until its database is lost.
  const backup = await copyOf(t, before);
  const later = await testApp(t, { chain, database: before, timings: RECONCILIATION_TIMINGS });
  const goingOn = { ...ctx, ...later };
  await signIn(later, ctx.owner.account);
  t.equal((await spend(goingOn, "4")).statusCode, 200);
  const used = await relay(ctx, open.authorization);
  await untilRead(
    goingOn,
    async () => (await settlementOf(goingOn, open.id))?.status === "settled",
  );
  await later.app.close();

  const restored: TestApp = await testApp(t, {
    chain,
    database: backup,
    timings: RECONCILIATION_TIMINGS,
  });
  const owner = await signIn(restored, ctx.owner.account);
  const now = { ...ctx, ...restored, owner };
  const early = await spend(now, "4");
  t.match(early.json(), { code: "chain_unavailable" }, "the window lacks the later payments");
  await untilRead(now, async () =>
    (await differences(now)).some(({ kind }) => kind === "relayer_nonce"),
  );
  t.match(await settlementOf(now, open.id), {
    status: "settled",
    tx_hash: used,
    payment: "settled",
  });
  const unknown = (await differences(now)).filter(({ kind }) => kind === "payment_unknown");
  t.match(unknown, [{ repaired: true, detail: { amount: "4000000" } }]);
  await assertLedgerEqualsChain(t, now);
  t.match(
    (await restored.app.inject({ url: "/api/agents/me", headers: ctx.agent.headers })).json(),
    {
      limits: { spent: "7", remaining: "3" },
    },
  );
  t.match(await overview(now), { ledger: [{ equalsChain: true }] });
  // From here on, limits are right.
  t.match((await spend(now, "4")).json(), { code: "daily_limit_exceeded" });
  t.equal((await spend(now, "3")).statusCode, 200);
  await reconcile(now);
  await assertLedgerEqualsChain(t, now);
});

t.test("a restore rings once for all lost nonces, and the alarm ends by itself", async (t) => {
  const chain = await testChain(t);
  const before = await testDatabase(t);
  const ctx = await reconciliationWorld(t, { chain, database: before });
  t.equal((await spend(ctx, "1")).statusCode, 200);
  await reconcile(ctx);
  await ctx.app.close();
  const backup = await copyOf(t, before);
  const later = await testApp(t, { chain, database: before, timings: RECONCILIATION_TIMINGS });
  const LOST = 3;
  for (let count = 0; count < LOST; count += 1)
    t.equal((await spend({ ...ctx, ...later }, "1")).statusCode, 200);
  await later.app.close();

  // An absence lasts for a while, as it does in a service.
  const timings = { ...RECONCILIATION_TIMINGS, reconcileAbsentMs: 300 };
  const restored = await testApp(t, { chain, database: backup, timings });
  const now = { ...ctx, ...restored };
  const nonces = async () =>
    (await differences(now)).filter(({ kind }) => kind === "relayer_nonce");
  const rings = (): number =>
    alarms(now).filter((alarm) => alarm === "ledger_relayer_nonce").length;
  const count = async (): Promise<unknown> => (await nonces())[0]?.detail["count"];
  await until(async () => {
    await reconcile(now);
    return (await count()) === LOST;
  }, 30_000);
  t.match(await nonces(), [{ repaired: false }]);
  t.equal(rings(), 1);

  // The relayer works again, with the chain's nonce.
  t.equal((await spend(now, "1")).statusCode, 200);
  await chain.testClient.mine({ blocks: 2 });
  await reconcile(now);
  t.match(await nonces(), [{ repaired: false }], "open for long enough to be noticed");
  restored.config.timings.reconcileAgreedMs = 0;
  await chain.testClient.mine({ blocks: 1 });
  await reconcile(now);
  t.match(await nonces(), [{ repaired: true, detail: { count: LOST } }]);
  t.equal(rings(), 1);
  t.notMatch(await ready(now), { ledger: { detail: /relayer_nonce/ } });

  // Another cause: it rings again, and a nonce that follows belongs to it.
  restored.config.timings.reconcileAgreedMs = 600_000;
  const sendForeign = async (): Promise<void> => {
    const hash = await chain
      .walletClient(chain.relayer)
      .sendTransaction({ to: chain.admin.address, value: 1n });
    await chain.publicClient.waitForTransactionReceipt({ hash });
  };
  for (const total of [1, 2]) {
    await sendForeign();
    await until(async () => {
      await reconcile(now);
      return (await nonces())[1]?.detail["count"] === total;
    }, 30_000);
    t.equal((await nonces()).length, 2);
    t.equal(rings(), 2);
  }
  await assertLedgerEqualsChain(t, now);
});

t.test("each network times its own lanes, whose keys and nonces are the same", async (t) => {
  const other = await testChain(t, { chainId: 5042 });
  const world = await testApp(t, {
    timings: RECONCILIATION_TIMINGS,
    env: { NETWORKS: "eip155:5042002,eip155:5042", RPC_URL_5042: other.rpcUrl },
  });
  const { app, chain, config } = world;
  const both = [chain, other];
  for (const each of both) await reconcile({ app, chain: each });
  const hashes = await Promise.all(
    both.map((each) =>
      each.walletClient(chain.relayer).sendTransaction({ to: chain.admin.address, value: 1n }),
    ),
  );
  for (const [index, each] of both.entries()) {
    const hash = hashes[index] ?? "0x";
    await each.publicClient.waitForTransactionReceipt({ hash });
    await each.testClient.mine({ blocks: 5 });
  }
  const noted = async () => {
    const { rows } = await world.database.pool.query<{ chain: string }>(
      "SELECT chain_id::text AS chain FROM ledger_differences WHERE kind = 'relayer_nonce' ORDER BY 1",
    );
    return rows.map((row) => Number(row.chain));
  };
  const WAIT_MS = 300;
  await reconcile(world);
  await delay(WAIT_MS);
  config.timings.reconcileAbsentMs = WAIT_MS;
  // Its first look, however long the other network has lacked the same nonce of the same key.
  await reconcile({ app, chain: other });
  t.same(await noted(), []);
  await reconcile(world);
  t.same(await noted(), [chain.chainId]);
  await until(async () => {
    await reconcile({ app, chain: other });
    return (await noted()).length === 2;
  }, 30_000);

  const lane = chain.relayer.address.toLowerCase();
  const close = (openMs: number) =>
    closeLaneDifference(app.prisma, chain.chainId, { lane, openMs });
  t.equal(await close(600_000), false, "not before it was open for so long, in any process");
  t.equal(await close(0), true);
});

t.test("a hold after a restore applies to all replicas, whenever they start", async (t) => {
  const chain = await testChain(t);
  const before = await testDatabase(t);
  const ctx = await reconciliationWorld(t, { chain, database: before, dailyLimit: "10" });
  t.equal((await spend(ctx, "1")).statusCode, 200);
  await reconcile(ctx);
  await ctx.app.close();
  const backup = await copyOf(t, before);
  const later = await testApp(t, { chain, database: before, timings: RECONCILIATION_TIMINGS });
  t.equal((await spend({ ...ctx, ...later }, "7")).statusCode, 200);
  await later.app.close();

  const { pool } = backup;
  // Stops all reading until the test allows it.
  const stopReading = () =>
    pool.query("UPDATE ledger_cursors SET lease_owner = 'x', lease_until = now() + interval '1 h'");
  await stopReading();
  const first = {
    ...ctx,
    ...(await testApp(t, { chain, database: backup, timings: RECONCILIATION_TIMINGS })),
  };
  t.match((await spend(first, "4")).json(), { code: "chain_unavailable" });
  const payer = privateKeyToAccount(generatePrivateKey());
  await chain.mint(payer.address, usdc);
  const payment = await signedPayment({ chain, payer, payTo: ctx.payee });
  t.match(
    await post(first.app, "settle", payment),
    { success: true },
    "its transaction would hide the sign of the restore",
  );

  const spendOn = async ({ url }: Replica): Promise<unknown> => {
    const answer = await fetch(`${url}/api/agents/spend`, {
      method: "POST",
      headers: ctx.agent.headers,
      body: JSON.stringify({ recipient: ctx.payee, amount: "4" }),
    });
    return ((await answer.json()) as { code: string }).code;
  };
  const killed = await startReplica(t, first);
  t.equal(
    await spendOn(killed),
    "chain_unavailable",
    "a replica that starts during the hold respects it",
  );
  killed.child.kill("SIGKILL");
  await killed.ended;
  const second = await startReplica(t, first);
  t.equal(await spendOn(second), "chain_unavailable", "one that starts again does too");
  t.match((await spend(first, "4")).json(), { code: "chain_unavailable" });

  await pool.query("UPDATE ledger_cursors SET lease_until = now()");
  await until(async () => (await spendOn(second)) !== "chain_unavailable", 20_000);
  t.equal(await spendOn(second), "daily_limit_exceeded", "the payment of 7 counts");
  t.match((await spend(first, "4")).json(), { code: "daily_limit_exceeded" }, "lifted for all");
  t.equal((await spend(first, "1")).statusCode, 200);
  second.child.kill("SIGTERM");
  await second.ended;
  const { rows } = await pool.query("SELECT hold_until_block FROM ledger_cursors");
  t.same(rows, [{ hold_until_block: null }], "the same sign does not begin another hold");

  // Nobody compared in time: the engine's transaction begins the hold.
  await reconcile(first);
  await stopReading();
  await pool.query("UPDATE relayer_lanes SET next_nonce = next_nonce + 2");
  await chain.testClient.mine({ blocks: 1 });
  t.match(
    (await spend(first, "1")).json(),
    { code: "chain_unavailable", detail: /behind the chain/ },
    "also on a replica that has not compared since",
  );
  await reconcile(first);
  t.match((await spend(first, "1")).json(), { code: "chain_unavailable" });
  await pool.query("UPDATE relayer_lanes SET next_nonce = next_nonce - 2");
  await pool.query("UPDATE ledger_cursors SET lease_until = now()");
  await reconcile(first);
  t.equal((await spend(first, "1")).statusCode, 200);

  // Another replica has read past the block, and this one cannot read.
  const { chainId } = chain;
  await reconcile(first);
  await pool.query("UPDATE ledger_cursors SET hold_until_block = next_block - 1");
  await pool.query(`CREATE FUNCTION no_lease() RETURNS TRIGGER LANGUAGE plpgsql AS
    $$ BEGIN RAISE EXCEPTION 'no lease'; END; $$`);
  await pool.query(`CREATE TRIGGER no_lease BEFORE UPDATE OF lease_owner ON ledger_cursors
    FOR EACH ROW EXECUTE FUNCTION no_lease()`);
  await t.rejects(first.app.reconciliation.read(chainId), /no lease/);
  await pool.query("DROP FUNCTION no_lease CASCADE");
  t.match(
    (await spend(first, "1")).json(),
    { code: "daily_limit_exceeded" },
    "the hold is lifted anyway",
  );

  // A comparison from before a newer hold does not lift that one.
  const key = { chainId, asset: chain.usdc.toLowerCase() as Address };
  const { prisma } = first.app;
  await beginHold(prisma, key, 10n ** 6n, []);
  const old = (await readHold(first.app.pool, key))?.generation ?? 0n;
  await beginHold(prisma, key, 2n * 10n ** 6n, []);
  await pool.query("UPDATE ledger_cursors SET next_block = 1500000");
  t.notOk(await liftHold(prisma, key, old), "not read that far");
  await pool.query("UPDATE ledger_cursors SET next_block = 2000001");
  t.notOk(await liftHold(prisma, key, old), "another hold");
  t.ok(await liftHold(prisma, key, old + 1n));
});

t.test("a hold that begins before the first reading, beside the engine", async (t) => {
  const { app, chain, database } = await reconciliationWorld(t);
  const { pool } = database;
  const { prisma } = app;
  const { chainId } = chain;
  const key = { chainId, asset: chain.usdc.toLowerCase() as Address };
  // A lane leased by a replica that does not exist.
  const lane = { chainId, address: `0x${"ab".repeat(20)}` };
  await pool.query(
    `INSERT INTO relayer_lanes (chain_id, address, lease_owner, lease_epoch, lease_until, next_nonce, looked_nonce)
     VALUES ($1, $2, 'x', 1, now() + interval '1 h', 9, 12)`,
    [chainId, lane.address],
  );
  t.ok(await lowerNextNonce(pool, { ...lane, owner: "x", epoch: 1n }, 3n), "the chain was reset");
  await pool.query(
    `INSERT INTO settlements (from_address, chain_id, asset, nonce, id, kind, to_address, value, valid_after, valid_before,
                              signature, relay, status, lane_address, lane_epoch)
     VALUES ($1, $2, $3, $4, 'tx_1', 'facilitated', $1, 1, 0, 4102444800, '\\x00', true, 'queued', $1, 1)`,
    [lane.address, chainId, key.asset, `0x${"00".repeat(32)}`],
  );
  await pool.query("DELETE FROM ledger_cursors");
  await pool.query("UPDATE relayer_lanes SET next_nonce = 5 WHERE address = $1", [lane.address]);
  const held = await readHold(app.pool, key);
  const generation = held?.generation ?? 0n;
  t.match(
    held,
    { untilBlock: SOME_BLOCK, nextBlock: SOME_BLOCK },
    "a jump of the lane's nonce begins a new hold",
  );
  await placeHold(prisma, key, { generation, untilBlock: 7n });
  t.match(await readHold(app.pool, key), { untilBlock: 7n, nextBlock: 7n });
  t.notOk(await liftHold(prisma, key, generation), "that block is still to be read");

  // Locks like the engine's transaction: first the lane, then the cursor. The comparison waits for it, and it waits
  // for nothing.
  const engine = await pool.connect();
  t.teardown(() => engine.release(true));
  await engine.query("BEGIN");
  await engine.query("SELECT 1 FROM relayer_lanes WHERE address = $1 FOR UPDATE", [lane.address]);
  const begun = beginHold(prisma, key, 8n, [{ address: lane.address, used: 9n }]);
  begun.catch(() => undefined);
  await until(async () => {
    const { rows } = await pool.query(
      "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'",
    );
    return rows.length > 0;
  });
  await engine.query("UPDATE relayer_lanes SET next_nonce = 7 WHERE address = $1", [lane.address]);
  await engine.query("COMMIT");
  await begun;
  t.match(await readHold(app.pool, key), { untilBlock: SOME_BLOCK }, "neither update is lost");
});

t.test("a failed comparison is retried; one overtaken by a promotion has no effect", async (t) => {
  let promote = (): void => undefined;
  let isSilent = true;
  let used = 5n;
  let row = { untilBlock: null as bigint | null, generation: 0n, nextBlock: 8n };
  let calls = 0;
  let nextNonce = 5n;
  let afterRow = (): void => undefined;
  let during = (): void => undefined;
  const hold = new RestoreHold({
    onPromotion: (again) => (promote = again),
    lanes: async () => {
      const lane = { address: "0x", nextNonce, lookedNonce: 0n };
      afterRow();
      return [lane];
    },
    usedOnChain: async () => {
      calls += 1;
      if (isSilent) throw new Error("silent");
      const seen = used;
      during();
      return seen;
    },
    head: async () => 10n,
    read: async () => row,
    begin: async (untilBlock) => void (row = { ...row, untilBlock, generation: 1n }),
    place: async () => undefined,
    lift: async () => true,
    log: { warn: () => undefined },
  });
  await t.rejects(hold.assertOver(), { code: "chain_unavailable" });
  isSilent = false;
  await hold.assertOver();
  const before = calls;
  await hold.assertOver();
  t.equal(calls, before, "no further calls");
  // The lane sends between the read of its row and the chain's response.
  afterRow = () => {
    afterRow = () => undefined;
    used = nextNonce += 1n;
  };
  promote();
  await hold.assertOver();
  t.equal(row.untilBlock, null, "a working lane is no sign");
  isSilent = true;
  promote();
  await t.rejects(hold.assertOver(), { code: "chain_unavailable" });
  isSilent = false;
  // The comparison in progress saw the database before the promotion.
  during = () => {
    during = () => undefined;
    used = 7n;
    promote();
  };
  await t.rejects(hold.assertOver(), { code: "chain_unavailable" });
  t.equal(row.untilBlock, 10n, "the hold begins");
});

t.test("lost rows are restored, however they were lost", async (t) => {
  const ctx = await reconciliationWorld(t, { dailyLimit: "5" });
  const { rows } = await ctx.database.pool.query<{ next_block: string }>(
    "SELECT next_block FROM ledger_cursors",
  );
  t.equal((await spend(ctx, "3")).statusCode, 200);
  await reconcile(ctx);
  await ctx.database.pool.query("DELETE FROM settlements");
  await ctx.database.pool.query("DELETE FROM payments");
  await ctx.database.pool.query("UPDATE agents SET window_sum = 0");
  // Reading again from a block is one statement (docs/operations/ledger-and-chain.md).
  await ctx.database.pool.query("UPDATE ledger_cursors SET next_block = $1, last_hash = NULL", [
    rows[0]?.next_block,
  ]);
  await reconcile(ctx);
  await assertLedgerEqualsChain(t, ctx);
  t.match(await differences(ctx), [{ kind: "payment_unknown", repaired: true }]);
  t.match((await spend(ctx, "3")).json(), { code: "daily_limit_exceeded" });
});

/** Copies a database, like `pg_dump` and restore. */
async function copyOf(
  t: Parameters<typeof testDatabase>[0],
  { url, pool }: TestDatabase,
): Promise<TestDatabase> {
  const name = `copy_${randomBytes(6).toString("hex")}`;
  const admin = new Client({ connectionString: process.env["PURSER_TEST_POSTGRES_URL"] });
  await admin.connect();
  await pool.query("SELECT 1");
  const from = new URL(url).pathname.slice(1);
  // A template database must have no connections; the test's own pool reconnects.
  await admin.query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", [
    from,
  ]);
  await admin.query(`CREATE DATABASE ${name} TEMPLATE ${from}`);
  await admin.end();
  const target = new URL(url);
  target.pathname = `/${name}`;
  const { Pool } = await import("pg");
  const copy = new Pool({ connectionString: target.href, max: 5 });
  copy.on("error", () => undefined);
  t.teardown(async () => {
    await copy.end();
    const dropper = new Client({ connectionString: process.env["PURSER_TEST_POSTGRES_URL"] });
    await dropper.connect();
    await dropper.query(`DROP DATABASE ${name} WITH (FORCE)`);
    await dropper.end();
  });
  return { url: target.href, pool: copy };
}
