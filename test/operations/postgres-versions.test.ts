// Goal: on Postgres 15, 16 and 17 as on the bundled one, the schema applies, money moves, its statements read no big
// table, and the build before is upgraded; an older server is refused before anything is changed in it.
// Tier: full (starts other Postgres versions, where they can be had).
// Limit: 20 minutes.
// Own process (it names another database server in its environment).
import { spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { Client } from "pg";
import t, { type Test } from "tap";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { loadConfig } from "../../server/config.ts";
import { assertVersion } from "../../server/infra/db/migrate.ts";
import { createPool } from "../../server/infra/db/pool.ts";
import { ensureServerBuild, prepare } from "../../server/local/bootstrap.mjs";
import { freePort } from "../../server/local/free-port.ts";
import { bad, seededApp, spendInEveryWay } from "../conventions/hot-statements.ts";
import { recordScans } from "../conventions/plans.ts";
import { signedPayment } from "../facilitator/payments.ts";
import { testEnvironment, type TestApp } from "../helpers/app.ts";
import { callApi, spendAs } from "../helpers/call.ts";
import { testChain } from "../helpers/chain.ts";
import { createAgent, signIn } from "../helpers/owner.ts";
import { emptyDatabase } from "../helpers/postgres.ts";
import { until } from "../helpers/until.ts";
import { assertLedgerIsChain, market, PAYEE, type Market } from "../x402-client/market.ts";
import { claiming } from "./older-server.ts";
import { binariesOf, serverOf, type OtherMajor } from "./other-postgres.ts";
import { compileCommit, injector, isInHistory, PREVIOUS_COMMIT } from "./previous-build.ts";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const START_MS = 60_000;
const MAJORS: readonly OtherMajor[] = [15, 16, 17];
const SHOP = "0x0000000000000000000000000000000000005407";

for (const major of MAJORS) {
  const found = binariesOf(major);
  const skip = "missing" in found && found.missing;
  t.test(`Postgres ${major}`, { skip }, async (t) => {
    const url = await serverOf(t, "bin" in found ? found.bin : "");
    const before = process.env["PURSER_TEST_POSTGRES_URL"];
    process.env["PURSER_TEST_POSTGRES_URL"] = url;
    t.teardown(() => (process.env["PURSER_TEST_POSTGRES_URL"] = before));
    await t.test("the schema applies, and money moves", async (t) => {
      const made = await market(t);
      const { rows } = await made.database.pool.query<{ server_version: string }>(
        "SHOW server_version",
      );
      t.match(rows[0]?.server_version, new RegExp(`^${major}\\.`));
      await moveMoney(t, made);
    });
    await t.test("statements that move money read only their own rows", async (t) => {
      const { database, seeded } = await seededApp(t);
      for (const mode of ["auto", "force_generic_plan"]) {
        const address = new URL(database.url);
        address.searchParams.set("options", `-c plan_cache_mode=${mode}`);
        const pool = createPool(address.href, { maxConnections: 2 });
        const scans = recordScans(pool);
        await spendInEveryWay(t, pool, seeded);
        await pool.end();
        t.ok(scans.length > 40, `${scans.length} scans`);
        t.same(bad(scans), [], mode);
      }
    });
    const hasBefore = isInHistory(PREVIOUS_COMMIT)
      ? false
      : `the build before (${PREVIOUS_COMMIT}) is not in this clone's history`;
    await t.test("the build before is upgraded, and serves again", { skip: hasBefore }, upgrade);
  });
}

async function moveMoney(t: Test, made: Market): Promise<void> {
  const { app, agent, owner, chain } = made;
  const spend = async (amount: string) =>
    (await spendAs(app, agent, { recipient: PAYEE, amount })).json<object>();
  t.match(await spend("0.01"), { success: true });
  t.match(await spend("1000000"), { blocked: true });
  t.match(await made.fetch({ url: made.seller.url }), {
    status: 200,
    body: { paid: true, delivered: true },
  });
  await assertLedgerIsChain(t, made);

  const payer = privateKeyToAccount(generatePrivateKey());
  await chain.mint(payer.address, 1_000_000n);
  const body = await signedPayment({ chain, payer, payTo: SHOP, amount: "1000" });
  const settled = await callApi(
    app,
    { headers: { "content-type": "application/json" } },
    "POST",
    "/api/x402/settle",
    body,
  );
  t.match(settled.json(), { success: true });
  t.equal(await chain.usdcOf(SHOP), 1_000n);

  const had = await chain.usdcOf(owner.account.address);
  const path = `/api/agents/${agent.id}/withdrawals`;
  const prepared = await callApi(app, owner, "POST", `${path}/prepare`, { amount: "0.5" });
  const { order, typedData } = prepared.json<{ order: object; typedData: object }>();
  const signature = await owner.account.signTypedData(typedData as never);
  const withdrawn = await callApi(app, owner, "POST", path, { order, signature });
  t.match(withdrawn.json(), { success: true });
  t.equal((await chain.usdcOf(owner.account.address)) - had, 500_000n);
}

/** A spend through each build, one after the other on one database: before, this, and back to the one before. */
async function upgrade(t: Test): Promise<void> {
  await prepare((line) => t.comment(line), [ensureServerBuild]);
  const folder = await compileCommit(t, PREVIOUS_COMMIT);
  const chain = await testChain(t, { blockTimeSeconds: 0.5 });
  const databaseUrl = await emptyDatabase(t);
  const port = await freePort();
  const env = testEnvironment({ databaseUrl, chain, port });
  const url = `http://127.0.0.1:${port}`;
  const app = injector(url);
  const served = async (build: string, work: () => Promise<void>): Promise<void> => {
    const child = spawn(process.execPath, ["server/start.mjs", "--built"], {
      cwd: build,
      env: { PATH: process.env["PATH"], ...env },
      stdio: ["ignore", "pipe", "pipe"],
    });
    let output = "";
    for (const stream of [child.stdout, child.stderr])
      stream.on("data", (chunk: Buffer) => (output = (output + chunk.toString()).slice(-4_000)));
    const ended = once(child, "exit");
    try {
      await until(async () => {
        if (child.exitCode !== null) throw new Error(`it did not start: ${output}`);
        return (await fetch(`${url}/api/ready`).catch(() => undefined))?.status === 200;
      }, START_MS);
      await work();
    } finally {
      child.kill("SIGTERM");
      await ended;
    }
  };
  const owned = { app, config: loadConfig(env) } as unknown as TestApp;
  let agent: { headers: Record<string, string> } | undefined;
  let paid = 0n;
  const spend = async (): Promise<void> => {
    const answer = await app.inject({
      method: "POST",
      url: "/api/agents/spend",
      headers: { "content-type": "application/json", ...agent?.headers },
      payload: JSON.stringify({ recipient: PAYEE, amount: "0.01" }),
    });
    t.equal(answer.statusCode, 200, answer.body);
    paid += 10_000n;
  };
  const had = await chain.usdcOf(PAYEE);
  await served(folder, async () => {
    const owner = await signIn(owned);
    const made = await createAgent(owned, owner, { allowlist: [PAYEE] });
    await chain.mint(made.walletAddress, 1_000_000n);
    agent = made;
    await spend();
  });
  await served(ROOT, spend);
  await served(folder, spend);
  t.equal((await chain.usdcOf(PAYEE)) - had, paid, "each payment once");
}

t.test("an older server is refused before anything is applied", async (t) => {
  const server = (version: string) => ({
    query: async () => ({ rows: [{ server_version_num: version }] }),
  });
  await t.rejects(assertVersion(server("140012")), {
    message:
      "The database is Postgres 14; Purser needs Postgres 15 or newer. Nothing was changed in it",
  });
  await t.resolves(assertVersion(server("150000")));
});

t.test("the compiled service refuses an older server and changes nothing in it", async (t) => {
  await prepare((line) => t.comment(line), [ensureServerBuild]);
  const databaseUrl = await emptyDatabase(t);
  const chain = await testChain(t);
  const port = await freePort();
  const old = await claiming(t, databaseUrl, "140012");
  const child = spawn(process.execPath, ["server/start.mjs", "--built"], {
    cwd: ROOT,
    env: { PATH: process.env["PATH"], ...testEnvironment({ databaseUrl: old, chain, port }) },
    stdio: ["ignore", "ignore", "pipe"],
  });
  t.teardown(() => child.kill("SIGKILL"));
  let output = "";
  child.stderr.on("data", (data: Buffer) => (output += data.toString()));
  const [code] = (await once(child, "close")) as [number];
  t.equal(code, 1);
  t.match(output, "Purser could not start: The database is Postgres 14");
  const client = new Client({ connectionString: databaseUrl });
  await client.connect();
  const { rows } = await client.query(
    "SELECT FROM pg_class WHERE relnamespace = 'public'::regnamespace",
  );
  await client.end();
  t.equal(rows.length, 0, "no table, no function's type, nothing");
});
