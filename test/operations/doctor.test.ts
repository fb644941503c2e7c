// Goal: the doctor command reports the state of each part of a deployment, and for each part that is broken,
// how to fix it.
// Tier: full (starts whole deployments).
import { spawn } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import Fastify from "fastify";
import { Client } from "pg";
import t, { type Test } from "tap";
import { SMTPServer } from "smtp-server";
import { generatePrivateKey, privateKeyToAddress } from "viem/accounts";
import { BATCHER_ADDRESS } from "../../server/core/batcher.ts";
import { MULTICALL3_ADDRESS } from "../../server/core/networks.ts";
import { deployBatcher } from "../../server/infra/chain/batcher/deploy.ts";
import { AREAS, examine, type Area } from "../../server/doctor/examine.ts";
import { exitCodeOf, type Finding } from "../../server/doctor/finding.ts";
import { freePort } from "../../server/local/free-port.ts";
import { CHANNEL_KEY, testApp, testEnvironment } from "../helpers/app.ts";
import { testChain } from "../helpers/chain.ts";
import { emptyDatabase } from "../helpers/postgres.ts";
import { createAgent, signIn } from "../helpers/owner.ts";
import { lagging, rpcProxy } from "../helpers/rpc-proxy.ts";
import { until } from "../helpers/until.ts";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const PERMIT2 = "0x000000000022D473030F116dDEE9F6B43aC78BA3";
const chain = await testChain(t, { blockTimeSeconds: 1 });
const env = {
  [`RPC_URL_${chain.chainId}`]: [chain.rpcUrl, chain.rpcUrl.replace("http", "ws")].join(),
};
/** Of agents' channels. */
const signer = privateKeyToAddress(CHANNEL_KEY).toLowerCase() as `0x${string}`;
await chain.testClient.setBalance({ address: signer, value: 10n ** 20n });
const world = await testApp(t, { chain, listen: true, env });
const { database, config } = world;
const owner = await signIn(world);
const agent = await createAgent(world, owner);
// The job queue's schema is created during the first requests.
await until(
  () =>
    database.pool.query("SELECT task_identifier FROM graphile_worker.jobs LIMIT 0").then(
      () => true,
      () => false,
    ),
  30_000,
);

const environment = (over: Record<string, string> = {}) => ({
  ...testEnvironment({ databaseUrl: database.url, chain, port: config.port, env }),
  ...over,
});
const rpc = (...urls: string[]) => ({ [`RPC_URL_${chain.chainId}`]: urls.join() });
const query = (sql: string, values?: unknown[]) => database.pool.query(sql, values);

/** Test databases run without durability, and the doctor correctly reports that. */
const UNSAFE = "database durability";

/** The areas of the current test: a complete examination takes seconds. */
let areas: Area[] = [...AREAS];

/**
 * Checks that one of the findings has the expected level and text, and that every finding that is not ok has
 * a suggestion.
 */
async function expectFinding(
  t: Test,
  level: Finding["level"],
  check: RegExp,
  what: RegExp,
  over: Record<string, string> = {},
): Promise<Finding[]> {
  const findings = await examine(environment(over), areas);
  const of = findings.filter((each) => check.test(each.check));
  const hit = of.find((each) => each.level === level && what.test(each.says));
  t.ok(hit, JSON.stringify(of.length > 0 ? of : findings, null, 1));
  t.same(
    findings.filter((each) => each.level !== "ok" && (each.todo ?? "") === ""),
    [],
    "a finding that is not ok has a suggestion",
  );
  if (level !== "ok") t.ok(exitCodeOf(findings) >= (level === "wrong" ? 2 : 1));
  return findings;
}

