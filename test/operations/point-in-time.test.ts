// Goal: a database that went back in time (restored to a point, or failed over to a standby that was behind)
// learns the missing payments from the chain before any agent pays again.
// Tier: full (builds a cluster of Postgres servers).
import { chmodSync, mkdirSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import t from "tap";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { post, signedPayment } from "../facilitator/payments.ts";
import {
  assertLedgerEqualsChain,
  reconciliationWorld,
  differences,
  overview,
  reconcile,
  spend,
  untilRead,
} from "../reconciliation/world.ts";
import { testApp } from "../helpers/app.ts";
import { testChain } from "../helpers/chain.ts";
import { signIn } from "../helpers/owner.ts";
import { until } from "../helpers/until.ts";
import { usdcOf } from "../spending/ledger.helper.ts";
import { newFolder, Server, urlOf } from "./cluster.ts";

const print = (text: string): void => console.error(`# point in time: ${text}`);

t.test("a base backup and WAL, restored to a point before the last payments", async (t) => {
  const archive = join(newFolder(), "archive");
  mkdirSync(archive);
  // Postgres' own user writes to this folder.
  chmodSync(archive, 0o777);
  t.teardown(() => rmSync(archive, { recursive: true, force: true }));
  const server = await Server.make(t, [
    "archive_mode=on",
    `archive_command=test ! -f '${archive}/%f' && cp '%p' '${archive}/%f'`,
  ]);
  const chain = await testChain(t);
  const before = { url: server.url, pool: server.pool };
  const ctx = await reconciliationWorld(t, { chain, database: before, dailyLimit: "10" });
  t.equal((await spend(ctx, "1")).statusCode, 200);

  const backup = newFolder();
  await server.copyTo(backup);
  t.equal((await spend(ctx, "2")).statusCode, 200, "only in the WAL");
  await reconcile(ctx);
  const point = await server.pool.query<{ at: string }>("SELECT clock_timestamp()::text AS at");
  await sleep(20); // Later payments must have a later time.
  const late = await ctx.app.inject({
    method: "POST",
    url: "/api/agents/spend",
    headers: { ...ctx.agent.headers, "idempotency-key": "after the point" },
    payload: JSON.stringify({ recipient: ctx.payee, amount: "4" }),
  });
  t.equal(late.statusCode, 200, late.body);
  const payer = privateKeyToAccount(generatePrivateKey());
  const merchant = privateKeyToAccount(generatePrivateKey()).address;
  await chain.mint(payer.address, 1_000_000n);
  const payment = await signedPayment({ chain, payer, payTo: merchant });
  t.match(await post(ctx.app, "settle", payment), { success: true });
  await ctx.app.close();
  const { rows: last } = await server.pool.query<{ name: string }>(
    "SELECT pg_walfile_name(pg_switch_wal()) AS name",
  );
  await until(() => readdirSync(archive).includes(last[0]?.name ?? "-"), 20_000);
  await server.kill();

  const startedMs = performance.now();
  writeFileSync(join(backup, "postgres", "recovery.signal"), "");
  const restored = await Server.at(t, backup, server.password);
  await restored.start([
    `restore_command=cp '${archive}/%f' '%p'`,
    `recovery_target_time=${point.rows[0]?.at}`,
    "recovery_target_action=promote",
  ]);
  await until(async () => {
    const { rows } = await restored.pool.query("SELECT 1 WHERE NOT pg_is_in_recovery()");
    return rows.length === 1;
  }, 20_000);
  print(`restored in ${Math.round(performance.now() - startedMs)} ms`);
  const { rows: known } = await restored.pool.query(
    "SELECT amount::int FROM payments WHERE status = 'settled' AND kind = 'spend' ORDER BY amount",
  );
  t.same(known, [{ amount: 1_000_000 }, { amount: 2_000_000 }], "later payments are missing");

  // A real restore takes longer than the reader's lease from before the backup, which runs for half a minute.
  await restored.pool.query("UPDATE ledger_cursors SET lease_until = now()");
  const again = await testApp(t, { chain, database: { url: restored.url, pool: restored.pool } });
  const owner = await signIn(again, ctx.owner.account);
  const now = { ...ctx, ...again, owner };
  t.match(
    (await spend(now, "4")).json(),
    { code: "chain_unavailable" },
    "payments are refused at first",
  );
  await untilRead(now, async () =>
    (await differences(now)).some(({ kind }) => kind === "relayer_nonce"),
  );
  print(`ledger equals chain after ${Math.round(performance.now() - startedMs)} ms`);
  const unknown = (await differences(now)).filter(({ kind }) => kind === "payment_unknown");
  t.match(unknown, [{ repaired: true, detail: { amount: "4000000" } }]);
  t.match(await overview(now), { ledger: [{ equalsChain: true }] });
  await assertLedgerEqualsChain(t, now);
  t.match(
    (await again.app.inject({ url: "/api/agents/me", headers: ctx.agent.headers })).json(),
    { limits: { spent: "7", remaining: "3" } },
    "limits include the later payments",
  );
  t.match((await spend(now, "4")).json(), { code: "daily_limit_exceeded" });
  await post(again.app, "settle", payment);
  t.equal(await usdcOf(now, merchant), 1_000n, "an authorization is used once");
  t.equal((await spend(now, "3")).statusCode, 200);
  await reconcile(now);
  await assertLedgerEqualsChain(t, now);
});

t.test("a standby that was behind is promoted while the service runs", async (t) => {
  const primary = await Server.make(t);
  const standby = await primary.follower(t, "other");
  const chain = await testChain(t);
  const database = { url: urlOf(primary, standby), pool: primary.pool };
  const ctx = await reconciliationWorld(t, { chain, database, dailyLimit: "10" });
  t.equal((await spend(ctx, "1")).statusCode, 200);
  await reconcile(ctx);
  const { rows } = await primary.pool.query<{ at: string }>(
    "SELECT pg_current_wal_lsn()::text AS at",
  );
  await until(async () => {
    const there = await standby.pool.query<{ done: boolean }>(
      "SELECT pg_last_wal_replay_lsn() >= $1::pg_lsn AS done",
      [rows[0]?.at],
    );
    return there.rows[0]?.done === true;
  });
  await standby.kill();
  t.equal((await spend(ctx, "4")).statusCode, 200, "the standby does not receive it");
  await primary.kill();
  await standby.restart();
  await standby.promote();

  const now = { ...ctx, database: { ...database, pool: standby.pool } };
  let early = await spend(now, "8");
  await until(async () => {
    if (early.json<{ code: string }>().code !== "service_unavailable") return true;
    await sleep(100);
    early = await spend(now, "8");
    return false;
  }, 20_000);
  t.match(
    early.json(),
    { code: "chain_unavailable" },
    "the rolling window lacks the payment of 4, so payments are refused at first",
  );
  await untilRead(now, async () =>
    (await differences(now)).some(({ kind, repaired }) => kind === "payment_unknown" && repaired),
  );
  t.match((await spend(now, "8")).json(), { code: "daily_limit_exceeded" });
  t.equal((await spend(now, "5")).statusCode, 200);
  await untilRead(now, async () => {
    const { ledger } = await overview(now);
    return ledger[0]?.equalsChain === true;
  });
  await assertLedgerEqualsChain(t, now);
});
