// Goal: a test that leaves a database connection open fails and names its last statement; one that closes slightly
// late does not.
import { Client } from "pg";
import t, { type Test } from "tap";
import { testDatabase } from "../helpers/postgres.ts";

async function databaseAndItsEnd(closedWithinMs: number) {
  const ends: (() => unknown)[] = [];
  const test: Pick<Test, "teardown"> = { teardown: (end) => void ends.push(end) };
  const database = await testDatabase(test, { closedWithinMs });
  const client = new Client({ connectionString: database.url });
  client.on("error", () => undefined);
  await client.connect();
  await client.query("SELECT 'left open'");
  return { client, end: async () => Promise.all(ends.map((each) => each())) };
}

t.test("never closed", async (t) => {
  const { end } = await databaseAndItsEnd(100);
  await t.rejects(end(), { message: "connections were left open: SELECT 'left open'" });
});

t.test("closed while the teardown waits", async (t) => {
  const { client, end } = await databaseAndItsEnd(60_000);
  const ending = end();
  await client.end();
  await ending;
  t.pass("no error");
});
