// Goal: one payer's flood delays no other payer: withdrawals go first, then agents, then third parties in turns by payer and payee; the cost of a claim does not grow with the queue.
import t, { type Test } from "tap";
import { newId } from "../../server/core/ids.ts";
import type { Pool } from "../../server/infra/db/pool.ts";
import { acquireLease, type Lease } from "../../server/plugins/settlement/lane-store.ts";
import { claim, unclaim } from "../../server/plugins/settlement/store.ts";
import { testChain, type TestChain } from "../helpers/chain.ts";
import { expectLedgerEqualsChain } from "../helpers/engine-invariants.ts";
import {
  authorize,
  BRISK,
  payers,
  randomAddress,
  randomNonce,
  request,
  startEngine,
  type TestEngine,
} from "../helpers/engine.ts";
import { testDatabase } from "../helpers/postgres.ts";
import { until } from "../helpers/until.ts";

const CHAIN_ID = 84_532;
const ROOM = { batchable: 100, ownSolo: 16, thirdPartySolo: 4 };
const A_MINUTE = "interval '1 minute'";

/** Inserts queued rows as acceptance writes them, optionally with a given payer or payee. */
async function queue(
  pool: Pool,
  rows: { count: number; kind?: string; from?: string; to?: string; solo?: boolean },
): Promise<void> {
  const kind = rows.kind ?? "facilitated";
  const { rows: inserted } = await pool.query<{ nonce: string }>(
    `INSERT INTO settlements (from_address, chain_id, asset, nonce, id, kind, agent_id, to_address, value,
                              valid_after, valid_before, signature, relay, status)
     SELECT coalesce($2, '0x' || encode(sha256(('from' || n || random())::bytea), 'hex')::char(40)), $1, $4,
            '0x' || encode(sha256((n || 'x' || random())::bytea), 'hex'), 'pay_' || n || random(), $5, $6,
            coalesce($3, '0x' || encode(sha256(('to' || n || random())::bytea), 'hex')::char(40)), 1, 0,
            4102444800, '\\x00', true, 'queued' FROM generate_series(1, $7) n RETURNING nonce`,
    [
      CHAIN_ID,
      rows.from ?? null,
      rows.to ?? null,
      randomAddress(),
      kind,
      kind === "facilitated" ? null : "agt_1",
      rows.count,
    ],
  );
  if (rows.solo === true)
    await pool.query("UPDATE settlements SET solo = TRUE WHERE nonce = ANY($1)", [
      inserted.map(({ nonce }) => nonce),
    ]);
}

async function world(t: Test): Promise<{ pool: Pool; lease: Lease }> {
  const { pool } = await testDatabase(t);
  // Only the order matters here, so agents' rows have no reservation.
  await pool.query("ALTER TABLE settlements DISABLE TRIGGER settlements_accepted");
  const lane = { chainId: CHAIN_ID, address: randomAddress() };
  const won = await acquireLease(pool, lane, "me", 600_000);
  if (!won) throw new Error("no lease");
  return { pool, lease: { ...lane, owner: "me", epoch: won.epoch } };
}

t.test("the order of a claim", async (t) => {
  const { pool, lease } = await world(t);
  const [flooder, merchant, customer, other] = [1, 2, 3, 4].map(randomAddress);
  await queue(pool, { count: 3_000, ...(flooder && merchant && { from: flooder, to: merchant }) });
  // A second flood: always new payers, one payee.
  const [victim] = [randomAddress()];
  await queue(pool, { count: 1_000, to: victim });
  if (!customer || !other || !merchant) throw new Error("no account");
  await queue(pool, { count: 1, from: customer, to: merchant });
  await queue(pool, { count: 2, from: other });
  await queue(pool, { count: 5, kind: "spend" });
  await queue(pool, { count: 1, kind: "withdrawal" });
  const claimed = await claim(pool, lease, ROOM);
  t.equal(claimed.length, 100);
  t.same(
    claimed.slice(0, 6).map(({ kind }) => kind),
    ["withdrawal", "spend", "spend", "spend", "spend", "spend"],
  );
  const places = (from: string) =>
    claimed.flatMap((row, index) => (row.authorization.from === from ? [index] : []));
  t.equal(places(customer).length, 1, "another customer of a flooded payee is in the next batch");
  t.equal(places(other).length, 2, "so are both payments of another payer");
  t.ok(
    claimed.filter((row) => row.authorization.from === flooder).length >= 40,
    "and the floods share the rest",
  );
  t.ok(claimed.filter((row) => row.authorization.to === victim).length >= 40);
});

