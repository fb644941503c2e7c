// Goal: after any start, the database's functions equal prisma/functions: changed, removed or broken files,
// parallel starts and older builds.
import { cp, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { Client } from "pg";
import t, { type Test } from "tap";
import {
  FUNCTIONS_DIRECTORY,
  readFunctions,
  readInstalled,
} from "../../server/infra/db/functions.ts";
import { migrate, reinstallFunctions, REWRITTEN } from "../../server/infra/db/migrate.ts";
import { MigrationError } from "../../server/infra/db/migration-error.ts";
import * as sqlstates from "../../server/infra/db/pool.ts";
import { emptyDatabase } from "../helpers/postgres.ts";

const REPLICAS = 4;

/** A migrated database, and a copy of the functions' folder that a test may change. */
async function world(t: Test) {
  const connectionString = await emptyDatabase(t);
  const path = await mkdtemp(join(tmpdir(), "purser-functions-"));
  t.teardown(() => rm(path, { recursive: true, force: true }));
  await cp(FUNCTIONS_DIRECTORY, path, { recursive: true });
  const functionsDirectory = pathToFileURL(`${path}/`);
  const start = () => migrate({ connectionString, functionsDirectory });
  await start();
  const client = new Client({ connectionString });
  await client.connect();
  t.teardown(() => client.end());
  const write = (name: string, sql: string) => writeFile(join(path, `${name}.sql`), sql);
  const change = async (name: string, edit: (sql: string) => string) => {
    const before = await readFile(join(path, `${name}.sql`), "utf8");
    const after = edit(before);
    if (after === before) throw new Error(`nothing changed in ${name}`);
    await write(name, after);
  };
  const leave = (name: string) => rm(join(path, `${name}.sql`));
  const setVersion = (version: number) =>
    writeFile(join(path, "version.json"), JSON.stringify({ version }));
  return {
    client,
    connectionString,
    functionsDirectory,
    start,
    write,
    change,
    leave,
    setVersion,
  };
}

/** Every function and trigger with its oid, which changes when it is recreated. */
async function made(client: Client): Promise<Map<string, number>> {
  const { rows } = await client.query<{ name: string; oid: number }>(
    `SELECT proname AS name, oid FROM pg_proc WHERE pronamespace = 'public'::regnamespace
     UNION ALL SELECT tgname, oid FROM pg_trigger WHERE NOT tgisinternal`,
  );
  return new Map(rows.map(({ name, oid }) => [name, oid]));
}

const newIn = (before: Map<string, number>, after: Map<string, number>): string[] =>
  [...after].flatMap(([name, oid]) => (before.get(name) === oid ? [] : [name])).sort();

t.test("every file creates the function of its name, and nothing else does", async (t) => {
  const { client } = await world(t);
  const { rows } = await client.query<{ name: string }>(
    "SELECT proname AS name FROM pg_proc WHERE pronamespace = 'public'::regnamespace ORDER BY 1",
  );
  const files = (await readdir(FUNCTIONS_DIRECTORY))
    .filter((file) => file.endsWith(".sql"))
    .map((file) => file.replace(".sql", ""))
    .sort();
  t.same(rows.map(({ name }) => name).sort(), files);
});

t.test("a change is applied once, and nothing else is touched", async (t) => {
  const { client, start, change } = await world(t);
  const first = await made(client);
  t.same(await start(), { migrations: [], functions: [] }, "without a change nothing is done");
  t.same(newIn(first, await made(client)), []);

  await change("purser_outstanding", (sql) =>
    sql.replace("p_balance_block BIGINT", "p_balance_block NUMERIC"),
  );
  t.same((await start()).functions, ["purser_outstanding"], "also with other arguments");
  const second = await made(client);
  t.same(newIn(first, second), ["purser_outstanding"]);
  t.equal(second.size, first.size, "its old form is gone");

  await change("purser_payment_event", (sql) =>
    sql.replace("TRIGGER payments_inserted", "TRIGGER payments_arrived"),
  );
  t.same((await start()).functions, ["purser_payment_event"]);
  const third = await made(client);
  t.same(newIn(second, third), ["payments_arrived", "payments_changed", "purser_payment_event"]);
  t.notOk(third.has("payments_inserted"), "a trigger that was removed from its file is gone");
  t.same((await start()).functions, []);
});

t.test("replicas starting together apply a change once", async (t) => {
  const { client, start, change } = await world(t);
  const before = await made(client);
  await change("purser_emit", (sql) => `-- changed\n${sql}`);
  const all = await Promise.all(Array.from({ length: REPLICAS }, start));
  t.same(
    all.flatMap(({ functions }) => functions),
    ["purser_emit"],
  );
  t.same(newIn(before, await made(client)), ["purser_emit"]);
});

t.test("removing a file removes its function and triggers", async (t) => {
  const { client, start, leave } = await world(t);
  await leave("purser_session_event");
  t.same((await start()).functions, ["purser_session_event"]);
  const left = await made(client);
  for (const name of ["purser_session_event", "sessions_revoked", "sessions_deleted"])
    t.notOk(left.has(name), name);
  const { rowCount } = await client.query(
    "SELECT FROM purser_functions WHERE name = 'purser_session_event'",
  );
  t.equal(rowCount, 0);
});

t.test("a broken file stops the start with one line, and the old functions stay", async (t) => {
  const { client, start, change, write, leave } = await world(t);
  const before = await made(client);
  const records = async () =>
    (await client.query("SELECT * FROM purser_functions ORDER BY name")).rows;
  const recorded = await records();
  const refused = async (message: RegExp, what: string) => {
    const error = await start().then(
      () => undefined,
      (error: unknown) => error,
    );
    t.type(error, MigrationError, what);
    t.match((error as Error).message, message);
    t.notMatch((error as Error).message, /\n/, "one line");
    t.same(await made(client), before, "nothing was created or dropped");
    t.same(await records(), recorded);
  };
  // Both are applied before the broken file, in any order of the files.
  await change("purser_emit", (sql) => `-- changed\n${sql}`);
  await leave("purser_agent_event");

  await write(
    "purser_void_unsigned",
    "-- broken\nCREATE FUNCTION purser_void_unsigned( BIGINT,) RETURNS",
  );
  await refused(
    /^Function purser_void_unsigned cannot be made \(prisma\/functions\/purser_void_unsigned\.sql, line 2\): syntax error/,
    "a syntax error",
  );
  await write(
    "purser_void_unsigned",
    "CREATE FUNCTION purser_void_unsigned() RETURNS BIGINT LANGUAGE sql AS $$\n SELECT no_such FROM payments;\n$$;",
  );
  await refused(
    /purser_void_unsigned\.sql, line 2\): column "no_such" does not exist/,
    "a wrong body",
  );
  await write(
    "purser_void_unsigned",
    "CREATE FUNCTION purser_misnamed() RETURNS INT LANGUAGE sql AS 'SELECT 1';",
  );
  await refused(/must make one function of its name, and made 0/, "another name");
  await write(
    "purser_void_unsigned",
    "CREATE FUNCTION purser_void_unsigned() RETURNS INT LANGUAGE sql AS $$ SELECT purser_circle(); $$;",
  );
  await write(
    "purser_circle",
    "CREATE FUNCTION purser_circle() RETURNS INT LANGUAGE sql AS $$ SELECT purser_void_unsigned(); $$;",
  );
  await refused(
    /call each other: .*purser_void_unsigned -> purser_circle -> purser_void_unsigned/,
    "a circle",
  );
});

