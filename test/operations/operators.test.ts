// Goal: changes by operators are recorded with user, host, time and change; the record cannot be rewritten
// unnoticed, and contains no secret.
// Tier: full (starts whole deployments).
import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { hostname, tmpdir, userInfo } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import t, { type Test } from "tap";
import { createPool } from "../../server/infra/db/pool.ts";
import { createPrisma } from "../../server/infra/db/prisma.ts";
import { loadConfig } from "../../server/config.ts";
import { noteBoot } from "../../server/plugins/audit/boots.ts";
import { actAsOperator, type OperatorEntry } from "../../server/plugins/audit/operators.ts";
import { operate } from "../../server/plugins/reconciliation/operator-cli.ts";
import { verifyOperatorChain } from "../../server/plugins/audit/verify-cli.ts";
import { testApp, testEnvironment } from "../helpers/app.ts";
import { until } from "../helpers/until.ts";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const world = await testApp(t, { listen: true });
const { database, chain } = world;
const pool = createPool(database.url, { maxConnections: 3 });
const prisma = createPrisma(pool);
t.teardown(async () => {
  await prisma.$disconnect();
  await pool.end();
});
const NETWORK = `eip155:${chain.chainId}`;
const environment = (env: Record<string, string> = {}) => ({
  ...testEnvironment({ databaseUrl: database.url, chain, port: world.config.port }),
  ...env,
});

async function command(
  file: string,
  args: string[],
  env: Record<string, string> = {},
): Promise<{ code: number | null; output: string }> {
  const child = spawn(process.execPath, ["--import=tsx", file, ...args], {
    cwd: ROOT,
    env: { PATH: process.env["PATH"] ?? "", HOME: process.env["HOME"] ?? "", ...environment(env) },
    stdio: ["ignore", "pipe", "pipe"],
  });
  let output = "";
  for (const stream of [child.stdout, child.stderr])
    stream.on("data", (chunk: Buffer) => void (output += String(chunk)));
  const code = await new Promise<number | null>((resolve) => void child.on("close", resolve));
  return { code, output };
}
/** The same command in this process, because a new process takes seconds to start. */
async function operator(args: string[], env: Record<string, string> = {}) {
  const output: string[] = [];
  try {
    await operate(args, environment(env), (line) => void output.push(line));
    return { code: 0, output: output.join("\n") };
  } catch (error) {
    return { code: 1, output: [...output, String(error)].join("\n") };
  }
}

const entries = async (): Promise<OperatorEntry[]> => {
  const { rows } = await database.pool.query<{ body: string }>(
    "SELECT body FROM operator_actions ORDER BY seq",
  );
  return rows.map(({ body }) => JSON.parse(body) as OperatorEntry);
};
const last = async () => (await entries()).at(-1);

async function isWhole(t: Test, expected: boolean | RegExp, noted = ""): Promise<void> {
  const output: string[] = [];
  const [seq = "", hash = ""] = noted.split(":");
  const heads = noted === "" ? [] : [{ seq: Number(seq), hash }];
  const whole = await verifyOperatorChain(prisma, heads, (line) => void output.push(line));
  t.equal(whole, expected === true, output.join("\n"));
  if (expected instanceof RegExp) t.match(output.join("\n"), expected);
}

