// Goal: the primary and the standby of the compose file start, each commit waits for the standby, and after its promotion
// commits go on, the service finds it, and a new standby can follow it.
// Tier: full (builds a cluster of Postgres servers).
import t from "tap";
import { createPool } from "../../server/infra/db/pool.ts";
import { checkDatabase } from "../../server/infra/db/settings.ts";
import { until } from "../helpers/until.ts";
import { composeServers, type Server } from "./cluster.ts";

const LONG_MS = 60_000;

t.test("a failover with the settings of the compose file", async (t) => {
  const { primary, standby, databaseUrl, follow } = await composeServers(t);
  const valueOf = async (server: Server, name: string) => {
    const { rows } = await server.pool.query<{ value: string }>(
      "SELECT current_setting($1) AS value",
      [name],
    );
    return rows[0]?.value;
  };
  const confirms = async (server: Server) => {
    const { rows } = await server.pool.query(
      "SELECT application_name FROM pg_stat_replication WHERE sync_state = 'sync'",
    );
    return rows.length === 1;
  };
  for (const name of ["max_connections", "max_slot_wal_keep_size"])
    t.equal(await valueOf(standby, name), await valueOf(primary, name), name);
  t.equal(await valueOf(primary, "max_connections"), "200");
  await until(() => confirms(primary), LONG_MS);
  const database = { databaseUrl, databasePooledUrl: undefined };
  t.same(await checkDatabase(database), [], "each commit waits for a standby");

  const pool = createPool(databaseUrl, { maxConnections: 2 });
  pool.on("error", () => undefined);
  t.teardown(() => pool.end());
  await pool.query("CREATE TABLE written (number int PRIMARY KEY)");
  await pool.query("INSERT INTO written VALUES (1)");

  await primary.kill();
  await standby.promote();
  await until(
    () =>
      pool.query("INSERT INTO written VALUES (2) ON CONFLICT DO NOTHING").then(
        () => true,
        () => false,
      ),
    LONG_MS,
  );
  t.equal(await valueOf(standby, "synchronous_standby_names"), "", "no commit waits");
  t.match(await checkDatabase(database), [/no commit waits for a standby/]);

  // A new standby in the place of the old primary, as in ops/compose.failed-over.yaml.
  const next = await follow(standby);
  await standby.pool.query("ALTER SYSTEM SET synchronous_standby_names = 'standby'");
  await standby.pool.query("SELECT pg_reload_conf()");
  await until(() => confirms(standby), LONG_MS);
  await pool.query("INSERT INTO written VALUES (3)");
  // It has the commit on its disk, and shows it soon.
  await until(async () => {
    const { rows } = await next.pool.query("SELECT number FROM written ORDER BY number");
    return rows.map(({ number }) => String(number)).join() === "1,2,3";
  }, LONG_MS);
  t.equal(await valueOf(next, "synchronous_standby_names"), "");
});
