// Goal: Purser runs on Postgres 15, 16 and 17 as on the embedded one, and refuses an older server before it
// changes anything.
// Tier: full (starts other Postgres versions, where the machine has them).
// Own process (it names another database server in its environment).
import { execFileSync, spawn } from "node:child_process";
import { chmodSync, chownSync, existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { once } from "node:events";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { Client } from "pg";
import t, { type Test } from "tap";
import { assertVersion } from "../../server/infra/db/migrate.ts";
import { ensureServerBuild, prepare } from "../../server/local/bootstrap.mjs";
import { freePort } from "../../server/local/free-port.ts";
import { chooseRunAs } from "../../server/local/postgres-binaries.ts";
import { testEnvironment } from "../helpers/app.ts";
import { testChain } from "../helpers/chain.ts";
import { emptyDatabase } from "../helpers/postgres.ts";
import { until } from "../helpers/until.ts";
import { claiming } from "./older-server.ts";
import { assertLedgerIsChain, market, PAYEE } from "../x402-client/market.ts";

/** Where Debian's packages install it, or where the environment says it is. */
const binariesOf = (major: number): string | undefined =>
  [process.env[`POSTGRES_BIN_${major}`], `/usr/lib/postgresql/${major}/bin`].find(
    (folder) => folder !== undefined && existsSync(join(folder, "initdb")),
  );

/** Starts an empty server of this version, and returns its address. */
async function serverOf(t: Test, bin: string): Promise<string> {
  const runAs = chooseRunAs(join(bin, "initdb"));
  const folder = mkdtempSync(join(tmpdir(), "purser-pg-"));
  chmodSync(folder, 0o700);
  if (runAs.owner) chownSync(folder, runAs.owner.uid, runAs.owner.gid);
  const port = await freePort();
  const run = (name: string, args: string[]) => runAs.wrap(join(bin, name), args);
  const data = join(folder, "data");
  const made = run("initdb", [
    "-D",
    data,
    "-U",
    "purser",
    "-A",
    "trust",
    "-E",
    "UTF8",
    "--no-sync",
  ]);
  execFileSync(made.command, made.args, { cwd: "/", stdio: "ignore", ...runAs.ids });
  const started = run("postgres", ["-D", data, "-p", `${port}`, "-h", "127.0.0.1", "-k", ""]);
  const args = [...started.args, "-c", "max_connections=200", "-c", "fsync=off"];
  const child = spawn(started.command, args, { cwd: "/", stdio: "ignore", ...runAs.ids });
  const ended = new Promise((resolve) => child.once("exit", resolve));
  t.teardown(async () => {
    child.kill("SIGINT");
    await ended;
    rmSync(folder, { recursive: true, force: true });
  });
  const url = `postgres://purser@127.0.0.1:${port}/postgres`;
  await until(async () => {
    const client = new Client({ connectionString: url });
    return client.connect().then(
      () => client.end().then(() => true),
      () => false,
    );
  });
  return url;
}

for (const major of [15, 16, 17]) {
  const bin = binariesOf(major);
  const skip = bin === undefined && `no Postgres ${major} on this machine (POSTGRES_BIN_${major})`;
  t.test(`Postgres ${major}: the schema applies, and money moves`, { skip }, async (t) => {
    const url = await serverOf(t, bin ?? "");
    const before = process.env["PURSER_TEST_POSTGRES_URL"];
    process.env["PURSER_TEST_POSTGRES_URL"] = url;
    t.teardown(() => (process.env["PURSER_TEST_POSTGRES_URL"] = before));
    const made = await market(t);
    const { rows } = await made.database.pool.query<{ server_version: string }>(
      "SHOW server_version",
    );
    t.match(rows[0]?.server_version, new RegExp(`^${major}\\.`));
    const spend = async (amount: string) =>
      (
        await made.app.inject({
          method: "POST",
          url: "/api/agents/spend",
          headers: made.agent.headers,
          payload: { recipient: PAYEE, amount },
        })
      ).json<object>();
    t.match(await spend("0.01"), { success: true });
    t.match(await spend("1000000"), { blocked: true });
    t.match(await made.fetch({ url: made.seller.url }), {
      status: 200,
      body: { paid: true, delivered: true },
    });
    await assertLedgerIsChain(t, made);
  });
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
    cwd: fileURLToPath(new URL("../../", import.meta.url)),
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