t.test("before the first start", async (t) => {
  const port = await freePort();
  const unused = {
    DATABASE_URL: await emptyDatabase(t),
    PORT: String(port),
    PUBLIC_URL: `http://localhost:${port}`,
  };
  const expected = [
    [/^database tables$/, /the database is empty: the first start will create its tables/],
    [/^master keys$/, /new wallets will be under "test"/],
    [/^relayer .* nonces$/, /not used by this service yet/],
    [/^PUBLIC_URL /, /does not respond yet/],
  ] as const;
  let findings: Finding[] = [];
  for (const [check, what] of expected)
    findings = await expectFinding(t, "ok", check, what, unused);
  t.same(
    findings.filter(({ level, check }) => level !== "ok" && check !== UNSAFE),
    [],
    "nothing is wrong yet",
  );
  const client = new Client({ connectionString: unused.DATABASE_URL });
  await client.connect();
  t.teardown(() => client.end());
  areas = ["database"];
  await client.query("CREATE TABLE of_somebody_else ()");
  await expectFinding(t, "warning", /^database tables$/, /has 1 tables, none of them ours/, unused);
  await client.query("CREATE ROLE reader LOGIN PASSWORD 'reader'");
  t.teardown(() => client.query("DROP ROLE reader"));
  const asReader = new URL(unused.DATABASE_URL);
  asReader.username = "reader";
  asReader.password = "reader";
  await expectFinding(t, "wrong", /^database tables$/, /the role reader may not create/, {
    ...unused,
    DATABASE_URL: asReader.href,
  });
  areas = [...AREAS];
});

t.test("an empty database beside the one in use", async (t) => {
  areas = ["url", "relayers"];
  const wrongDatabase = { DATABASE_URL: await emptyDatabase(t) };
  await expectFinding(
    t,
    "warning",
    /^PUBLIC_URL /,
    /although this database is empty/,
    wrongDatabase,
  );
  const [used] = chain.accounts;
  if (!used) throw new Error("no account");
  const hash = await chain
    .walletClient(used)
    .sendTransaction({ to: chain.admin.address, value: 1n });
  await chain.publicClient.waitForTransactionReceipt({ hash });
  await expectFinding(t, "warning", /^relayer .* nonces$/, /has 1 transactions of this key/, {
    ...wrongDatabase,
    RELAYER_PRIVATE_KEYS: used.privateKey,
  });
  areas = [...AREAS];
});

t.test("a healthy deployment", async (t) => {
  let findings: Finding[] = [];
  let rest: Finding[] = [];
  // Repeated, because the deployment has only just been started.
  for (let tries = 0; tries < 4 && !(rest.length > 0 && exitCodeOf(rest) === 0); tries += 1) {
    findings = await examine(environment());
    rest = findings.filter(({ check }) => check !== UNSAFE);
  }
  t.same(
    rest.filter(({ level }) => level !== "ok"),
    [],
  );
  t.equal(exitCodeOf(rest), 0);
  for (const check of [
    /^configuration$/,
    /^database$/,
    /^database durability$/,
    /^database clock$/,
    /^database migrations$/,
    /^database functions$/,
    /^database size$/,
    /^job queue$/,
    /^payments waiting$/,
    /^ledger$/,
    /^operators' record$/,
    /^master keys$/,
    /^relayer .* nonces$/,
    /^rpc .*#1 \(127\.0\.0\.1:\d+\)$/,
    /^rpc .* token$/,
    /^rpc .* contracts$/,
    /^rpc .* batcher$/,
    /^rpc .* logs$/,
    /^rpc .* archive$/,
    /^chain /,
    /^announcements /,
    /^PUBLIC_URL /,
  ])
    t.ok(
      findings.some((finding) => check.test(finding.check)),
      `${check}`,
    );
  const text = JSON.stringify(findings);
  for (const secret of [chain.relayerPrivateKey, environment()["MASTER_KEYS"] ?? "", agent.apiKey])
    t.notOk(text.includes(secret));
});

t.test("the doctor never writes to the database", async (t) => {
  const tables = ["operator_actions", "agents", "purser_functions", "_prisma_migrations"];
  const before = async () => {
    const sums = tables.map((table) => `(SELECT md5(string_agg(r::text, ' ')) FROM ${table} r)`);
    return (await query(`SELECT ARRAY[${sums.join(", ")}] AS rows`)).rows;
  };
  const was = await before();
  await examine(environment());
  t.same(await before(), was);
});