t.test("a start with a changed configuration records the keys, and no values", async (t) => {
  const secret = `hush-${randomBytes(12).toString("hex")}`;
  const boot = (env: Record<string, string>) => {
    const all = environment(env);
    return noteBoot(prisma, loadConfig(all), all);
  };
  t.same(await boot({}), [], "the first start has nothing to compare with");
  t.match(await last(), {
    action: "service.configured",
    who: { user: userInfo().username, host: hostname(), operator: null },
    what: { changed: [] },
  });
  t.same(await boot({}), []);
  t.same(
    await boot({ PORT: "4321", PUBLIC_URL: world.config.publicUrl }),
    [],
    "replicas may differ in these keys",
  );
  t.equal((await entries()).length, 1, "an unchanged configuration is not recorded");
  t.same(await boot({ METRICS_TOKEN: secret, OPERATOR: "ada" }), ["METRICS_TOKEN"]);
  t.match(await last(), { who: { operator: "ada" }, what: { changed: ["METRICS_TOKEN"] } });
  t.same(await boot({ LOG_LEVEL: "warn" }), ["LOG_LEVEL", "METRICS_TOKEN"]);
  t.same(await boot({}), ["LOG_LEVEL"]);
  const file = join(mkdtempSync(join(tmpdir(), "purser-token-")), "token");
  t.teardown(() => rmSync(dirname(file), { recursive: true }));
  writeFileSync(file, secret);
  t.same(await boot({ METRICS_TOKEN_FILE: file }), ["METRICS_TOKEN", "METRICS_TOKEN_FILE"]);
  writeFileSync(file, secret.toUpperCase());
  t.same(
    await boot({ METRICS_TOKEN_FILE: file }),
    ["METRICS_TOKEN"],
    "the same file with another content",
  );
  t.same(await boot({}), ["METRICS_TOKEN", "METRICS_TOKEN_FILE"]);
  // Replicas that start together with one new configuration make one entry.
  const before = (await entries()).length;
  await Promise.all(Array.from({ length: 4 }, () => boot({ SETTLE_WAIT_MS: "15000" })));
  t.equal((await entries()).length, before + 1);
  const text = JSON.stringify(await entries());
  for (const value of [secret, chain.relayerPrivateKey, database.url, environment()["MASTER_KEYS"]])
    t.notOk(text.includes(String(value)), "no secret value");
  await isWhole(t, true);
});

t.test("a difference is repaired by a command, which records who and why", async (t) => {
  await database.pool.query(
    `INSERT INTO ledger_differences (chain_id, kind, key, detail)
     SELECT $1, 'relayer_nonce', 'nonce ' || n, '{}' FROM generate_series(1, 3) n`,
    [chain.chainId],
  );
  const open = async (): Promise<number> => {
    const { rows } = await database.pool.query<{ count: string }>(
      "SELECT count(*) FROM ledger_differences WHERE healed_at IS NULL",
    );
    return Number(rows[0]?.count);
  };
  const which = ["heal-difference", "--network", NETWORK, "--kind", "relayer_nonce"];
  const silent = await operator(which);
  t.equal(silent.code, 1, "a reason is required");
  t.match(silent.output, "--why");
  const dryRun = await operator([...which, "--why", "looking", "--dry-run"]);
  t.equal(dryRun.code, 0, dryRun.output);
  t.equal(await open(), 3, "a dry run repairs nothing");
  const count = (await entries()).length;
  const one = await operator([...which, "--key", "nonce 2", "--why", "after the restore"], {
    OPERATOR: "ada",
  });
  t.equal(one.code, 0, one.output);
  t.equal(await open(), 2);
  t.match(await last(), {
    seq: count + 1,
    action: "ledger.difference_healed",
    who: { user: userInfo().username, host: hostname(), operator: "ada" },
    what: { network: NETWORK, kind: "relayer_nonce", keys: ["nonce 2"], why: "after the restore" },
  });
  t.equal((await operator([...which, "--why", "the rest"])).code, 0);
  t.equal(await open(), 0);
  const none = await operator([...which, "--why", "again"]);
  t.equal(none.code, 1);
  t.match(none.output, "no relayer_nonce is open");
  t.equal((await entries()).length, count + 2, "a failed action is not recorded as done");
});

t.test("reconciliation reads again from a block", async (t) => {
  const cursor = async (): Promise<bigint> => {
    const { rows } = await database.pool.query<{ next: string }>(
      "SELECT next_block AS next FROM ledger_cursors",
    );
    return BigInt(rows[0]?.next ?? "-1");
  };
  const readFrom = (block: string, why: string) => [
    "read-again",
    "--network",
    NETWORK,
    "--from-block",
    block,
    "--why",
    why,
  ];
  await chain.testClient.mine({ blocks: 8 });
  await until(async () => (await cursor()) > 1n, 30_000);
  const beyond = await operator(readFrom("999999999", "x"));
  t.equal(beyond.code, 1, beyond.output);
  const done = await operator(readFrom("1", "rows were lost"));
  t.equal(done.code, 0, done.output);
  t.match(await last(), {
    action: "ledger.read_again",
    what: { network: NETWORK, fromBlock: "1", why: "rows were lost" },
  });
  await until(async () => (await cursor()) > 1n, 30_000);
});

