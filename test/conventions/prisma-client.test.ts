// Goal: peculiarities of Prisma's client and its adapter (errors, clocks, time zones, decimals, pages) never reach
// a caller.
import { randomBytes } from "node:crypto";
import t, { type Test } from "tap";
import { Client } from "pg";
import { readPage, toPage } from "../../server/core/paging.ts";
import { newId } from "../../server/core/ids.ts";
import { createPool, isDatabaseUnavailable, isTextRefused } from "../../server/infra/db/pool.ts";
import { createPrisma, databaseNow } from "../../server/infra/db/prisma.ts";
import { insertAgent, listAgents, updateAgent } from "../../server/plugins/agents/store.ts";
import { noteAudit } from "../../server/plugins/audit/store.ts";
import { storeAllowlist } from "../../server/plugins/agents/payees-store.ts";
import { insertApiKey, revokeApiKeys } from "../../server/plugins/auth/api-keys.ts";
import { insertSession } from "../../server/plugins/auth/sessions.ts";
import { unsigned } from "../../server/plugins/custody/envelope.ts";
import { insertWallet } from "../../server/plugins/custody/store.ts";
import { leaseCursor } from "../../server/plugins/reconciliation/cursor-store.ts";
import { ensureOwner, insertNonce } from "../../server/plugins/owners/store.ts";
import { testDatabase } from "../helpers/postgres.ts";

const address = () => `0x${randomBytes(20).toString("hex")}` as const;

async function connected(t: Test, url: string, maxConnections = 5) {
  const pool = createPool(url, { maxConnections });
  pool.on("error", () => undefined);
  const prisma = createPrisma(pool);
  t.teardown(async () => {
    await prisma.$disconnect();
    if (!pool.ended) await pool.end();
  });
  return { pool, prisma };
}

const failureOf = async (work: () => Promise<unknown>): Promise<unknown> => {
  try {
    await work();
  } catch (error) {
    return error;
  }
  throw new Error("it did not fail");
};

t.test("an outage and a rejected text are recognised in each of their forms", async (t) => {
  const { url } = await testDatabase(t);
  const down = await connected(t, "postgres://nobody:none@127.0.0.1:1/none");
  const { pool, prisma } = await connected(t, url);
  const killed = "SELECT pg_terminate_backend(pg_backend_pid())";
  const outages: Record<string, () => Promise<unknown>> = {
    "SQL without Prisma, port closed": () => down.pool.query("SELECT 1"),
    "a query, port closed": () => down.prisma.owner.findFirst(),
    "SQL, port closed": () => down.prisma.$queryRaw`SELECT 1`,
    "a transaction, port closed": () => down.prisma.$transaction((tx) => tx.owner.findFirst()),
    "a connection that is ended": () => prisma.$queryRawUnsafe(killed),
    "one that is ended in a transaction": () =>
      prisma.$transaction(async (tx) => tx.$queryRawUnsafe(killed)),
  };
  const raise = (state: string) =>
    `DO $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '${state}'; END $$`;
  for (const state of ["53100", "53200", "53300", "53400", "58030"]) {
    outages[`${state} from Prisma`] = () => prisma.$executeRawUnsafe(raise(state));
    outages[`${state} from SQL`] = () => pool.query(raise(state));
  }
  for (const [what, work] of Object.entries(outages)) {
    const error = await failureOf(work);
    t.ok(isDatabaseUnavailable(error), what);
    t.notOk(isTextRefused(error), `${what} is not a rejected text`);
  }
  t.same(await prisma.owner.count(), 0, "the next query gets a connection again");

  const nul = await failureOf(() => prisma.owner.findFirst({ where: { id: "a\0b" } }));
  t.ok(isTextRefused(nul) && !isDatabaseUnavailable(nul), "NUL");
  const twice = await failureOf(async () => {
    const owner = { id: "own_1", address: address() };
    await prisma.owner.create({ data: owner });
    await prisma.owner.create({ data: owner });
  });
  t.notOk(isTextRefused(twice) || isDatabaseUnavailable(twice), "a duplicate row is neither");

  await pool.end();
  t.ok(
    isDatabaseUnavailable(await failureOf(() => prisma.owner.findFirst())),
    "after the pool has ended",
  );
});