t.test("the command line: one line per finding, the same as JSON, and the exit code", async (t) => {
  const run = async (args: string[], over: Record<string, string> = {}) => {
    const child = spawn(process.execPath, ["--import=tsx", "server/doctor/cli.ts", ...args], {
      cwd: ROOT,
      env: { PATH: process.env["PATH"] ?? "", ...environment(over) },
      stdio: ["ignore", "pipe", "inherit"],
    });
    let output = "";
    child.stdout.on("data", (chunk: Buffer) => void (output += String(chunk)));
    const code = await new Promise((resolve) => void child.on("close", resolve));
    return { code, output };
  };
  const json = await run(["--json"]);
  t.equal(json.code, 2, "for the settings that are unsafe in a test database");
  t.match(JSON.parse(json.output), [{ check: "configuration", level: "ok" }]);
  const wrong = await run([], {
    DATABASE_URL: "postgres://nobody:hush-hush-hush@127.0.0.1:1/none",
  });
  t.equal(wrong.code, 2);
  t.match(wrong.output, /^wrong {3}database: /m);
  t.match(wrong.output, /^ {8}-> Check that DATABASE_URL is right/m);
  t.notOk(wrong.output.includes("hush-hush-hush"));
});

t.test("configuration", async (t) => {
  areas = ["database"];
  await expectFinding(t, "wrong", /^configuration$/, /MASTER_KEYS is missing/, { MASTER_KEYS: "" });
  const embedded = await examine({ PORT: "3999" });
  t.match(embedded, [{ level: "wrong", check: "configuration", says: /embedded/ }]);
});

t.test("database", async (t) => {
  areas = ["database"];
  const broken = async (
    [level, check, what]: [Finding["level"], RegExp, RegExp],
    breaking: string,
    mending: string,
  ): Promise<void> => {
    await query(breaking);
    try {
      await expectFinding(t, level, check, what);
    } finally {
      await query(mending);
    }
  };
  await expectFinding(t, "wrong", /durability/, /^fsync, full_page_writes off/);
  await broken(
    ["wrong", /migrations/, /1 pending, first 20261123000500/],
    "UPDATE _prisma_migrations SET finished_at = NULL WHERE migration_name = '20261123000500_operator_audit'",
    "UPDATE _prisma_migrations SET finished_at = now() WHERE finished_at IS NULL",
  );
  await broken(
    ["wrong", /migrations/, /different content/],
    "UPDATE _prisma_migrations SET checksum = reverse(checksum) WHERE migration_name = '20261123000500_operator_audit'",
    "UPDATE _prisma_migrations SET checksum = reverse(checksum) WHERE migration_name = '20261123000500_operator_audit'",
  );
  await broken(
    ["warning", /migrations/, /20991231000000_later is from a newer build/],
    "INSERT INTO _prisma_migrations (id, checksum, migration_name, finished_at) VALUES ('later', 'x', '20991231000000_later', now())",
    "DELETE FROM _prisma_migrations WHERE id = 'later'",
  );
  const { rows: sources } = await query(
    "SELECT pg_get_functiondef('purser_chain_hash'::regproc) AS source",
  );
  const { source } = sources[0] as { source: string };
  await broken(
    ["wrong", /functions/, /purser_chain_hash: missing, or different/],
    source.replace("sha256(before ||", "sha256(before || 'x'::bytea ||"),
    source,
  );
  await broken(
    ["wrong", /functions/, /audit_log\.audit_log_kept/],
    "ALTER TABLE audit_log DISABLE TRIGGER audit_log_kept",
    "ALTER TABLE audit_log ENABLE ALWAYS TRIGGER audit_log_kept",
  );
  await broken(
    ["warning", /size/, /not deleted/],
    "INSERT INTO events (owner_id, type, subject_id, created_at) SELECT id, 'agent', id, now() - interval '5 days' FROM owners LIMIT 1",
    "DELETE FROM events WHERE created_at < now() - interval '4 days'",
  );
  await broken(
    ["warning", /job queue/, /1 due for more than .*nobody-does/],
    "SELECT graphile_worker.add_job('nobody-does', run_at := now() - interval '1 hour')",
    "SELECT graphile_worker.complete_jobs(array_agg(id)) FROM graphile_worker.jobs WHERE task_identifier = 'nobody-does'",
  );
  await broken(
    ["warning", /job queue/, /1 failed for good \(nobody-can\)/],
    "SELECT graphile_worker.permanently_fail_jobs(ARRAY[(graphile_worker.add_job('nobody-can')).id], 'broken')",
    "SELECT graphile_worker.complete_jobs(array_agg(id)) FROM graphile_worker.jobs WHERE task_identifier = 'nobody-can'",
  );
  await broken(
    ["wrong", /ledger/, /1 relayer_nonce on eip155/],
    `INSERT INTO ledger_differences (chain_id, kind, key, detail) VALUES (${chain.chainId}, 'relayer_nonce', 'k', '{}')`,
    "DELETE FROM ledger_differences WHERE key = 'k'",
  );
  // On a network that no replica serves, so that no replica processes it.
  await broken(
    ["wrong", /payments waiting/, /1 on eip155:1, the oldest for 10 minutes/],
    `INSERT INTO settlements (from_address, chain_id, asset, nonce, id, kind, to_address, value, valid_after, valid_before,
       signature, relay, status) VALUES ('0x' || repeat('1', 40), 1, '0x' || repeat('2', 40), '0x' || repeat('3', 64), 'pay_stuck', 'facilitated',
       '0x' || repeat('4', 40), 1, 0, 1, decode(repeat('00', 65), 'hex'), TRUE,
       'queued'); UPDATE settlements SET turn = now() - interval '10 minutes' WHERE id = 'pay_stuck'`,
    "DELETE FROM settlements WHERE id = 'pay_stuck'",
  );
  const unreachable = await examine(environment({ DATABASE_URL: "postgres://127.0.0.1:1/none" }));
  for (const { check, says } of unreachable) t.notMatch(says, "Prisma", check);
  t.match(
    unreachable.find(({ check }) => check === "database"),
    { level: "wrong" },
  );
});

