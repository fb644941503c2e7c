// Goal: the start does not wait for Prisma, whose query compiler would take a sixth of it.
import t from "tap";
import { testApp } from "../helpers/app.ts";

t.test("a ready service has not used Prisma yet", async (t) => {
  // The very first start creates a secret, and stores it with Prisma.
  const { app: first, chain, database } = await testApp(t);
  await first.close();
  // Background work begins after the first responses of a port; this app has no port.
  const { app } = await testApp(t, { chain, database });
  const { rows } = await database.pool.query<{ name: string }>(
    "SELECT application_name AS name FROM pg_stat_activity WHERE datname = current_database()",
  );
  const names = rows.map(({ name }) => name);
  t.ok(names.includes("purser engine"), `its other connections exist: ${names.join(", ")}`);
  t.notOk(names.includes("purser prisma"));
  await app.prisma.owner.count();
  const { rowCount } = await database.pool.query(
    "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'purser prisma'",
  );
  t.ok(rowCount, "a Prisma query opens its connection");
});
