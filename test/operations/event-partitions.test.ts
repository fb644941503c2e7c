// Goal: live events are divided into partitions while payments write them, no event is lost or read twice, and old
// partitions go as a whole.
import t, { type Test } from "tap";
import { keepEventPartitions } from "../../server/infra/event-partitions.ts";
import { deleteOldRows } from "../../server/infra/retention.ts";
import { changedSince, ownersWithNews, readEvents } from "../../server/plugins/activity/events.ts";
import { testDatabase } from "../helpers/postgres.ts";
import { createPool, type Pool } from "../../server/infra/db/pool.ts";
import { databaseWithPlans, recordScans } from "../conventions/plans.ts";

const DAYS = { blockedDays: 50, bytesDays: 50, facilitatedDays: 50, statisticsDays: 50 };
const SPAN = 1_000_000n;

/** In place of the first range: two ranges of one transaction each, and the one in use. */
async function replaceFirst(pool: Pool, start: bigint): Promise<void> {
  await pool.query("ALTER TABLE events DETACH PARTITION events_first");
  const ranges = { events_one: [1n, 2n], events_two: [2n, 3n], events_now: [3n, start + SPAN] };
  for (const [name, [from, to]] of Object.entries(ranges))
    await pool.query(
      `CREATE TABLE ${name} PARTITION OF events FOR VALUES FROM (${from}) TO (${to})`,
    );
}

/** A database with smaller ranges. Other tests make transactions on the same server, but not that many. */
async function world(t: Test, make = (of: Test) => testDatabase(of)) {
  const database = await make(t);
  const pool = createPool(database.url, { maxConnections: 3 });
  t.teardown(() => pool.end());
  await pool.query("INSERT INTO owners (id, address) VALUES ('own_1', '0x' || repeat('0', 40))");
  const { rows } = await pool.query<{ at: bigint }>(
    "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS at",
  );
  const start = ((rows[0]?.at ?? 0n) / SPAN) * SPAN + 10n;
  /** An event with the number of a transaction that may be in the future. */
  const write = (tx: bigint, subject: string, age = "0 hours") =>
    pool.query(
      `INSERT INTO events (owner_id, tx, type, subject_id, created_at)
       VALUES ('own_1', $1, 'agent', $2, now() - $3::interval)`,
      [tx, subject, age],
    );
  const read = async () => {
    const after = { tx: 0n, seq: 0n };
    const found = await readEvents(pool, { ownerId: "own_1", after, limit: 100 });
    return found.map(({ subjectId }) => subjectId);
  };
  const tableOf = async (subject: string) => {
    const { rows: found } = await pool.query<{ name: string }>(
      "SELECT tableoid::regclass::text AS name FROM events WHERE subject_id = $1",
      [subject],
    );
    return found[0]?.name;
  };
  const keep = () => keepEventPartitions(pool, SPAN);
  return { database, pool, start, write, read, tableOf, keep };
}

t.test(
  "the table of before becomes the first range, and later events go into others",
  async (t) => {
    const { pool, start, write, read, tableOf, keep } = await world(t);
    await write(start, "early");
    t.equal(await tableOf("early"), "events_first");
    // Not only the transactions decide: a restored table may have higher numbers.
    await write(start + SPAN, "restored");
    const { made } = await keep();
    t.same(await keep(), { made: [], dropped: [] }, "nothing to do again");
    const next = start / SPAN + 3n;
    t.same(made, [`events_${next}`, `events_${next + 1n}`]);
    await write(next * SPAN + 1n, "late");
    await write(start + 100n * SPAN, "no range");
    t.same(await Promise.all(["early", "restored", "late", "no range"].map(tableOf)), [
      "events_first",
      "events_first",
      `events_${next}`,
      "events_other",
    ]);
    t.same(await read(), ["early", "restored", "late", "no range"], "in order over all partitions");
    t.same((await ownersWithNews(pool, ["own_1"], next * SPAN)).owners, ["own_1"]);
    t.same((await ownersWithNews(pool, ["own_1"], start + 101n * SPAN)).owners, []);
  },
);