t.test("the operators' log, rewritten by a superuser", async (t) => {
  areas = ["database"];
  await query(
    "SELECT purser_operator_act('opr_1', '{\"user\":\"ada\"}', 'keys.rotation_began', '{}')",
  );
  await expectFinding(t, "ok", /operators/, /is intact/);
  await query("ALTER TABLE operator_actions DISABLE TRIGGER operator_actions_kept");
  await query("UPDATE operator_actions SET body = replace(body, 'ada', 'eve')");
  await query("ALTER TABLE operator_actions ENABLE ALWAYS TRIGGER operator_actions_kept");
  await expectFinding(t, "wrong", /operators/, /hash does not match its text/);
  await query("ALTER TABLE operator_actions DISABLE TRIGGER operator_actions_kept");
  await query("UPDATE operator_actions SET body = replace(body, 'eve', 'ada')");
  await query("ALTER TABLE operator_actions ENABLE ALWAYS TRIGGER operator_actions_kept");
});

t.test("master keys", async (t) => {
  areas = ["keys"];
  const fresh = randomBytes(32).toString("base64");
  const ours = environment()["MASTER_KEYS"] ?? "";
  await expectFinding(t, "wrong", /master keys/, /1 wallets are under "test", which is not/, {
    MASTER_KEYS: `other:${fresh}`,
  });
  await expectFinding(t, "wrong", /master keys/, /cannot be decrypted/, {
    MASTER_KEYS: `test:${fresh}`,
  });
  await expectFinding(t, "warning", /master keys/, /still under "test"/, {
    MASTER_KEYS: `${ours},next:${fresh}`,
    MASTER_KEY_ACTIVE: "next",
  });
  await query(
    "INSERT INTO service_secrets (purpose, sealed) VALUES ('test', '\\x0104' || convert_to('gone', 'UTF8') || '\\x0000000000')",
  );
  await expectFinding(
    t,
    "wrong",
    /master keys/,
    /secrets .* are under "gone", which is not configured/,
  );
  await query("DELETE FROM service_secrets WHERE purpose = 'test'");
  await query("UPDATE agent_wallets SET revision = revision + 1");
  await expectFinding(
    t,
    "wrong",
    /master keys/,
    new RegExp(`${agent.id} under "test" cannot be decrypted`),
  );
  await query("UPDATE agent_wallets SET revision = revision - 1");
});

