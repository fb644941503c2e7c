// Goal: what the port waits for does not wait for Prisma, whose query compiler is a sixth of a start.
import t from "tap";
import { testApp } from "../helpers/app.ts";

t.test("a service that is ready has asked Prisma nothing", async (t) => {
  // The very first start makes a secret, and writes it by Prisma.
  const { app: first, chain, database } = await testApp(t);
  await first.close();
  // Its background begins after the first answers of a port, and it has none.
  const { app } = await testApp(t, { chain, database });
  const { rows } = await database.pool.query<{ name: string }>(
    "SELECT application_name AS name FROM pg_stat_activity WHERE datname = current_database()",
  );
  const names = rows.map(({ name }) => name);
  t.ok(names.includes("purser engine"), `its other connections are there: ${names.join(", ")}`);
  t.notOk(names.includes("purser prisma"));
  await app.prisma.owner.count();
  const { rowCount } = await database.pool.query(
    "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'purser prisma'",
  );
  t.ok(rowCount, "and where it asks, that is seen");
});
