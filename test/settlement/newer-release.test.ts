// Goal: settlements of a scheme that only a newer release knows stop nothing after a rollback, and are decided when
// that release runs again.
import t from "tap";
import type { Sql } from "../../server/infra/db/pool.ts";
import { testChain } from "../helpers/chain.ts";
import {
  authorize,
  BRISK,
  payers,
  randomAddress,
  request,
  settle,
  startEngine,
} from "../helpers/engine.ts";
import { approvePermit2, authorizePermit2 } from "../helpers/permit2.ts";
import { testDatabase } from "../helpers/postgres.ts";
import { until } from "../helpers/until.ts";

const NEWER = "of-a-newer-release";

t.test("a rollback with settlements of a newer scheme, queued and sent", async (t) => {
  const chain = await testChain(t);
  const database = await testDatabase(t);
  const start = () => startEngine(t, { databaseUrl: database.url, chain, timings: BRISK });
  const to = randomAddress();
  const [payer, one, other] = payers(3);
  if (!payer || !one || !other) throw new Error("no payer");
  await chain.mint([payer.address, one.address, other.address], 10_000n);
  await approvePermit2(chain, [one, other]);
  const known = async () => request(await authorize(chain, payer, { to, value: 1_000n }));
  const waiting = request(await authorizePermit2(chain, one, { to }));
  const sent = request(await authorizePermit2(chain, other, { to }));
  const setScheme = (sql: Sql, id: string, scheme: string) =>
    sql.query("UPDATE settlements SET terms = $2 WHERE id = $1", [id, JSON.stringify({ scheme })]);
  const rowOf = async (id: string) => {
    const { rows } = await database.pool.query<{ status: string; lane_address: string | null }>(
      "SELECT status, lane_address FROM settlements WHERE id = $1",
      [id],
    );
    return rows[0];
  };

  // The newer release accepts two, sends one of them, and stops.
  const newer = await start();
  await chain.testClient.setAutomine(false);
  await newer.engine.settlement.accept(newer.pool, sent);
  await until(async () => (await rowOf(sent.id))?.status === "submitted");
  await newer.stop();
  const client = await database.pool.connect();
  await client.query("BEGIN");
  await newer.engine.settlement.accept(client, waiting);
  await setScheme(client, waiting.id, NEWER);
  await setScheme(client, sent.id, NEWER);
  await client.query("UPDATE settlements SET turn = now() - interval '1 hour'");
  await client.query("COMMIT");
  client.release();

  const older = await start();
  await chain.testClient.setAutomine(true);
  await chain.testClient.mine({ blocks: 1 });
  await older.engine.settlement.assertAvailable(chain.chainId, { kind: "facilitated" });
  for (let payments = 0; payments < 2; payments += 1) {
    t.match(await settle(older, await known()), { status: "settled" }, older.logText());
    await chain.testClient.mine({ blocks: 3 });
  }
  t.match(await rowOf(waiting.id), { status: "queued", lane_address: null }, "nothing is sent");
  t.match(await rowOf(sent.id), { status: /queued|submitted/ }, "nothing is decided");
  t.same(
    older.logs.filter(({ level }) => level === "error"),
    [],
    "and nothing is wrong",
  );
  await older.stop();

  for (const { id } of [waiting, sent]) await setScheme(database.pool, id, "exact-permit2");
  const again = await start();
  for (const { id } of [waiting, sent])
    t.match(await again.engine.settlement.wait(id, 15_000), { status: "settled" }, again.logText());
  t.equal(await chain.usdcOf(to), 4_000n, "each moved once");
});
