// Goal: before a start, the doctor finds what would stop it or make it serve nobody, names the cause, changes nothing,
// and needs no running service.
// Tier: full (each cause is produced with a real database, chain or socket).
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import type { AddressInfo } from "node:net";
import { createServer as createTlsServer } from "node:tls";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { Client } from "pg";
import t from "tap";
import { generatePrivateKey } from "viem/accounts";
import { connectionsInAll } from "../../server/core/worker-settings.ts";
import { examineBeforeStart } from "../../server/doctor/before-start.ts";
import type { Finding } from "../../server/doctor/finding.ts";
import { checkWebBuild } from "../../server/doctor/machine.ts";
import { freePort } from "../../server/local/free-port.ts";
import { testEnvironment } from "../helpers/app.ts";
import { testChain } from "../helpers/chain.ts";
import { emptyDatabase, testDatabase } from "../helpers/postgres.ts";
import { lagging, rpcProxy } from "../helpers/rpc-proxy.ts";
import { selfSigned } from "../packages/bad-connections.ts";
import { claiming } from "./older-server.ts";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const chain = await testChain(t, { blockTimeSeconds: 1 });
const database = await testDatabase(t);
const port = await freePort();
const folder = mkdtempSync(join(tmpdir(), "purser-before-"));
t.teardown(() => rmSync(folder, { recursive: true }));

const environment = (over: Record<string, string> = {}): Record<string, string> => ({
  ...testEnvironment({ databaseUrl: database.url, chain, port }),
  CHANNEL_KEYS: "",
  ...over,
});
const rpc = (...urls: string[]) => ({ [`RPC_URL_${chain.chainId}`]: urls.join() });

const troubles = (findings: readonly Finding[]): string[] =>
  findings.filter(({ level }) => level !== "ok").map(({ level, code }) => `${level} ${code}`);
/** What this machine and its databases without durability have anyway. */
let usual: string[] = [];

/** The causes that a change of the environment adds to the usual ones. */
async function caused(over: Record<string, string>): Promise<string[]> {
  const findings = await examineBeforeStart(environment(over));
  const unclear = findings.filter(
    ({ level, todo = "", code, says }) =>
      !/^[a-z_]+$/.test(code) || says === "" || (level !== "ok" && todo === ""),
  );
  if (unclear.length > 0)
    throw new Error(`without code, sentence or advice: ${JSON.stringify(unclear)}`);
  return [...new Set(troubles(findings))].filter((each) => !usual.includes(each)).toSorted();
}

t.test("a deployment that can start", async (t) => {
  const findings = await examineBeforeStart(environment());
  usual = troubles(findings);
  t.same(
    usual.filter((each) => !["warning node", "warning web_app"].includes(each)),
    ["wrong database_durability"],
    "test databases run without fsync",
  );
  for (const code of [
    "configuration",
    "node",
    "web_app",
    "port",
    "database",
    "database_sessions",
    "database_durability",
    "database_clock",
    "database_connections",
    "database_disk",
    "database_migrations",
    "database_tables",
    "master_keys",
    "relayer",
    "relayer_nonces",
    "rpc",
    "rpc_token",
    "rpc_contracts",
    "rpc_batcher",
    "rpc_logs",
    "rpc_archive",
    "chain",
    "public_url",
  ])
    t.ok(
      findings.some((finding) => finding.code === code),
      code,
    );
  const text = JSON.stringify(findings);
  for (const secret of [chain.relayerPrivateKey, environment()["MASTER_KEYS"] ?? ""])
    t.notOk(text.includes(secret));
});

t.test("the configuration", async (t) => {
  t.same(await caused({ MASTER_KEYS: "", PORT: "many" }), ["wrong configuration"]);
  t.same(await caused({ FETCH_MAX_BYTES: "1" }), ["warning configuration_key_unread"]);
});

t.test("this machine", async (t) => {
  const other = createServer().listen(0, "127.0.0.1");
  await once(other, "listening");
  t.teardown(() => other.close());
  const { port: taken } = other.address() as AddressInfo;
  t.same(await caused({ PORT: `${taken}` }), ["wrong port"]);
  t.same(await caused({ HOST: "192.0.2.1", PUBLIC_URL: "http://localhost:1" }), ["wrong port"]);
  t.match(checkWebBuild(pathToFileURL(`${folder}/`)), { level: "warning", code: "web_app" });
});

t.test("the database", async (t) => {
  t.same(await caused({ DATABASE_URL: "postgres://127.0.0.1:1/none" }), [
    "wrong database_unreachable",
  ]);
  t.same(await caused({ DATABASE_URL: await claiming(t, database.url, "140012") }), [
    "wrong database_version",
  ]);
  const workers = 200;
  t.ok(connectionsInAll({ workers }) > 1_000);
  t.same(await caused({ WORKERS: `${workers}` }), ["wrong database_connections"]);

  const client = new Client({ connectionString: database.url });
  await client.connect();
  t.teardown(() => client.end());
  const migration = "WHERE migration_name LIKE '%_operator_audit'";
  const reverse = `UPDATE _prisma_migrations SET checksum = reverse(checksum) ${migration}`;
  await client.query(reverse);
  t.same(await caused({}), ["wrong database_other_build"]);
  await client.query(reverse);
  await client.query(`UPDATE _prisma_migrations SET finished_at = NULL ${migration}`);
  t.same(await caused({}), [], "the start applies it");
  t.match(
    (await examineBeforeStart(environment())).find(({ code }) => code === "database_migrations"),
    { says: /^1 pending, .*: the start will apply them$/ },
  );
  await client.query("UPDATE _prisma_migrations SET finished_at = now() WHERE finished_at IS NULL");
});