t.test("relayers", async (t) => {
  areas = ["relayers"];
  const poor = generatePrivateKey();
  await expectFinding(t, "wrong", /^relayer/, /0\.0000 .*not used recently/, {
    RELAYER_PRIVATE_KEYS: poor,
  });
  const lane = chain.relayer.address.toLowerCase();
  await query(
    `INSERT INTO relayer_transactions (chain_id, lane_address, nonce, status, to_address, calldata, gas_limit, mined_hash, block_number, gas_cost, created_at)
     VALUES ($1, $2, 900001, 'replaced', $2, '', 1, '0x' || repeat('0', 64), 1, 2500::numeric * 10 ^ 18, now() - interval '1 hour')`,
    [chain.chainId, lane],
  );
  await expectFinding(t, "warning", /^relayer/, /lasts 4 days/);
  await query("UPDATE relayer_transactions SET gas_cost = gas_cost * 10 WHERE nonce = 900001");
  await expectFinding(t, "wrong", /^relayer/, /lasts .* hours/);
  await query(
    "UPDATE relayer_transactions SET status = 'pending', created_at = now() - interval '10 minutes' WHERE nonce = 900001",
  );
  await expectFinding(t, "wrong", /^relayer .* nonces$/, /1 in flight, the oldest for 10 minutes/);
  await query("DELETE FROM relayer_transactions WHERE nonce = 900001");
  // Another process sends with the same key.
  const thief = chain.walletClient(chain.relayer);
  const hash = await thief.sendTransaction({ to: chain.admin.address, value: 1n });
  await chain.publicClient.waitForTransactionReceipt({ hash });
  await expectFinding(
    t,
    "wrong",
    /^relayer .* nonces$/,
    /1 more transactions than this service signed/,
  );
});

t.test("accounts of agents' channels", async (t) => {
  areas = ["relayers"];
  const account = new RegExp(`^channels' account .* ${signer}$`);
  const nonces = new RegExp(`^channels' account .* ${signer} nonces$`);
  await expectFinding(t, "ok", account, /not used recently/);
  await expectFinding(t, "ok", nonces, /^at 0/);
  const price = await chain.publicClient.getGasPrice();
  // Two transactions of 181,500 gas at twice the price, and twenty times that.
  const one = 363_000n * price;
  const pays = (value: bigint) => chain.testClient.setBalance({ address: signer, value });
  await pays(one / 2n);
  await expectFinding(t, "wrong", account, /not used recently/);
  await pays(10n * one);
  await expectFinding(t, "warning", account, /not used recently/);
  await pays(10n ** 20n);
  const withoutKeys = await examine(environment({ CHANNEL_KEYS: "" }), areas);
  t.notOk(withoutKeys.some(({ check }) => check.startsWith("channels")));
  await query(
    `INSERT INTO channels (agent_id, id, chain_id, asset, receiver, receiver_authorizer, withdraw_delay, signer, salt)
     VALUES ($1, '0x' || repeat('1', 64), 1, $2, $2, $2, 900, $3, '0x' || repeat('0', 64))`,
    [agent.id, `0x${"2".repeat(40)}`, signer],
  );
  await expectFinding(t, "ok", account, /./);
  const other = { CHANNEL_KEYS: generatePrivateKey() };
  await expectFinding(t, "wrong", /^channels of 0x/, /1 are not closed, and their key/, other);
  await query("UPDATE channels SET status = 'closed', reason = 'owner'");
  const closed = await examine(environment(other), areas);
  t.notOk(closed.some(({ check }) => check.startsWith("channels of")));
  await query("DELETE FROM channels");
});

