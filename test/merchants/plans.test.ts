// Goal: a merchant's reads cost only as much as its own settlements: with 60,000 of others, no statement reads
// theirs or scans a table.
import t from "tap";
import { testApp } from "../helpers/app.ts";
import { signIn } from "../helpers/owner.ts";
import { createPool } from "../../server/infra/db/pool.ts";
import { makeRefund } from "../../server/plugins/merchants/refund-store.ts";
import { keepProductRefusals, keepRefusals } from "../../server/plugins/merchants/refusals.ts";
import { databaseWithPlans, recordScans, type Scan } from "../conventions/plans.ts";
import { send } from "./world.ts";

const OTHERS = 300;
const EACH = 200;
const BIG = new Set(["settlements", "refunds"]);

t.test("query plans of a merchant's reads", async (t) => {
  const database = await databaseWithPlans(t);
  const ctx = await testApp(t, { database });
  const { app } = ctx;
  const merchant = await signIn(ctx);
  const payTo = merchant.account.address.toLowerCase();
  await database.pool.query("ALTER TABLE settlements DISABLE TRIGGER USER");
  await database.pool.query(
    `INSERT INTO settlements (from_address, chain_id, asset, nonce, id, kind, to_address, value, valid_after,
       valid_before, signature, relay, status, error_reason, resource_url, tx_hash, proof, created_at, settled_at, final_at, class)
     SELECT '0x' || lpad(to_hex(n), 40, '0'), 84532, $2, '0x' || lpad(to_hex(m * 1000 + n), 64, '0'),
            'pay_' || m || '_' || n, 'facilitated', CASE m WHEN 0 THEN $1 ELSE '0x' || lpad(to_hex(m), 40, '0') END,
            n, 0, 1, '', true, CASE n % 10 WHEN 0 THEN 'failed' ELSE 'settled' END,
            CASE n % 10 WHEN 0 THEN 'test' END, 'https://api.example/' || n % 7, '0x' || lpad(to_hex(m * 1000 + n), 64, '0'), '{"kind":"receipt"}', at, at, at, 2
       FROM generate_series(0, $3) m, generate_series(1, $4) n,
            LATERAL (SELECT now() - n * interval '5 hours' AS at) times`,
    [payTo, ctx.chain.usdc.toLowerCase(), OTHERS, EACH],
  );
  await database.pool.query("ALTER TABLE settlements ENABLE TRIGGER USER");
  await database.pool.query("VACUUM (ANALYZE) settlements, refunds");
  const scans = recordScans(app.pool, app.prismaPool);
  const read = async (path: string): Promise<Record<string, unknown>> => {
    const before = scans.length;
    const { status, body } = await send(ctx, merchant, "GET", `/api/merchant${path}`);
    t.equal(status, 200, path);
    t.ok(scans.length > before, `plans of ${path} were recorded`);
    return body;
  };
  const bad = (): Scan[] =>
    scans.filter(
      ({ table, node, rows }) => BIG.has(table) && (node === "Seq Scan" || rows > 3 * EACH),
    );
  await read("?days=90");
  const { nextCursor } = await read("/settlements?limit=50");
  await read(`/settlements?limit=50&cursor=${String(nextCursor)}`);
  await read("/settlements?status=failed&minimum=0.0001");
  await read(`/settlements?payer=0x${"7".padStart(40, "0")}`);
  await read("/settlements/pay_0_3");
  await read(`/settlements?payment=0x${"3".padStart(64, "0")}`);
  await read("/settlements?payment=pay_0_3");
  const { nextCursor: later } = await read("/products?days=90&limit=1");
  await read(`/products?days=90&limit=1&cursor=${String(later)}`);
  const csv = await app.inject({ url: "/api/merchant/settlements.csv", headers: merchant.headers });
  t.equal(csv.body.trim().split("\r\n").length, EACH + 1);
  await keepProductRefusals(app.pool, [
    {
      payee: payTo,
      chainId: 84_532,
      url: "https://api.example/1",
      method: null,
      reason: "invalid_payload",
      count: 3,
    },
  ]);
  await keepRefusals(app.pool, [
    { payee: payTo, chainId: 84_532, operation: "verify", reason: "invalid_payload", count: 3 },
  ]);
  const url = new URL(database.url);
  url.searchParams.set("options", "-c plan_cache_mode=force_generic_plan");
  const pool = createPool(url.href, { maxConnections: 1 });
  t.teardown(() => pool.end());
  const locked = recordScans(pool);
  const { rows: owners } = await database.pool.query<{ id: string }>(
    "SELECT id FROM owners WHERE address = $1",
    [payTo],
  );
  const made = await makeRefund(
    { pool, settlement: app.settlement, fault: async () => undefined },
    {
      id: "rfd_plan",
      owner: { id: owners[0]?.id ?? "", address: payTo as `0x${string}`, chainId: 0 },
      settlementId: "pay_0_3",
      authorization: {
        chainId: 84_532,
        asset: ctx.chain.usdc,
        from: payTo as `0x${string}`,
        to: `0x${"3".padStart(40, "0")}`,
        value: 3n,
        validAfter: 0n,
        validBefore: 4_102_444_800n,
        nonce: `0x${"a".repeat(64)}`,
        signature: "0x00",
      },
      numberOf: () => 0,
      merchant: undefined,
    },
  );
  t.same(made, { outcome: "made" });
  t.ok(locked.length > 0);
  scans.push(...locked);
  // The refunds table is empty: Postgres scans small tables.
  t.same(
    bad().filter(({ statement }) => !/FROM refunds r/.test(statement)),
    [],
  );
  t.ok(
    scans.some(({ index }) => index === "settlements_payee_idx"),
    "its index is used",
  );
  const before = bad().length;
  await app.pool.query("SELECT count(*) FROM settlements WHERE error_message = 'has no index'");
  t.ok(bad().length > before, "a full scan is detected");
});