t.test("a role without the rights", async (t) => {
  const empty = await emptyDatabase(t);
  t.same(
    await caused({ DATABASE_URL: empty }),
    [],
    "an empty database is what a first start needs",
  );
  const client = new Client({ connectionString: empty });
  await client.connect();
  const role = `reader_${process.pid}`;
  await client.query(`CREATE ROLE ${role} LOGIN PASSWORD 'reader'`);
  t.teardown(async () => {
    await client.query(`DROP ROLE ${role}`);
    await client.end();
  });
  const as = (url: string): string => {
    const address = new URL(url);
    address.username = role;
    address.password = "reader";
    return address.href;
  };
  t.same(await caused({ DATABASE_URL: as(empty) }), ["wrong database_rights"]);
  const { rows } = await client.query("SELECT FROM pg_tables WHERE schemaname = 'public'");
  t.equal(rows.length, 0, "nothing was made in it");
  // Of tables that it does not own, this role cannot read either.
  t.ok((await caused({ DATABASE_URL: as(database.url) })).includes("wrong database_rights"));
});

t.test("the clocks", async (t) => {
  const real = Date.now;
  t.teardown(() => void (Date.now = real));
  Date.now = () => real() + 120_000;
  t.same(await caused({}), ["wrong chain_clock", "wrong database_clock"]);
});

t.test("the chain's endpoints", async (t) => {
  const proxy = await rpcProxy(t, chain.rpcUrl);
  const both = rpc(chain.rpcUrl, proxy.url);
  proxy.behave = ({ method }) =>
    method === "eth_chainId" ? { do: "answer", result: "0x1" } : { do: "pass" };
  t.same(await caused(both), ["wrong rpc_chain_id"]);
  proxy.behave = ({ method }) => (method === "eth_chainId" ? { do: "cut" } : { do: "pass" });
  t.same(await caused(both), ["wrong rpc"]);
  proxy.behave = ({ method, params: [tag] }) =>
    method === "eth_getBlockByNumber" && tag !== "latest"
      ? { do: "answer", result: null }
      : { do: "pass" };
  t.same(await caused(both), ["wrong rpc_final_block"]);
  // The lag of a block that was made a minute after the one before.
  const other = await testChain(t, { blockTimeSeconds: 1 });
  await other.testClient.increaseTime({ seconds: 40 });
  await other.testClient.mine({ blocks: 2 });
  const late = await rpcProxy(t, other.rpcUrl);
  late.behave = lagging({ blocks: 3 });
  const causes = await caused(rpc(other.rpcUrl, late.url));
  t.ok(causes.includes("warning rpc_lag"), causes.join());
});

t.test("the keys", async (t) => {
  t.same(await caused({ RELAYER_PRIVATE_KEYS: generatePrivateKey() }), ["wrong gas_low"]);
  const custody = { CUSTODY_SOCKET: join(folder, "nobody.sock"), MASTER_KEYS: "" };
  t.same(await caused(custody), ["wrong master_keys", "wrong relayers"]);
});

t.test("the public address", async (t) => {
  t.same(await caused({ PUBLIC_URL: "https://purser.invalid" }), ["wrong public_url_not_found"]);
  t.same(await caused({ PUBLIC_URL: "https://127.0.0.1:1" }), ["warning public_url_unreachable"]);
  const tls = selfSigned(folder, ["localhost"]);
  if (tls === undefined) return t.comment("no openssl: a certificate of our own is not tried");
  const server = createTlsServer(tls, (socket) => socket.on("error", () => undefined));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.teardown(() => server.close());
  const { port: https } = server.address() as AddressInfo;
  t.same(await caused({ PUBLIC_URL: `https://localhost:${https}` }), [
    "wrong public_url_certificate",
  ]);
});

t.test("the screening list", async (t) => {
  const path = join(folder, "list.txt");
  const list = { SCREENING_FILE: path, SCREENING_FAILS: "closed" };
  t.same(await caused(list), ["wrong screening"]);
  writeFileSync(path, `${chain.admin.address}\n`);
  t.same(await caused(list), []);
});

t.test("the command: lines or JSON, and 0 or 1", async (t) => {
  const run = async (over: Record<string, string>, ...args: string[]) => {
    const child = spawn(
      process.execPath,
      ["--import=tsx", "server/doctor/cli.ts", "--before-start", ...args],
      {
        cwd: ROOT,
        env: { PATH: process.env["PATH"] ?? "", HOME: folder, ...over },
        stdio: ["ignore", "pipe", "pipe"],
      },
    );
    let output = "";
    for (const stream of [child.stdout, child.stderr])
      stream.on("data", (chunk: Buffer) => void (output += String(chunk)));
    const [code] = (await once(child, "close")) as [number];
    return { code, output };
  };
  // Everything embedded: there is no deployment, and the machine is looked at.
  const local = await run({ PORT: `${port}` });
  t.equal(local.code, 0, local.output);
  t.match(local.output, /^ok {6}configuration: valid, mode local$/m);
  const wrong = await run(environment({ MASTER_KEYS: "" }), "--json");
  t.equal(wrong.code, 1);
  t.match(JSON.parse(wrong.output), [
    { code: "configuration", level: "wrong", says: /MASTER_KEYS is missing/ },
  ]);
  t.equal((await run({}, "--only", "keys")).code, 2);
});