t.test("functions are created before their callers, always in the same order", async (t) => {
  const names = (await readFunctions()).files.map(({ name }) => name);
  const comesBefore = (called: string, caller: string) =>
    t.ok(names.indexOf(called) < names.indexOf(caller), `${called} before ${caller}`);
  comesBefore("purser_leaves_window_at", "purser_release_times");
  comesBefore("purser_sum_size", "purser_write_sums");
  comesBefore("purser_settlements_finalize", "purser_transaction_final");
  comesBefore("purser_payment_voided", "purser_settlements_finalize");
  t.same(
    (await readFunctions()).files.map(({ name }) => name),
    names,
  );
});

t.test("an older build leaves a newer build's functions alone", async (t) => {
  const { client, connectionString, functionsDirectory, start, change, setVersion } =
    await world(t);
  const older = await readFunctions(functionsDirectory);
  await change("purser_emit", (sql) => `-- changed\n${sql}`);
  await setVersion(older.version + 1);
  t.same((await start()).functions, ["purser_emit"], "the newer build");
  const newer = await made(client);

  await change("purser_emit", (sql) => sql.replace("-- changed\n", ""));
  await setVersion(older.version);
  t.same(await start(), { migrations: [], functions: [], newerFunctions: older.version + 1 });
  t.same(newIn(newer, await made(client)), [], "the older build changed nothing");
  t.equal(await readInstalled(client, older), "newer", "it may serve");
  t.same(
    await reinstallFunctions(connectionString),
    [],
    "a running process of the older build changes nothing either",
  );
});

