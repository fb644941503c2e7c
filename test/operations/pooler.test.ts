// Goal: behind a transaction pooler (the real PgBouncer) the service does all it does, or says at its start what is missing.
// Tier: full (starts whole deployments).
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { Client, Pool } from "pg";
import t, { type Test } from "tap";
import { privateKeyToAccount, privateKeyToAddress, generatePrivateKey } from "viem/accounts";
import { createPool } from "../../server/infra/db/pool.ts";
import { checkDatabase } from "../../server/infra/db/settings.ts";
import { freePort } from "../../server/local/free-port.ts";
import { post, signedPayment } from "../facilitator/payments.ts";
import { testApp, testEnvironment } from "../helpers/app.ts";
import { asOwner, createAgent, signIn } from "../helpers/owner.ts";
import { testDatabase } from "../helpers/postgres.ts";
import { until } from "../helpers/until.ts";
import { checkLedger, usdcOf } from "../spending/ledger.helper.ts";

const found = spawnSync("pgbouncer", ["--version"], { encoding: "utf8" });
const version = /PgBouncer (\S+)/.exec(found.stdout ?? "")?.[1];
const skip = version === undefined && "PgBouncer is not installed";
console.error(`# pooler: ${version === undefined ? skip : `PgBouncer ${version}`}`);

/** Fewer than one process asks for: sessions are shared. */
const SERVER_CONNECTIONS = 4;

/** In front of all databases of the server that the URL names; answers the same URL, through it. */
async function pgbouncer(t: Test, url: string, settings: string[] = []): Promise<string> {
  const target = new URL(url);
  const dir = mkdtempSync(join(tmpdir(), "purser-pooler-"));
  const port = await freePort();
  const users = join(dir, "users.txt");
  writeFileSync(users, `"${target.username}" "${decodeURIComponent(target.password)}"\n`);
  const lines = [
    "[databases]",
    `* = host=${target.hostname} port=${target.port}`,
    "[pgbouncer]",
    "listen_addr = 127.0.0.1",
    `listen_port = ${port}`,
    "unix_socket_dir =",
    "auth_type = scram-sha-256",
    `auth_file = ${users}`,
    "pool_mode = transaction",
    "max_client_conn = 200",
    `default_pool_size = ${SERVER_CONNECTIONS}`,
    ...settings,
  ];
  const file = join(dir, "pgbouncer.ini");
  writeFileSync(file, `${lines.join("\n")}\n`);
  for (const path of [users, file]) chmodSync(path, 0o644);
  chmodSync(dir, 0o755);
  // It does not run as root.
  const ids = process.getuid?.() === 0 ? { uid: 65_534, gid: 65_534 } : {};
  const child = spawn("pgbouncer", [file], {
    stdio: ["ignore", "ignore", "pipe"],
    cwd: "/",
    ...ids,
  });
  let said = "";
  child.stderr.on("data", (text: Buffer) => (said += text.toString()));
  t.teardown(async () => {
    const ended = once(child, "exit");
    if (child.exitCode === null) {
      child.kill("SIGINT");
      const limit = setTimeout(() => child.kill("SIGKILL"), 3_000);
      await ended;
      clearTimeout(limit);
    }
    rmSync(dir, { recursive: true, force: true });
  });
  await until(() => {
    if (child.exitCode !== null) throw new Error(`PgBouncer ended: ${said}`);
    return /process up/.test(said);
  });
  target.port = String(port);
  return target.href;
}

/** As docs/operations/pooler.md says. */
const ROLE_SETTINGS = [
  "timezone = 'UTC'",
  "statement_timeout = '5s'",
  "lock_timeout = '2s'",
  "idle_in_transaction_session_timeout = '8s'",
];