t.test("RPC endpoints", async (t) => {
  areas = ["chains"];
  const proxy = await rpcProxy(t, chain.rpcUrl);
  const of = (method: string, result: unknown) => {
    proxy.behave = (call) => (call.method === method ? { do: "answer", result } : { do: "pass" });
  };
  const both = rpc(chain.rpcUrl, proxy.url);
  await expectFinding(t, "ok", /^rpc .*#2 /, /responds/, both);
  of("eth_chainId", "0x1");
  await expectFinding(t, "wrong", /^rpc .*#2 /, /serves chain 1, not/, both);
  proxy.behave = (call) =>
    call.method === "eth_call" ? { do: "answer", result: `0x${"11".repeat(32)}` } : { do: "pass" };
  await expectFinding(t, "wrong", /^rpc .*#2 .*token$/, /DOMAIN_SEPARATOR is 0x1111/, both);
  proxy.behave = (call) =>
    call.method === "eth_getLogs"
      ? { do: "answer", error: { code: -32_000, message: "block range is too wide" } }
      : { do: "pass" };
  await expectFinding(t, "wrong", /^rpc .*#2 .*logs$/, /./, both);
  proxy.behave = (call) =>
    call.method === "eth_getBalance" && call.params[1] !== "latest"
      ? { do: "answer", error: { code: -32_000, message: "missing trie node" } }
      : { do: "pass" };
  await expectFinding(t, "warning", /^rpc .*#2 .*archive$/, /./, both);
  proxy.behave = ({ method, params: [call] }) =>
    method === "eth_call" && (call as { to?: string }).to === BATCHER_ADDRESS
      ? { do: "answer", error: { code: -32_000, message: "invalid opcode: PUSH0" } }
      : { do: "pass" };
  await expectFinding(t, "warning", /^rpc .*#2 .*batcher$/, /does not work on this chain/, both);
  const network = `eip155:${chain.chainId}`;
  await t.rejects(
    deployBatcher(["--network", network], environment(rpc(proxy.url)), () => undefined),
    { message: /does not work on this chain/ },
  );
  proxy.behave = (call) => (call.method === "eth_chainId" ? { do: "cut" } : { do: "pass" });
  await expectFinding(t, "wrong", /^rpc .*#2 /, /no RPC endpoint answered/, both);
  const missing = 42n - (await chain.publicClient.getBlockNumber());
  if (missing > 0n) await chain.testClient.mine({ blocks: Number(missing), interval: 1 });
  proxy.behave = lagging({ blocks: 30 });
  await expectFinding(t, "warning", /^rpc .*#2 /, /blocks \(.* s\) behind/, both);
  proxy.reset();
  // A different chain with the same chain id.
  const fork = await testChain(t, { blockTimeSeconds: 1 });
  await fork.testClient.mine({ blocks: 50 });
  await expectFinding(
    t,
    "wrong",
    /^rpc .*#2 /,
    /different final block/,
    rpc(chain.rpcUrl, fork.rpcUrl),
  );
  for (const [address, level, what] of [
    [PERMIT2, "warning", /missing: Permit2$/],
    [MULTICALL3_ADDRESS, "wrong", /Multicall3 is not at/],
  ] as const) {
    await fork.testClient.setCode({ address, bytecode: "0x" });
    await expectFinding(t, level, /^rpc .*#2 .*contracts$/, what, rpc(chain.rpcUrl, fork.rpcUrl));
  }
  const other = rpc(chain.rpcUrl, fork.rpcUrl);
  await fork.testClient.setCode({ address: BATCHER_ADDRESS, bytecode: "0x00" });
  await expectFinding(t, "warning", /^rpc .*#2 .*batcher$/, /not our batcher/, other);
  await fork.testClient.setCode({ address: BATCHER_ADDRESS, bytecode: "0x" });
  const findings = await expectFinding(
    t,
    "ok",
    /^rpc .*#2 .*batcher$/,
    /not at .* less gas$/,
    other,
  );
  const { todo = "" } = findings.find(({ says }) => says.startsWith("not at")) ?? {};
  const [, args = ""] =
    /^.*DEPLOYER_PRIVATE_KEY=0x\.\.\. npm run batcher -- (.*)$/.exec(todo) ?? [];
  const deploy = async (more: Record<string, string> = {}, flags: string[] = []) => {
    const lines: string[] = [];
    const given = environment({ ...rpc(fork.rpcUrl), ...more });
    await deployBatcher([...args.split(" "), ...flags], given, (line) => void lines.push(line));
    return lines.join("\n");
  };
  const DEPLOYER_PRIVATE_KEY = fork.admin.privateKey;
  await t.rejects(deploy(), { message: /DEPLOYER_PRIVATE_KEY/ });
  const ours = { DEPLOYER_PRIVATE_KEY: chain.relayerPrivateKey };
  await t.rejects(deploy(ours), { message: /is a relayer's/ });
  t.match(await deploy({}, ["--dry-run"]), /would cost \d+ gas/);
  const line = await deploy({ DEPLOYER_PRIVATE_KEY });
  t.match(line, /the batcher is at 0x/);
  t.notOk(line.includes(DEPLOYER_PRIVATE_KEY));
  t.match(await deploy(), /already/);
  await expectFinding(t, "ok", /^rpc .*#2 .*batcher$/, /^at 0x/, other);
  await fork.stop();
});

t.test("announcements of new blocks", async (t) => {
  areas = ["chains"];
  // Accepts the connection and never sends anything.
  const silent = createServer().listen(0, "127.0.0.1");
  silent.on("upgrade", (request, socket) => {
    const key = `${request.headers["sec-websocket-key"]}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`;
    const accept = createHash("sha1").update(key).digest("base64");
    const head = ["HTTP/1.1 101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade"];
    socket.write([...head, `Sec-WebSocket-Accept: ${accept}`, "", ""].join("\r\n"));
    socket.on("error", () => undefined);
    t.teardown(() => void socket.destroy());
  });
  await new Promise((resolve) => silent.once("listening", resolve));
  t.teardown(() => void silent.close());
  const { port } = silent.address() as { port: number };
  await expectFinding(
    t,
    "warning",
    /^announcements/,
    /does not announce/,
    rpc(chain.rpcUrl, `ws://127.0.0.1:${port}`),
  );
  await expectFinding(
    t,
    "warning",
    /^announcements/,
    /cannot be reached/,
    rpc(chain.rpcUrl, "ws://127.0.0.1:1"),
  );
});

t.test("clocks", async (t) => {
  areas = ["database", "chains"];
  // The chain's clock, while the system clock goes on.
  const still = await testChain(t, { blockTimeSeconds: 1 });
  await still.testClient.increaseTime({ seconds: 300 });
  await still.testClient.mine({ blocks: 1 });
  await expectFinding(t, "wrong", /^chain /, /ahead of our clock/, rpc(still.rpcUrl));
  await still.stop();
  const real = Date.now;
  t.teardown(() => void (Date.now = real));
  Date.now = () => real() + 5_000;
  await expectFinding(t, "warning", /^database clock/, /^[45](\.\d)? s from/);
  Date.now = () => real() + 120_000;
  const findings = await expectFinding(
    t,
    "wrong",
    /^database clock/,
    /^(120|11\d(\.\d)?) s|2 minutes from/,
  );
  t.match(
    findings.find(({ check }) => check.startsWith("chain ")),
    { level: "wrong", says: /old/ },
  );
  Date.now = real;
});

t.test("PUBLIC_URL", async (t) => {
  areas = ["url"];
  await expectFinding(t, "warning", /^PUBLIC_URL/, /./, { PUBLIC_URL: "http://localhost:1" });
  const proxy = Fastify();
  let strips = ["x-request-id"];
  proxy.get("/*", async (request, reply) => {
    const answer = await fetch(`${config.publicUrl}${request.url}`);
    for (const [name, value] of answer.headers)
      if (!strips.includes(name) && !/^(content-length|transfer-encoding|connection)$/.test(name))
        reply.header(name, value);
    return reply.code(answer.status).send(await answer.text());
  });
  await proxy.listen({ host: "127.0.0.1", port: 0 });
  t.teardown(() => proxy.close());
  const { port } = proxy.server.address() as { port: number };
  const over = { PUBLIC_URL: `http://localhost:${port}` };
  await expectFinding(t, "wrong", /^PUBLIC_URL/, /a different server responds/, over);
  strips = ["content-security-policy"];
  await expectFinding(t, "warning", /^PUBLIC_URL/, /lack content-security-policy/, over);
});

t.test("mail and traces, if they are configured", async (t) => {
  areas = ["mail", "traces"];
  const smtp = new SMTPServer({
    authOptional: true,
    allowInsecureAuth: true,
    onAuth: (auth, _session, done) =>
      auth.password === "right" ? done(null, { user: "us" }) : done(new Error("no")),
  });
  await new Promise<void>((resolve) => void smtp.listen(0, "127.0.0.1", () => resolve()));
  t.teardown(() => smtp.close());
  const { port } = smtp.server.address() as { port: number };
  const at = (password: string) => ({
    SMTP_URL: `smtp://us:${password}@127.0.0.1:${port}`,
    MAIL_FROM: "us@example.com",
  });
  await expectFinding(t, "ok", /^mail$/, /accepts the user/, at("right"));
  await expectFinding(t, "wrong", /^mail$/, /EAUTH/, at("wrong"));
  const collector = Fastify();
  collector.post("/v1/traces", async (_request, reply) => reply.code(status).send({}));
  let status = 200;
  await collector.listen({ host: "127.0.0.1", port: 0 });
  t.teardown(() => collector.close());
  const { port: otlp } = collector.server.address() as { port: number };
  const traces = { OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${otlp}` };
  await expectFinding(t, "ok", /^traces$/, /accepts them/, traces);
  status = 401;
  await expectFinding(t, "warning", /^traces$/, /returns 401/, traces);
});

t.test("screening, if it is configured", async (t) => {
  areas = ["screening"];
  const folder = mkdtempSync(join(tmpdir(), "purser-doctor-"));
  t.teardown(() => rmSync(folder, { recursive: true }));
  const path = join(folder, "list.txt");
  const file = { SCREENING_FILE: path, SCREENING_FAILS: "closed", SCREENING_MAX_AGE: "24" };
  await expectFinding(t, "wrong", /^screening$/, /cannot be read \(ENOENT\)/, file);
  writeFileSync(path, `2020-01-01\n${owner.account.address}\n`);
  await expectFinding(t, "wrong", /^screening$/, /1 addresses, \d+ days old: older than/, file);
  writeFileSync(path, `${owner.account.address}\n`);
  await expectFinding(t, "ok", /^screening$/, /1 addresses, [\d.]+ s old/, file);
  const screen = Fastify();
  screen.post("/", async (_request, reply) => reply.code(status).send({ blocked: [] }));
  let status = 200;
  await screen.listen({ host: "127.0.0.1", port: 0 });
  t.teardown(() => screen.close());
  const { port } = screen.server.address() as { port: number };
  const service = { SCREENING_URL: `http://127.0.0.1:${port}/`, SCREENING_FAILS: "open" };
  await expectFinding(t, "ok", /^screening$/, /the service answers/, service);
  status = 401;
  const findings = await expectFinding(t, "wrong", /^screening$/, /it answered 401/, service);
  t.match(findings.at(-1)?.todo, /addresses are not screened/);
});

t.test("the chain is unreachable", async (t) => {
  areas = ["chains"];
  await chain.stop();
  await expectFinding(t, "wrong", /^rpc /, /no RPC endpoint answered/);
});