t.test("older functions are detected, and a running process reinstalls its own", async (t) => {
  const { client, connectionString, start, change } = await world(t);
  const own = await readFunctions();
  t.equal(await readInstalled(client, own), "own");
  // Like a build without versions, which records only its checksum.
  await client.query(
    `UPDATE purser_functions SET checksum = 'of another build' WHERE name = 'purser_emit'`,
  );
  await change("purser_emit", (sql) => `-- older\n${sql}`);
  t.equal(await readInstalled(client, own), "older");
  t.same(await reinstallFunctions(connectionString), ["purser_emit"]);
  t.equal(await readInstalled(client, own), "own");
  await start();
  t.equal(await readInstalled(client, own), "older", "the same version with other contents");
});

t.test("a start yields to a payment transaction, and then continues", async (t) => {
  const { client, start, change } = await world(t);
  await change("purser_payment_event", (sql) => `-- changed\n${sql}`);
  await client.query("BEGIN");
  await client.query("LOCK TABLE payments IN ROW EXCLUSIVE MODE");
  const starting = start();
  // In real time: the start meets the lock and yields several times. On a busy machine the check is weaker, but
  // cannot fail wrongly.
  await new Promise((resolve) => setTimeout(resolve, 900));
  await client.query("COMMIT");
  t.same((await starting).functions, ["purser_payment_event"]);
});

t.test("every SQLSTATE that a function raises is in the table once", async (t) => {
  const declared = Object.values(sqlstates).flatMap((value) =>
    typeof value === "string" && value.startsWith("PU") ? [value] : [],
  );
  const raised = (await readFunctions()).files.flatMap(({ sql }) =>
    [...sql.matchAll(/ERRCODE = '(\w+)'/g)].flatMap(([, state]) => state ?? []),
  );
  t.ok(raised.length >= 4);
  t.same(raised.sort(), declared.sort());
  t.equal(new Set(declared).size, declared.length);
});

t.test("a rewritten migration keeps its checksum: the build before accepts it", async (t) => {
  const connectionString = await emptyDatabase(t);
  await migrate({ connectionString });
  const client = new Client({ connectionString });
  await client.connect();
  t.teardown(() => client.end());
  for (const [name, checksum] of REWRITTEN) {
    const { rows } = await client.query(
      "SELECT checksum FROM _prisma_migrations WHERE migration_name = $1",
      [name],
    );
    t.same(rows, [{ checksum }], name);
  }
  t.same((await migrate({ connectionString })).migrations, []);
  await client.query("UPDATE _prisma_migrations SET checksum = 'other' WHERE migration_name = $1", [
    [...REWRITTEN.keys()][0],
  ]);
  await t.rejects(migrate({ connectionString }), { message: /different content/ });
});