t.test("a range that was passed goes when its last event is old, and not before", async (t) => {
  const { pool, start, write, read, keep } = await world(t);
  await keep();
  await replaceFirst(pool, start);
  await write(1n, "old", "50 hours");
  await write(2n, "old too", "50 hours");
  await write(2n, "young");
  await write(3n, "old, in use", "50 hours");
  await write(3n, "now");
  t.equal((await deleteOldRows(pool, DAYS))["events"], 1, "only from the partition in use");
  t.same((await keep()).dropped, ["events_one"]);
  t.same(await read(), ["old too", "young", "now"]);
});

t.test(
  "old events are deleted by their place, and young events of other partitions stay",
  async (t) => {
    const { pool, start, write, read, keep } = await world(t);
    for (const subject of ["a", "b", "c"]) await write(start, subject, "50 hours");
    await keep();
    const { rows } = await pool.query<{ name: string }>(
      "SELECT inhrelid::regclass::text AS name FROM pg_inherits WHERE inhparent = 'events'::regclass",
    );
    const ranges = rows
      .map(({ name }) => /^events_(\d+)$/.exec(name)?.[1])
      .filter((one) => one !== undefined);
    const [range = "0"] = ranges;
    t.ok(BigInt(range) * SPAN > start);
    for (const subject of ["x", "y", "z"]) await write(BigInt(range) * SPAN, subject);
    const places = await pool.query<{ count: number }>(
      "SELECT count(DISTINCT ctid)::int AS count FROM events",
    );
    t.equal(places.rows[0]?.count, 3, "the young ones have the same places");
    t.equal((await deleteOldRows(pool, DAYS))["events"], 3);
    t.same(await read(), ["x", "y", "z"]);
    await pool.query("DELETE FROM owners WHERE id = 'own_1'");
    t.same(await read(), [], "events of a deleted owner go with it, young ones too");
  },
);

t.test("while payments hold the table, the job gives up, and the next run does it", async (t) => {
  const { database, pool, start, write, keep, tableOf } = await world(t);
  await write(start, "before");
  const writer = await database.pool.connect();
  await writer.query("BEGIN");
  await writer.query(
    "INSERT INTO events (owner_id, type, subject_id) VALUES ('own_1', 'agent', 'open')",
  );
  await t.rejects(keep(), { code: "55P03" });
  await write(start, "meanwhile");
  t.equal(await tableOf("meanwhile"), "events_first");
  await writer.query("COMMIT");
  writer.release();
  t.ok((await keep()).made.length > 0);
  const { rows } = await pool.query("SELECT FROM events");
  t.equal(rows.length, 3);
});

t.test("hot statements skip the partitions of the past", async (t) => {
  const { database, pool, start, write, keep } = await world(t, databaseWithPlans);
  await keep();
  await replaceFirst(pool, start);
  for (const tx of [1n, 2n, start]) await write(tx, "one");
  const url = new URL(database.url);
  url.searchParams.set("options", "-c plan_cache_mode=force_generic_plan");
  const generic = createPool(url.href, { maxConnections: 1 });
  t.teardown(() => generic.end());
  const scans = recordScans(generic);
  const after = { tx: start - 1n, seq: 0n };
  t.equal((await readEvents(generic, { ownerId: "own_1", after, limit: 100 })).length, 1);
  await changedSince(generic, { ownerId: "own_1", after, paymentIds: ["one"] });
  await ownersWithNews(generic, ["own_1"], start);
  await generic.query("SELECT purser_emit('own_1', 'agent', NULL, 'one')");
  const past = scans.filter(({ partition }) => /^events_(one|two)$/.test(partition));
  t.same(past, []);
  t.ok(scans.filter(({ partition }) => partition === "events_now").length >= 4, "four statements");
  await generic.query("SELECT count(*) FROM events");
  t.ok(
    scans.some(({ partition }) => partition === "events_one"),
    "a read of the past is detected",
  );
});
