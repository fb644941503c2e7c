// Goal: with a read replica, lists and sums are never older than the primary, never fail because of the replica, and
// nothing that decides about money reads it.
// Runs alone
// Tier: full (builds a cluster of Postgres servers).
import t, { type Test } from "tap";
import { getAddress } from "viem";
import { checkDatabase, UnfitDatabase } from "../../server/infra/db/settings.ts";
import { checkDatabase as examine, openReadOnly } from "../../server/doctor/database.ts";
import { loadConfig } from "../../server/config.ts";
import { testApp, testEnvironment, type TestApp } from "../helpers/app.ts";
import { spendAs } from "../helpers/call.ts";
import { randomAddress } from "../helpers/engine.ts";
import { createAgent, signIn } from "../helpers/owner.ts";
import { until } from "../helpers/until.ts";
import { Server } from "./cluster.ts";

const MONEY = 10n ** 8n;

/** A metric without labels, or with exactly these. */
async function metric({ app }: TestApp, name: string): Promise<number | undefined> {
  const line = (await app.metrics.metrics()).split("\n").find((one) => one.startsWith(`${name} `));
  return line === undefined ? undefined : Number(line.slice(name.length + 1));
}
const readsOn = async (ctx: TestApp, server: "primary" | "replica"): Promise<number> =>
  (await metric(ctx, `purser_reads_total{server="${server}"}`)) ?? 0;
const isUsed = async (ctx: TestApp): Promise<boolean> =>
  (await metric(ctx, "purser_read_replica_used")) === 1;

/** The statements of the service that the standby has logged, without those about its own position. */
const statementsOn = (standby: Server): string[] =>
  standby
    .log()
    .split("\n")
    .filter((line) => line.includes("execute") && /"?payments"? /.test(line));

async function servers(t: Test) {
  const primary = await Server.make(t);
  const standby = await primary.follower(t, "reads");
  await standby.restartWith(["log_statement=all"]);
  const ctx = await testApp(t, {
    database: { url: primary.url, pool: primary.pool },
    env: { DATABASE_READ_URL: standby.url },
  });
  const owner = await signIn(ctx);
  const payee = getAddress(randomAddress());
  const agent = await createAgent(ctx, owner, { dailyLimit: "1.00", allowlist: [payee] });
  await ctx.chain.mint([agent.walletAddress], MONEY);
  const spend = (amount: string) => spendAs(ctx.app, agent, { recipient: payee, amount });
  const read = async (url: string, headers = owner.headers) => {
    const answer = await ctx.app.inject({ url, headers });
    t.equal(answer.statusCode, 200, `${url} ${answer.body.slice(0, 300)}`);
    return answer;
  };
  const listed = async () =>
    (await read(`/api/agents/${agent.id}/payments`)).json<{ items: { id: string }[] }>().items
      .length;
  await until(() => isUsed(ctx));
  return { primary, standby, ctx, owner, agent, spend, read, listed };
}