t.test("a pool without a free connection is an outage", async (t) => {
  const { url } = await testDatabase(t);
  const { pool, prisma } = await connected(t, url, 1);
  const held = await pool.connect();
  const errors = await Promise.all([
    failureOf(() => prisma.owner.findFirst()),
    failureOf(() => prisma.$transaction((tx) => tx.owner.findFirst())),
  ]);
  held.release();
  for (const error of errors) t.ok(isDatabaseUnavailable(error), String(error));
});

t.test("times are right in a database with a distant time zone", async (t) => {
  const { url } = await testDatabase(t);
  const admin = new Client({ connectionString: url });
  await admin.connect();
  await admin.query(
    `ALTER DATABASE ${new URL(url).pathname.slice(1)} SET timezone TO 'Asia/Tokyo'`,
  );
  const { rows } = await admin.query<{ now: Date }>("SELECT now() AS now");
  await admin.end();
  const { pool, prisma } = await connected(t, url);
  const driftMs = (await databaseNow(prisma)).getTime() - (rows[0]?.now.getTime() ?? 0);
  t.ok(driftMs >= 0 && driftMs < 60_000, `read: ${driftMs} ms later`);
  await insertNonce(prisma, "0123456789abcdef", 600);
  const left = await pool.query<{ seconds: number }>(
    "SELECT extract(epoch FROM expires_at - now())::float8 AS seconds FROM auth_nonces",
  );
  const seconds = left.rows[0]?.seconds ?? 0;
  t.ok(seconds > 500 && seconds <= 600, `written: ${seconds} s left of 600`);
});

t.test("timestamps come from the database's clock, not from the process", async (t) => {
  const { url } = await testDatabase(t);
  const { pool, prisma } = await connected(t, url);
  const RealDate = Date;
  const AHEAD_MS = 3 * 24 * 3_600_000;
  class AheadDate extends RealDate {
    constructor(...args: unknown[]) {
      if (args.length === 0) super(RealDate.now() + AHEAD_MS);
      else super(...(args as [string]));
    }
    static override now = () => RealDate.now() + AHEAD_MS;
  }
  globalThis.Date = AheadDate as DateConstructor;
  try {
    const ownerId = await ensureOwner(prisma, address());
    await insertSession(prisma, { ownerId, tokenHash: randomBytes(32), userAgent: "", ip: "" });
    const agent = await insertAgent(prisma, newAgent(ownerId));
    const sealed = { kid: "k", wrappedDataKey: randomBytes(8), ciphertext: randomBytes(8) };
    const seal = unsigned({ address: address(), chainId: 0 });
    const wallet = { agentId: agent.id, address: agent.walletAddress };
    await insertWallet(prisma, { ...wallet, sealed, seal, rulesVersion: 1 });
    await storeAllowlist(prisma, agent.id, { before: [], after: [payee()] });
    const key = { keyHash: randomBytes(32), prefix: "p", last4: "1234", label: "" };
    await insertApiKey(prisma, { ...key, id: newId("key"), agentId: agent.id, expiresAt: null });
    await revokeApiKeys(prisma, agent.id, undefined);
    await noteAudit(prisma, audit(ownerId, agent.id));
    await updateAgent(prisma, agent.id, { name: "Later" });
    const cursor = { owner: "me", leaseSeconds: 30, firstBlock: 1n };
    await leaseCursor(prisma, { chainId: 1, asset: address() }, cursor);
  } finally {
    globalThis.Date = RealDate;
  }
  const { rows } = await pool.query<{ at: string; column: string }>(`
    SELECT 'owners' AS column, created_at AS at FROM owners
    UNION ALL SELECT unnest(ARRAY['seen', 'session']), unnest(ARRAY[last_seen_at, created_at]) FROM sessions
    UNION ALL SELECT unnest(ARRAY['agent', 'edit']), unnest(ARRAY[created_at, updated_at]) FROM agents
    UNION ALL SELECT 'wallets', updated_at FROM agent_wallets
    UNION ALL SELECT 'allowlist', created_at FROM allowlist_entries
    UNION ALL SELECT unnest(ARRAY['key', 'revoked']), unnest(ARRAY[created_at, revoked_at]) FROM api_keys
    UNION ALL SELECT 'audit', created_at FROM audit_log
    UNION ALL SELECT unnest(ARRAY['cursor', 'lease']), unnest(ARRAY[updated_at, lease_until]) FROM ledger_cursors`);
  t.equal(rows.length, 12);
  for (const { column, at } of rows)
    t.ok(new Date(at).getTime() < Date.now() + 3_600_000, `${column}: ${at}`);
});

