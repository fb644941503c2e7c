// Goal: the list, its filters and the number of unread ones read a few rows, however many notifications an owner has.
import t from "tap";
import { createPrisma } from "../../server/infra/db/prisma.ts";
import { createPool } from "../../server/infra/db/pool.ts";
import { failingChannels } from "../../server/plugins/notifications/failing.ts";
import { countUnread, listNotifications } from "../../server/plugins/notifications/store.ts";
import { databaseWithPlans, recordScans } from "../conventions/plans.ts";

const EACH = 20_000;
const LIMIT = 25;
/** A page, the rows beside its place, and the unread ones. */
const MOST_ROWS = 4 * LIMIT;

t.test("notifications of a busy owner", async (t) => {
  const database = await databaseWithPlans(t);
  const pool = createPool(database.url, { maxConnections: 2 });
  t.teardown(() => pool.end());
  const prisma = createPrisma(pool);
  const client = await database.pool.connect();
  await client.query(
    "INSERT INTO owners (id, address) SELECT 'own_' || n, '0x' || lpad(n::text, 40, '0') FROM generate_series(1, 2) n",
  );
  // One agent in a thousand rows is quiet, one type in a thousand is rare, and a few are unread.
  // Without the triggers: nothing is sent.
  await client.query("SET session_replication_role = replica");
  await client.query(
    `INSERT INTO notifications (owner_id, id, type, agent_id, subject_id, data, created_at, read_at)
     SELECT 'own_' || o, 'ntf_' || lpad(n::text, 26, '0'),
            CASE WHEN n % 1000 = 0 THEN 'listing.flagged' ELSE 'payment.settled' END,
            CASE WHEN n % 1000 = 1 THEN 'agt_quiet' ELSE 'agt_' || n % 5 END, 'x', '{}', now() - n * interval '1 second',
            CASE WHEN n % 2000 <> 2 THEN now() END
       FROM generate_series(1, 2) o, generate_series(1, $1::integer) n`,
    [EACH],
  );
  await client.query("ANALYZE notifications");
  client.release(true);
  const scans = recordScans(pool);
  const page = { limit: LIMIT, after: undefined };
  for (const [what, filter, count] of [
    ["all", {}, LIMIT + 1],
    ["of a quiet agent", { agentId: "agt_quiet" }, 20],
    ["of a rare type", { type: "listing.flagged" }, 20],
    ["of the usual type", { type: "payment.settled" }, LIMIT + 1],
    ["unread", { readAt: null }, 10],
  ] as const) {
    scans.length = 0;
    const rows = await listNotifications(prisma, { ownerId: "own_1", ...filter }, page);
    t.equal(rows.length, count, what);
    const read = scans.filter(({ table }) => table === "notifications");
    t.ok(read.length > 0);
    for (const { node, rows: each, index } of read)
      t.ok(node !== "Seq Scan" && each <= MOST_ROWS, `${what}: ${each} rows by ${index ?? node}`);
  }
  scans.length = 0;
  t.equal(await countUnread(prisma, "own_1"), 10);
  t.same(await failingChannels(prisma, "own_1"), []);
  t.match(
    scans.filter(({ table }) => table === "notifications"),
    [{ index: "notifications_unread_idx" }],
  );
});