t.test("lists and sums", { timeout: 280_000 }, async (t) => {
  const { primary, standby, ctx, agent, spend, read, listed } = await servers(t);

  await t.test("come from the replica, and have what was just written", async (t) => {
    const days = "from=2020-01-01&to=2100-01-01";
    for (let paid = 1; paid <= 3; paid += 1) {
      t.equal((await spend("0.10")).statusCode, 200);
      t.equal(await listed(), paid, "the payment of a moment ago");
    }
    const statements = statementsOn(standby).length;
    for (const url of [
      "/api/overview",
      "/api/payments?search=words",
      "/api/spending?by=payee",
      `/api/exports/movements.csv?${days}`,
      `/api/exports/ledger.beancount?${days}`,
      "/api/merchant",
      "/api/merchant/settlements",
    ]) {
      const earlier = await readsOn(ctx, "replica");
      // On a busy machine the standby may be too late for one read.
      await until(async () => {
        await read(url);
        return (await readsOn(ctx, "replica")) > earlier;
      });
    }
    t.ok(statementsOn(standby).length > statements, "the standby itself executed them");
  });

  await t.test("a spend and the agent's own state never read it", async (t) => {
    const reads = await readsOn(ctx, "replica");
    const statements = statementsOn(standby).length;
    t.equal((await spend("0.10")).statusCode, 200);
    await read("/api/agents/me", agent.headers);
    t.equal(await readsOn(ctx, "replica"), reads);
    t.equal(statementsOn(standby).length, statements);
  });

  await t.test(
    "while the replica stands still, the primary is read, and limits hold",
    async (t) => {
      await standby.pool.query("SELECT pg_wal_replay_pause()");
      // 0.40 of 1.00 is spent.
      for (let paid = 5; paid <= 10; paid += 1) {
        t.equal((await spend("0.10")).statusCode, 200);
        t.equal(await listed(), paid, "not the old state");
      }
      t.match((await spend("0.10")).json(), { code: "daily_limit_exceeded" });
      t.match((await read("/api/agents/me?detail=full", agent.headers)).json(), {
        limits: { remaining: "0" },
      });
      t.ok((await readsOn(ctx, "primary")) >= 6);
      await until(async () => !(await isUsed(ctx)), 15_000);
      t.ok(((await metric(ctx, "purser_read_replica_lag_seconds")) ?? 0) > 5);
      t.ok(
        ctx.logs.some((line) => /read replica is \d+ s behind; reads use the primary/.test(line)),
        "it is logged",
      );
      await standby.pool.query("SELECT pg_wal_replay_resume()");
      await until(() => isUsed(ctx), 15_000);
      const reads = await readsOn(ctx, "replica");
      await until(async () => {
        t.equal(await listed(), 11);
        return (await readsOn(ctx, "replica")) > reads;
      });
    },
  );

  await t.test(
    "a replica that is killed costs no answer, and is used when it is back",
    async (t) => {
      await standby.kill();
      t.equal(await listed(), 11);
      await until(async () => !(await isUsed(ctx)));
      t.equal(await listed(), 11);
      await standby.restart();
      await until(() => isUsed(ctx), 15_000);
      t.equal(await listed(), 11);
    },
  );

  await t.test("a replica that was promoted is not used", async (t) => {
    const config = (readUrl: string) =>
      loadConfig(
        testEnvironment({
          databaseUrl: primary.url,
          chain: ctx.chain,
          port: 3_000,
          env: { DATABASE_READ_URL: readUrl },
        }),
      );
    const doctor = async () => {
      const database = openReadOnly(primary.url);
      t.teardown(() => database.close());
      const findings = await examine(database, config(standby.url));
      return findings.find(({ check }) => check === "read replica");
    };
    t.match(await doctor(), { level: "ok", says: "follows the primary" });
    await standby.promote();
    await until(async () => !(await isUsed(ctx)));
    t.equal(await listed(), 11);
    t.match(await doctor(), { level: "wrong", says: /is not a standby/ });
    await t.rejects(
      checkDatabase(config(standby.url)),
      { name: "UnfitDatabase", message: /DATABASE_READ_URL is not a standby/ },
      "and refused at the next start",
    );
  });
});

t.test("a read URL that is no standby of the primary is refused at start", async (t) => {
  const primary = await Server.make(t);
  const other = await Server.make(t);
  const otherStandby = await other.follower(t, "reads");
  const check = (databaseReadUrl: string) =>
    checkDatabase({ databaseUrl: primary.url, databasePooledUrl: undefined, databaseReadUrl });
  await t.rejects(check(primary.url), UnfitDatabase);
  await t.rejects(check(primary.url), /DATABASE_READ_URL is not a standby/);
  await t.rejects(
    check(otherStandby.url),
    /DATABASE_READ_URL belongs to a different database system/,
  );
  await otherStandby.kill();
  t.match(await check(otherStandby.url), [/DATABASE_READ_URL cannot be reached/]);
});
