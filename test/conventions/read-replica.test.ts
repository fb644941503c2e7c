// Goal: a read that a standby may answer is never older than the primary, waits for the standby no longer than its bound,
// and never fails because of it. (`operations/read-replica` has a real standby; here the position is written by hand.)
import t, { type Test } from "tap";
import { Registry } from "prom-client";
import type { Sql } from "../../server/infra/db/pool.ts";
import type { PrismaClient } from "../../server/infra/db/prisma.ts";
import { ReadReplica } from "../../server/infra/db/read-replica.ts";
import { testDatabase } from "../helpers/postgres.ts";

const BOUND_MS = 250;
const NOTHING = "'0/1'::pg_lsn";
const EVERYTHING = "pg_current_wal_lsn()";

/** The clients are only names here: which of them a read got is all that counts. */
const named = (name: string) => name as unknown as PrismaClient;
const nameOf = (prisma: PrismaClient) => prisma as unknown as string;

/** The test's own database, that of the standby as one that has replayed as much as `replayed` says. */
async function world(t: Test) {
  const { pool } = await testDatabase(t);
  const standby = {
    replayed: EVERYTHING,
    isInRecovery: true,
    failure: undefined as Error | undefined,
    /** Called before each answer, with how many there were. */
    onAsked: (_asked: number) => {},
    asked: 0,
  };
  const clock = { ms: 0 };
  const logged: string[] = [];
  const write = (_fields: object, text: string) => void logged.push(text);
  const primary = { sql: pool as unknown as Sql, prisma: named("primary") };
  const status = {
    query(text: string, values?: unknown[]) {
      standby.onAsked((standby.asked += 1));
      if (standby.failure) throw standby.failure;
      const asStandby = text
        .replaceAll("pg_is_in_recovery()", String(standby.isInRecovery))
        .replaceAll("pg_last_wal_replay_lsn()", standby.replayed);
      return pool.query(asStandby, values);
    },
  } as unknown as Sql;
  const metrics = new Registry();
  const replica = new ReadReplica({
    primary,
    replica: { status, prisma: named("replica") },
    metrics,
    nowMs: () => clock.ms,
    log: { warn: write, info: (text) => void logged.push(text) },
  });
  const server = () => replica.read(async (prisma) => nameOf(prisma));
  const used = async () =>
    (await metrics.getSingleMetric("purser_read_replica_used")?.get())?.values;
  return { replica, standby, clock, logged, server, used };
}

t.test("before the first check the primary is read", async (t) => {
  const { replica, standby, server } = await world(t);
  t.equal(await server(), "primary");
  t.equal(standby.asked, 0);
  await replica.check();
  t.equal(await server(), "replica");
});

t.test("a read waits until the standby has what the primary had written", async (t) => {
  const { replica, standby, server } = await world(t);
  await replica.check();
  standby.replayed = NOTHING;
  standby.asked = 0;
  standby.onAsked = (asked) => {
    if (asked === 3) standby.replayed = EVERYTHING;
  };
  t.equal(await server(), "replica");
  t.equal(standby.asked, 3, "not before it had caught up");
});

t.test("a standby that stays behind costs no more than the bound", async (t) => {
  const { replica, standby, clock, server } = await world(t);
  await replica.check();
  standby.replayed = NOTHING;
  standby.onAsked = () => {
    clock.ms += 50;
  };
  const startMs = clock.ms;
  t.equal(await server(), "primary", "never the old state");
  t.ok(clock.ms - startMs > BOUND_MS && clock.ms - startMs <= BOUND_MS + 50, `${clock.ms} ms`);
  standby.replayed = EVERYTHING;
  t.equal(await server(), "replica", "and the next read may use it");
});

t.test("a standby that is far behind is not asked by reads", async (t) => {
  const { replica, standby, clock, logged, server, used } = await world(t);
  await replica.check();
  standby.replayed = NOTHING;
  await replica.check();
  t.match(await used(), [{ value: 1 }]);
  clock.ms += 6_000;
  await replica.check();
  t.match(await used(), [{ value: 0 }]);
  t.match(logged.at(-1), "the read replica is 6 s behind; reads use the primary");
  standby.asked = 0;
  t.equal(await server(), "primary");
  t.equal(standby.asked, 0);
  standby.replayed = EVERYTHING;
  await replica.check();
  t.equal(await server(), "replica");
});

t.test("a standby that was promoted is not used", async (t) => {
  const { replica, standby, clock, server } = await world(t);
  await replica.check();
  standby.isInRecovery = false;
  standby.onAsked = () => {
    clock.ms += BOUND_MS;
  };
  t.equal(await server(), "primary", "also before the next check");
  await replica.check();
  standby.asked = 0;
  t.equal(await server(), "primary");
  t.equal(standby.asked, 0);
});

t.test("a standby that does not respond is read around until it does", async (t) => {
  const { replica, standby, logged, server } = await world(t);
  await replica.check();
  standby.failure = Object.assign(new Error("connect ECONNREFUSED"), { code: "ECONNREFUSED" });
  t.equal(await server(), "primary");
  t.match(logged.at(-1), "the read replica does not respond; reads use the primary");
  standby.asked = 0;
  t.equal(await server(), "primary");
  t.equal(standby.asked, 0, "one read found out for all");
  standby.failure = undefined;
  await replica.check();
  t.equal(await server(), "replica");
});

t.test("a read that breaks on the standby is repeated on the primary", async (t) => {
  const { replica } = await world(t);
  for (const code of ["P1017", "P2034"]) {
    await replica.check();
    const readers: string[] = [];
    const read = async (prisma: PrismaClient) => {
      readers.push(nameOf(prisma));
      if (readers.length === 1) throw Object.assign(new Error("broken"), { code });
      return "read";
    };
    t.equal(await replica.read(read), "read", code);
    t.same(readers, ["replica", "primary"], code);
  }
  await replica.check();
  let reads = 0;
  const wrong = replica.read(async () => {
    reads += 1;
    throw new TypeError("a defect of the read");
  });
  await t.rejects(wrong, TypeError);
  t.equal(reads, 1, "a defect is not repeated");
});