t.test("a rotation of the master key is recorded", async (t) => {
  const before = await entries();
  const help = await command("server/plugins/custody/keys-rotate.ts", ["--help"]);
  t.match([help.code, help.output], [0, /MASTER_KEY_ACTIVE/]);
  const wrong = await command("server/plugins/custody/keys-rotate.ts", ["--dry-run"]);
  t.match([wrong.code, wrong.output], [1, /^Unknown option '--dry-run'\.\nnpm run keys:rotate\n$/]);
  t.same(await entries(), before, "neither rotates");
  const done = await command("server/plugins/custody/keys-rotate.ts", [], { OPERATOR: "grace" });
  t.equal(done.code, 0, done.output);
  t.match((await entries()).slice(-2), [
    { action: "keys.rotation_began", who: { operator: "grace" }, what: { kid: "test" } },
    { action: "keys.rotation_ended", what: { kid: "test", remaining: 0 } },
  ]);
});

t.test("a command without its database says so in words", async (t) => {
  const away = { DATABASE_URL: "postgres://purser:hidden@127.0.0.1:1/none" };
  for (const [file, args] of [
    ["server/plugins/custody/keys-rotate.ts", []],
    ["server/plugins/audit/verify-cli.ts", []],
    ["server/plugins/reconciliation/operator-cli.ts", ["log"]],
  ] as const) {
    const { code, output } = await command(file, [...args], away);
    t.equal(code, 1, file);
    t.match(
      output,
      /^(Purser .*\n)?The database cannot be used: .*127\.0\.0\.1:1.*\nCheck that DATABASE_URL .*\n$/,
    );
  }
});

t.test("the log command shows who did what", async (t) => {
  const { code, output } = await operator(["log", "--last", "3"]);
  t.equal(code, 0, output);
  t.match(output, /grace \(.+\)@.+ keys\.rotation_ended \{"kid":"test"/);
  const [build, ...acts] = output.trim().split("\n");
  t.match(build, /^Purser \d+\.\d+\.\d+, commit source, /);
  t.equal(acts.length, 3);
  const wrong = await command("server/plugins/reconciliation/operator-cli.ts", ["heal"]);
  t.equal(wrong.code, 1);
  t.match(wrong.output, "heal-difference");
});

t.test("the record cannot be rewritten, and a forced change is detected", async (t) => {
  for (const sql of [
    "UPDATE operator_actions SET body = '{}'",
    "DELETE FROM operator_actions",
    "TRUNCATE operator_actions",
    "DELETE FROM operator_head",
  ])
    await t.rejects(database.pool.query(sql), /append-only/, sql);
  const verify = await command("server/plugins/audit/verify-cli.ts", []);
  t.equal(verify.code, 0, verify.output);
  t.match(verify.output, /ok operators: \d+ entries/);
  const [, noted = ""] = /head (\d+:[0-9a-f]{64})\s*$/.exec(verify.output) ?? [];
  t.not(noted, "");
  // A superuser can disable the trigger first.
  const client = await database.pool.connect();
  const behind = async (change: string, undo: string, why: RegExp): Promise<void> => {
    for (const sql of ["BEGIN", "SET LOCAL session_replication_role = replica"])
      await client.query(sql);
    await client.query("ALTER TABLE operator_actions DISABLE TRIGGER operator_actions_kept");
    await client.query(change);
    await client.query("COMMIT");
    await isWhole(t, why);
    await client.query(undo);
    await isWhole(t, true);
  };
  try {
    await client.query("CREATE TABLE kept AS SELECT * FROM operator_actions");
    const back = `DELETE FROM operator_actions; INSERT INTO operator_actions SELECT * FROM kept`;
    await behind(
      "UPDATE operator_actions SET body = replace(body, 'after the restore', 'nothing') WHERE body LIKE '%after the restore%'",
      back,
      /hash does not match its text/,
    );
    await behind("DELETE FROM operator_actions WHERE seq = 2", back, /entry 2 is missing/);
    await behind(
      "DELETE FROM operator_actions WHERE seq = (SELECT max(seq) FROM operator_actions)",
      back,
      /was noted earlier/,
    );
    await behind(
      "UPDATE operator_actions SET action = 'ledger.read_again' WHERE action = 'keys.rotation_began'",
      back,
      /columns differ/,
    );
  } finally {
    await client.query("ALTER TABLE operator_actions ENABLE ALWAYS TRIGGER operator_actions_kept");
    client.release();
  }
  // A record that was rewritten completely does not match the end that was noted before.
  await actAsOperator(prisma, { operator: undefined }, "keys.rotation_began", { kid: "test" });
  await isWhole(t, true, noted);
  await isWhole(t, /differs from the one noted/, noted.replace(/:.{4}/, ":0000"));
});