t.test("a waiting flood is served in the end", async (t) => {
  const { pool, lease } = await world(t);
  const flooder = randomAddress();
  await queue(pool, { count: 90, from: flooder });
  // With time, the turns of a flood come before those of new payments.
  await pool.query(`UPDATE settlements SET turn = turn - 2 * ${A_MINUTE}`);
  await queue(pool, { count: 1_000 });
  const claimed = await claim(pool, lease, ROOM);
  t.equal(claimed.filter((row) => row.authorization.from === flooder).length, 90);
});

t.test("payments that go alone have their own places", async (t) => {
  const { pool, lease } = await world(t);
  await queue(pool, { count: 500, solo: true });
  await queue(pool, { count: 3, kind: "spend", solo: true });
  await queue(pool, { count: 50 });
  const claimed = await claim(pool, lease, ROOM);
  t.equal(claimed.filter(({ solo, kind }) => solo && kind === "facilitated").length, 4);
  t.equal(claimed.filter(({ solo, kind }) => solo && kind === "spend").length, 3);
  t.equal(claimed.filter(({ solo }) => !solo).length, 50);
});

t.test("a claim from a long queue reads few index entries", { timeout: 120_000 }, async (t) => {
  const { pool, lease } = await world(t);
  await queue(pool, { count: 10_000 });
  await queue(pool, { count: 2_000, solo: true });
  await queue(pool, { count: 2_000, from: randomAddress() });
  await pool.query("VACUUM (ANALYZE) settlements");
  const read = async () => {
    const { rows } = await pool.query<{ count: string }>(
      `SELECT idx_tup_read::text AS count FROM pg_stat_user_indexes WHERE indexrelname = 'settlements_claimable_idx'`,
    );
    return Number(rows[0]?.count);
  };
  const settled = async (): Promise<number> => {
    await pool.query("SELECT pg_stat_force_next_flush()");
    await pool.query("SELECT pg_stat_clear_snapshot()");
    return read();
  };
  const before = await settled();
  const claimed = await claim(pool, lease, ROOM);
  t.equal(claimed.length, 104);
  // Each connection flushes its statistics later: poll until they are visible.
  let entries = 0;
  await until(async () => (entries = (await settled()) - before) >= 104, 15_000);
  t.ok(entries < 500, `104 rows claimed of 14,000, ${entries} index entries read`);
  await unclaim(
    pool,
    lease,
    claimed.map(({ authorization }) => authorization),
    0,
  );
});

async function agentOf(pool: Pool, walletAddress: string): Promise<string> {
  const id = newId("agt");
  await pool.query("INSERT INTO owners (id, address) VALUES ($1, $2)", [id, randomAddress()]);
  await pool.query(
    "INSERT INTO agents (id, owner_id, name, network, wallet_address, daily_limit) VALUES ($1, $1, 'a', 'n', $2, 0)",
    [id, walletAddress.toLowerCase()],
  );
  return id;
}

/** An ERC-1271 wallet that accepts every signature. */
const YES = "0x631626ba7e60e01b60005260206000f3";

async function funded(chain: TestChain, count: number) {
  const accounts = payers(count);
  await chain.mint(
    accounts.map(({ address }) => address),
    100_000n,
  );
  return accounts;
}