t.test("what breaks through it", { skip }, async (t) => {
  const database = await testDatabase(t);
  const url = await pgbouncer(t, database.url);
  const pooled = (options: object) => {
    const pool = new Pool({ connectionString: url, max: 12, ...options });
    pool.on("error", () => undefined);
    t.teardown(() => pool.end());
    return pool;
  };
  await t.rejects(
    pooled({ options: "-c statement_timeout=5000" }).query("SELECT 1"),
    /unsupported startup parameter/,
    "settings of a session",
  );
  const pool = pooled({});
  const crowd = (sql: Pick<Pool, "query">) =>
    Promise.allSettled(
      Array.from({ length: 60 }, (_, index) =>
        sql.query({
          name: `question-${index % 3}`,
          text: `SELECT $1::int + ${index % 3}, pg_sleep(0.01)`,
          values: [index],
        }),
      ),
    ).then((all) => all.flatMap((one) => (one.status === "rejected" ? [String(one.reason)] : [])));
  t.match(
    (await crowd(pool))[0],
    /prepared statement "question-\d" (does not|already) exist/,
    "named statements",
  );
  const ours = createPool(url, { isPooled: true, maxConnections: 12 });
  t.teardown(() => ours.end());
  t.same(await crowd(ours), [], "ours have no names there");
  const heard: string[] = [];
  const listener = new Client({ connectionString: url });
  await listener.connect();
  listener.on("notification", ({ payload }) => heard.push(payload ?? ""));
  await listener.query("LISTEN news");
  await database.pool.query("SELECT pg_notify('news', 'something')");
  await sleep(300); // For what must not come.
  t.same(heard, [], "LISTEN hears nothing");
  await listener.end();
});

t.test("refused at the start, with what to do", { skip }, async (t) => {
  const database = await testDatabase(t);
  const plain = await pgbouncer(t, database.url);
  const silent = await pgbouncer(t, database.url, ["ignore_startup_parameters = options"]);
  const fit = (databaseUrl: string, databasePooledUrl?: string) =>
    checkDatabase({ databaseUrl, databasePooledUrl });
  t.same(await fit(database.url), [
    "The database runs with fsync or full_page_writes off. If its machine fails, confirmed payments can be lost and paid again. Turn both on.",
    'The database\'s default is synchronous_commit=off, which confirms a commit before it is safe. Our connections use "on"; set it for all others.',
  ]);
  await t.rejects(fit(plain), /Set DATABASE_DIRECT_URL to Postgres itself/);
  await t.rejects(fit(silent), /Set DATABASE_DIRECT_URL/, "also where it says nothing");
  await t.rejects(fit(plain, plain), /DATABASE_DIRECT_URL leads to a connection pooler/);
  const other = await testDatabase(t);
  await t.rejects(fit(other.url, plain), /different databases/);
  await t.rejects(fit(database.url, plain), {
    message:
      /ALTER ROLE purser IN DATABASE test_\w+ SET statement_timeout = '5000ms'; .*SET synchronous_commit = 'on';/,
  });
  // The whole program says it, and ends.
  const env = testEnvironment({
    databaseUrl: plain,
    chain: {
      chainId: 5_042_002,
      rpcUrl: "http://127.0.0.1:9",
      relayerPrivateKey: generatePrivateKey(),
    } as never,
    port: await freePort(),
  });
  const child = spawnSync(process.execPath, ["--import=tsx", "server/main.ts"], {
    env: { PATH: process.env["PATH"] ?? "", ...env },
    encoding: "utf8",
    timeout: 60_000,
  });
  t.equal(child.status, 1);
  t.match(child.stderr, /^Purser could not start: DATABASE_URL leads to a connection pooler/m);
});