t.test("amounts keep every digit", async (t) => {
  const { url } = await testDatabase(t);
  const { pool, prisma } = await connected(t, url);
  const ownerId = await ensureOwner(prisma, address());
  const most = 2n ** 256n - 1n;
  const agent = await insertAgent(prisma, { ...newAgent(ownerId), dailyLimitAtomic: most });
  t.equal(agent.dailyLimitAtomic, most);
  const { rows } = await pool.query<{ limit: string }>(
    "SELECT daily_limit::text AS limit FROM agents",
  );
  t.equal(rows[0]?.limit, String(most));
});

t.test("pages contain every row once, also within a microsecond", async (t) => {
  const { url } = await testDatabase(t);
  const { pool, prisma } = await connected(t, url);
  const ownerId = await ensureOwner(prisma, address());
  // All within two milliseconds; every third pair shares a microsecond, and ids are not in order of time.
  await pool.query(
    `INSERT INTO agents (id, owner_id, name, network, wallet_address, daily_limit, created_at)
     SELECT 'agt_' || md5(g::text), $1, 'n', 'eip155:1', '0x' || lpad(to_hex(g), 40, '0'), 1,
            timestamptz '2026-05-01 12:00:00.000990Z' + (g / 2 * 2 + (g % 3) / 2) * interval '1 microsecond'
       FROM generate_series(1, 60) g`,
    [ownerId],
  );
  const { rows } = await pool.query<{ id: string }>(
    "SELECT id FROM agents ORDER BY created_at DESC, id DESC",
  );
  const expected = rows.map(({ id }) => id);
  const read = async (cursor: string | undefined) => {
    const page = readPage({ limit: "7", ...(cursor === undefined ? {} : { cursor }) });
    const found = await listAgents(prisma, { ownerId, archived: false, page });
    return toPage(found, page.limit, ({ id }) => id);
  };
  const seen: string[] = [];
  let cursor: string | undefined;
  do {
    const { items, nextCursor } = await read(cursor);
    seen.push(...items);
    cursor = nextCursor ?? undefined;
  } while (cursor !== undefined);
  t.same(seen, expected);

  const first = await read(undefined);
  await pool.query(
    "UPDATE agents SET created_at = created_at - id_place * interval '1 second' FROM (SELECT id AS place_id, row_number() OVER (ORDER BY created_at DESC, id DESC) AS id_place FROM agents) places WHERE place_id = id",
  );
  const spread = await read(undefined);
  t.same(spread.items, first.items);
  await pool.query("DELETE FROM agents WHERE id = $1", [spread.items.at(-1)]);
  const after = await read(spread.nextCursor ?? undefined);
  t.same(after.items, expected.slice(7, 14), "the page after a row that was deleted");
});

const payee = () => ({
  address: address(),
  label: "",
  site: "",
  dailyLimitAtomic: null,
  perPaymentLimitAtomic: null,
  expiresAtSeconds: null,
});

const newAgent = (ownerId: string) => ({
  id: newId("agt"),
  ownerId,
  name: "A",
  network: "eip155:1",
  walletAddress: address(),
  dailyLimitAtomic: 1n,
  weeklyLimitAtomic: null,
  monthlyLimitAtomic: null,
  perPaymentLimitAtomic: null,
  paymentsPerHour: null,
  fetch: "any" as const,
  expiresAtSeconds: null,
});

const audit = (ownerId: string, agentId: string) => ({
  ownerId,
  agentId,
  actor: address(),
  action: "agent.updated" as const,
  before: null,
  after: { name: "Later" },
  requestId: "req_1",
});