t.test("withdrawals in a flood", { timeout: 150_000 }, async (t) => {
  const chain = await testChain(t);
  await chain.testClient.setAutomine(false);
  const mine = () => chain.testClient.mine({ blocks: 1 });
  await mine();
  const database = await testDatabase(t);
  const node = await startEngine(t, { databaseUrl: database.url, chain, timings: BRISK });
  const wallets = await funded(chain, 80);
  await Promise.all(
    wallets.map(({ address }) => chain.testClient.setCode({ address, bytecode: YES })),
  );
  const plain = await funded(chain, 250);
  const [own] = await funded(chain, 1);
  if (!own) throw new Error("no account");
  const agentId = await agentOf(database.pool, own.address);
  const to = randomAddress();
  // More solo payments than ten blocks hold, and ordinary ones.
  const solos = await Promise.all(
    wallets.map(async (payer) =>
      request({ ...(await authorize(chain, payer, { to })), signature: `0x${"ab".repeat(70)}` }),
    ),
  );
  const ordinary = await Promise.all(
    plain.map(async (payer) => request(await authorize(chain, payer, { to }))),
  );
  const { settlement } = node.engine;
  await settlement.acceptAll(node.pool, [...solos, ...ordinary]);
  const thirdPartySent = async () => {
    const { rowCount } = await database.pool.query(
      "SELECT 1 FROM settlements WHERE status = 'submitted' AND kind = 'facilitated'",
    );
    return (rowCount ?? 0) > 0;
  };
  for (let turn = 0; turn < 3; turn += 1) {
    // Wait until the flood has all the places it can get.
    await until(thirdPartySent, 30_000);
    const wanted = request(
      await authorize(chain, own, { to: randomAddress(), nonce: randomNonce() }),
      { kind: "withdrawal", agentId },
    );
    await settlement.accept(node.pool, wanted);
    const row = async () =>
      (
        await database.pool.query<{ status: string }>(
          "SELECT status FROM settlements WHERE id = $1",
          [wanted.id],
        )
      ).rows[0];
    // Although no block is mined: a place was kept for it.
    await until(async () => (await row())?.status === "submitted", 30_000);
    const from = await chain.publicClient.getBlockNumber();
    await arrived(node, chain);
    await mine();
    await mine();
    const outcome = await settlement.wait(wanted.id, 30_000);
    t.equal(outcome.status, "settled", node.logText());
    if (outcome.status === "settled")
      t.ok(outcome.blockNumber - from <= 2n, "in one of the next two blocks");
  }
  const rest = Promise.all(ordinary.map(({ id }) => settlement.wait(id, 60_000)));
  const mining = setInterval(() => void mine().catch(() => undefined), 100);
  await rest.finally(() => clearInterval(mining));
  const { rows } = await database.pool.query<{ most: number }>(
    `SELECT max(count)::int AS most FROM (
       SELECT count(*) FROM relayer_transactions t WHERE block_number IS NOT NULL AND (
         SELECT count(*) = 1 AND bool_and(s.kind = 'facilitated') FROM settlement_transactions i
           JOIN settlements s USING (from_address, chain_id, asset, nonce)
          WHERE i.lane_address = t.lane_address AND i.lane_nonce = t.nonce)
        GROUP BY block_number) blocks`,
  );
  t.ok(
    Number(rows[0]?.most) <= 8,
    `at most ${rows[0]?.most} solo payments of third parties in a block`,
  );
  await expectLedgerEqualsChain(t, chain, database.pool, { isAllFinal: false });
});

/** Waits until every signed transaction is in the node's pool. */
async function arrived({ pool }: TestEngine, { publicClient, relayer }: TestChain) {
  await until(async () => {
    const { rows } = await pool.query<{ next: string }>(
      "SELECT next_nonce AS next FROM relayer_lanes WHERE address = $1",
      [relayer.address.toLowerCase()],
    );
    const pending = await publicClient.getTransactionCount({
      address: relayer.address,
      blockTag: "pending",
    });
    return pending >= Number(rows[0]?.next);
  }, 30_000);
}
