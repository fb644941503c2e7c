// Goal: schema.prisma and the SQL migrations describe the same tables, and replicas that start together migrate
// once.
import { readFile } from "node:fs/promises";
import { Client } from "pg";
import t from "tap";
import { migrate, readMigrations } from "../../server/infra/db/migrate.ts";
import { MigrationError } from "../../server/infra/db/migration-error.ts";
import { emptyDatabase, testDatabase } from "../helpers/postgres.ts";
import { schemaDrift } from "../helpers/schema-engine.ts";

const SCHEMA_URL = new URL("../../prisma/schema.prisma", import.meta.url);

t.test("schema.prisma equals the result of the migrations", async (t) => {
  const { url } = await testDatabase(t);
  const schema = await readFile(SCHEMA_URL, "utf8");
  t.match(await schemaDrift(t, url, schema), /empty migration/i);
});

t.test("a column in only one of them is detected", async (t) => {
  const { url, pool } = await testDatabase(t);
  const schema = await readFile(SCHEMA_URL, "utf8");
  await pool.query("ALTER TABLE owners ADD COLUMN nickname TEXT");
  t.match(await schemaDrift(t, url, schema), /DROP COLUMN "nickname"/);
});

t.test("migrations contain only tables, indexes, constraints and grants", async (t) => {
  const statements = (await readMigrations())
    .map((migration) => migration.sql)
    .join("\n")
    .replaceAll(/--.*/g, "")
    .split(";")
    .map((statement) => statement.trim())
    .filter((statement) => statement !== "");
  t.ok(statements.length > 30);
  for (const statement of statements)
    t.match(
      statement,
      /^((CREATE (UNLOGGED )?|DROP )TABLE|(CREATE (UNIQUE )?|DROP )INDEX|ALTER TABLE|REVOKE) /,
    );
});

t.test("processes starting together on one database migrate exactly once", async (t) => {
  const connectionString = await emptyDatabase(t);
  const applied = await Promise.all(Array.from({ length: 5 }, () => migrate({ connectionString })));
  const names = (await readMigrations()).map((migration) => migration.name);
  const lists = applied.map(({ migrations }) => migrations);
  t.same(lists.flat().sort(), names, "each migration was applied by one of them");
  t.equal(lists.filter((list) => list.length > 0).length, 1, "all by the same one");
});

t.test(
  "a database of another build is refused, and a failing migration leaves nothing behind",
  async (t) => {
    const connectionString = await emptyDatabase(t);
    const client = new Client({ connectionString });
    await client.connect();
    t.teardown(() => client.end());
    // An existing table makes the first migration fail half way.
    await client.query("CREATE TABLE agents (id TEXT)");
    await t.rejects(migrate({ connectionString }), MigrationError);
    const { rows } = await client.query("SELECT to_regclass('owners') AS owners");
    t.equal(rows[0].owners, null, "the failed migration was rolled back completely");
    await client.query("DROP TABLE agents");
    await migrate({ connectionString });
    await client.query("UPDATE _prisma_migrations SET checksum = 'other'");
    await t.rejects(migrate({ connectionString }), {
      name: "MigrationError",
      message: /different build/,
    });
  },
);