t.test("everything works through it", { skip }, async (t) => {
  const database = await testDatabase(t);
  const url = await pgbouncer(t, database.url);
  const name = new URL(url).pathname.slice(1);
  for (const setting of [...ROLE_SETTINGS, "synchronous_commit = 'on'"])
    await database.pool.query(`ALTER ROLE purser IN DATABASE ${name} SET ${setting}`);
  await checkDatabase({ databaseUrl: database.url, databasePooledUrl: url });
  // One replica past the pooler, which sells; and one behind it, which buys.
  const seller = await testApp(t, { database, listen: true });
  const { chain } = seller;
  const ctx = await testApp(t, {
    database,
    chain,
    listen: true,
    env: {
      DATABASE_URL: url,
      DATABASE_DIRECT_URL: database.url,
      FETCH_PRIVATE_ORIGINS: seller.baseUrl,
    },
  });
  const { app } = ctx;
  const owner = await signIn(ctx);
  const payee = privateKeyToAccount(generatePrivateKey()).address;
  const stranger = privateKeyToAccount(generatePrivateKey()).address;
  const demo = privateKeyToAddress(chain.relayerPrivateKey);
  const agent = await createAgent(ctx, owner, { dailyLimit: "10", allowlist: [payee, demo] });
  await chain.mint(agent.walletAddress, 9_000_000n);

  const stream = await fetch(`${ctx.baseUrl}/api/events`, { headers: { cookie: owner.cookie } });
  let told = "";
  const reading = stream.body
    ?.pipeThrough(new TextDecoderStream())
    .pipeTo(new WritableStream({ write: (text) => void (told += text) }));
  reading?.catch(() => undefined);
  const ask = (path: string, body: object, headers: object = {}) =>
    app.inject({
      method: "POST",
      url: `/api/agents/${path}`,
      headers: { ...agent.headers, ...headers },
      payload: JSON.stringify(body),
    });

  const spends = await Promise.all(
    Array.from({ length: 16 }, (_, index) =>
      ask(
        "spend",
        { recipient: payee, amount: "0.01" },
        { "idempotency-key": `key-${index % 12}` },
      ),
    ),
  );
  const paid = spends.filter(({ statusCode }) => statusCode === 200);
  t.ok(paid.length >= 12, `${paid.length} answers of 16 calls with 12 keys`);
  t.equal(new Set(paid.map((answer) => answer.json<{ paymentId: string }>().paymentId)).size, 12);
  t.equal(await usdcOf(ctx, payee), 120_000n, "each key once");

  const fetched = await ask("x402-fetch", { url: `${seller.baseUrl}/api/arc-stats` });
  t.match(fetched.json(), { paid: true, status: 200, amountPaid: "0.001" });

  const wanted = { recipient: stranger, amount: "0.5", requestApproval: true };
  const asked = await ask("spend", wanted);
  t.equal(asked.statusCode, 202, asked.body);
  const { approvalId, idempotencyKey } = asked.json<Record<string, string>>();
  const approved = await asOwner(app, owner, {
    method: "POST",
    url: `/api/approvals/${approvalId}/approve`,
    body: {},
  });
  t.equal(approved.statusCode, 200, approved.body);
  const lifted = await ask("spend", wanted, { "idempotency-key": idempotencyKey });
  t.equal(lifted.statusCode, 200, lifted.body);
  t.equal(await usdcOf(ctx, stranger), 500_000n);

  const payer = privateKeyToAccount(generatePrivateKey());
  await chain.mint(payer.address, 1_000_000n);
  t.match(await post(app, "settle", await signedPayment({ chain, payer, payTo: stranger })), {
    success: true,
  });

  await until(() => told.includes(approvalId ?? "-") && told.includes('"settled"'));
  t.pass("events arrive");
  await app.jobs.enqueue("sweep-unsigned");
  await until(async () => {
    const { rows } = await database.pool.query(
      "SELECT 1 FROM graphile_worker.jobs WHERE task_identifier = 'sweep-unsigned' AND run_at <= now()",
    );
    return rows.length === 0;
  });
  t.pass("jobs are done");
  const { rows } = await database.pool.query<{ names: string[] }>(
    `SELECT array_agg(DISTINCT application_name) AS names FROM pg_stat_activity WHERE datname = current_database()`,
  );
  t.ok(rows[0]?.names.includes("purser engine"), "the engine goes past it");
  const complaints = ctx.logs.filter(
    (line) => (JSON.parse(line) as { level: number }).level >= 40 && !line.includes("Agent busy"),
  );
  t.same(complaints, [], "and nothing is complained about");
  await checkLedger(t, ctx, { agentId: agent.id, payee });
});
