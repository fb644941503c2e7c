// Goal: the small decisions in SQL beside a settlement are exact: when agents wait because the database is behind the chain,
// which own authorization is canceled on chain, and how much of its orders an owner may store in a day.
import t from "tap";
import { readGasBudget } from "../../server/core/gas.ts";
import { newId } from "../../server/core/ids.ts";
import { createPool } from "../../server/infra/db/pool.ts";
import { wantCancel, limitsOf, writeGasLimits } from "../../server/plugins/settlement/gas-store.ts";
import { withOwnClock } from "../helpers/database-clock.ts";
import { testDatabase } from "../helpers/postgres.ts";
import {
  ASSET,
  CHAIN_ID,
  PAYEE,
  randomAddress,
  seedAgent,
} from "../spending/guardrails-sql.helper.ts";

const database = await testDatabase(t);
// Agents' rows have no reservation here.
await database.pool.query("ALTER TABLE settlements DISABLE TRIGGER settlements_accepted");
const clock = await withOwnClock(database);
const pool = createPool(database.url, { maxConnections: 3 });
t.teardown(() => pool.end());
const OTHER = "0x3c44cdddb6a900fa2b585dd299e03d12fa4293bc";
const UNKNOWN = 9_223_372_036_854_775_807n;
const nonceOf = (index: number): `0x${string}` => `0x${index.toString(16).padStart(64, "0")}`;
let nonces = 0;

interface Settlement {
  nonce?: `0x${string}`;
  validBefore?: number;
  from?: string;
  chainId?: number;
  asset?: string;
  agentId?: string | null;
  status?: string;
  lane?: string | null;
}

/** @returns its nonce */
async function settlement(more: Settlement = {}): Promise<`0x${string}`> {
  const { from = randomAddress(), chainId = CHAIN_ID, asset = ASSET, agentId = null } = more;
  const { nonce = nonceOf((nonces += 1)), validBefore = 77 } = more;
  await pool.query(
    `INSERT INTO settlements (from_address, chain_id, asset, nonce, id, kind, agent_id, to_address, value, valid_after,
       valid_before, signature, relay, status, class, lane_address)
     VALUES ($1, $2, $3, $4, $5, CASE WHEN $6::text IS NULL THEN 'facilitated' ELSE 'x402' END, $6, '${PAYEE}', 1, 0, $9, '\\x00', true, $7, 1, $8)`,
    [
      from,
      chainId,
      asset,
      nonce,
      newId("pay"),
      agentId,
      more.status ?? "queued",
      more.lane ?? null,
      validBefore,
    ],
  );
  return nonce;
}

t.test("a jump of a relayer's nonce makes the agents of its chain wait", async (t) => {
  const [lane, otherLane] = [randomAddress(), randomAddress()];
  for (const address of [lane, otherLane])
    await pool.query(
      "INSERT INTO relayer_lanes (chain_id, address, next_nonce, looked_nonce) VALUES ($1, $2, 4, 4)",
      [CHAIN_ID, address],
    );
  const jump = (to: number) =>
    pool.query("UPDATE relayer_lanes SET next_nonce = $2 WHERE address = $1", [lane, to]);
  const cursors = async () => {
    const { rows } = await pool.query(
      `SELECT chain_id::int AS chain, asset, next_block AS next, hold_until_block AS until, hold_generation::int AS times
         FROM ledger_cursors ORDER BY chain_id, asset`,
    );
    return rows;
  };
  await pool.query(
    "INSERT INTO ledger_cursors (chain_id, asset, next_block) VALUES ($1, $2, 9), (1, $2, 9)",
    [CHAIN_ID, OTHER],
  );
  const elsewhere = { chain: 1, asset: OTHER, next: 9n, until: null, times: 0 };
  const known = { chain: CHAIN_ID, asset: OTHER, next: 9n };
  await jump(5);
  t.same(await cursors(), [elsewhere, { ...known, until: null, times: 0 }], "one more is no jump");
  // Queued work of the lane names the asset where reconciliation has no row yet.
  await settlement({ lane });
  await settlement({ lane });
  await settlement({ lane, asset: randomAddress(), status: "submitted" });
  await settlement({ lane, asset: randomAddress(), chainId: 1 });
  await settlement({ lane: otherLane, asset: randomAddress() });
  await jump(9);
  const held = [
    elsewhere,
    { chain: CHAIN_ID, asset: ASSET, next: UNKNOWN, until: UNKNOWN, times: 1 },
    { ...known, until: UNKNOWN, times: 1 },
  ].toSorted((a, b) => a.chain - b.chain || (a.asset < b.asset ? -1 : 1));
  t.same(await cursors(), held);
  await jump(12);
  t.same(
    await cursors(),
    held.map((row) => (row.chain === CHAIN_ID ? { ...row, times: 2 } : row)),
  );
});

t.test("an own authorization is canceled on chain once a day for each payee", async (t) => {
  await writeGasLimits(pool, CHAIN_ID, limitsOf(readGasBudget(""), 1n));
  const agent = await seedAgent(pool, { dailyLimit: 1n });
  await seedAgent(pool, { dailyLimit: 1n });
  const from = agent.walletAddress;
  const of = (nonce: `0x${string}`, more = {}) => ({
    from,
    chainId: CHAIN_ID,
    asset: ASSET,
    nonce,
    ...more,
  });
  const stateOf = async (nonce: string) => {
    const { rows } = await pool.query(
      `SELECT cancel_signature AS signature, next_attempt_at = '-infinity' AS due, updated_at > '2021-01-01' AS changed
         FROM settlements
        WHERE from_address = $1 AND chain_id = $2 AND asset = $3 AND nonce = $4`,
      [from, CHAIN_ID, ASSET, nonce],
    );
    return rows[0] as unknown;
  };
  const own: Settlement = { from, agentId: agent.agentId };
  // Payments that are alike come first in the table.
  const nonce = nonceOf((nonces += 1));
  for (const other of [{ from: randomAddress() }, { chainId: 99 }, { asset: randomAddress() }])
    await settlement({ ...own, nonce, validBefore: 78, ...other });
  const [first, second, foreign, submitted] = [
    await settlement({ ...own, nonce }),
    await settlement(own),
    await settlement({ from }),
    await settlement({ ...own, status: "submitted" }),
  ];
  await pool.query("UPDATE settlements SET next_attempt_at = now(), updated_at = '2020-01-01'");
  const untouched = { signature: null, due: false, changed: false };
  for (const [what, key] of [
    ["another program's", of(foreign)],
    ["submitted", of(submitted)],
    ["another wallet", of(first, { from: OTHER })],
    ["another chain", of(first, { chainId: 1 })],
    ["another asset", of(first, { asset: OTHER })],
    ["unknown", of(nonceOf(99_999))],
  ] as const)
    t.equal(await wantCancel(pool, key, "0x01"), undefined, what);
  t.same(await stateOf(first), untouched);
  t.match(await wantCancel(pool, of(first), "0x01"), { decision: "cancel", validBefore: 77n });
  t.same(await stateOf(first), { signature: Buffer.from([1]), due: true, changed: true });
  t.same(await stateOf(second), untouched);
  t.match(await wantCancel(pool, of(second), "0x02"), { decision: "lapse", validBefore: 77n });
  t.same(await stateOf(second), untouched, "it is left to expire");
  t.match(
    await wantCancel(pool, of(first), "0x03"),
    { decision: "cancel" },
    "once more for the same",
  );
  t.same(await stateOf(first), { signature: Buffer.from([3]), due: true, changed: true });
  const client = await pool.connect();
  try {
    await client.query("BEGIN");
    await wantCancel(client, of(second), "0x02");
    const lock = "SELECT FROM settlements WHERE nonce = $1 FOR UPDATE NOWAIT";
    await t.rejects(pool.query(lock, [second]), { code: "55P03" });
  } finally {
    await client.query("ROLLBACK");
    client.release();
  }
  const canceled =
    "SELECT FROM settlements WHERE cancel_signature IS NOT NULL OR next_attempt_at = '-infinity'";
  t.equal((await pool.query(canceled)).rowCount, 1, "that one only");
  const { rows } = await pool.query("SELECT account, held FROM gas_accounts");
  t.same(rows, [{ account: `cancels:${agent.ownerId}:${PAYEE}`, held: 1n }]);
});

t.test("an owner stores so many bytes a day, exactly", async (t) => {
  const [{ ownerId }, other] = [
    await seedAgent(pool, { dailyLimit: 1n }),
    await seedAgent(pool, { dailyLimit: 1n }),
  ];
  const DAY = 86_400_000_000n;
  const start = (clock.now() / 1_000_000n) * 1_000_000n;
  await clock.set(start);
  /** In how many microseconds that many bytes of 24 a day are free: an hour for each; null: now. */
  const take = async (bytes: number, dryRun = false, owner = ownerId) => {
    const { rows } = await pool.query<{ micros: bigint | null }>(
      `SELECT (extract(epoch FROM purser_quota_take($1, $2, 24, $3) - clock_timestamp()) * 1000000)::bigint AS micros`,
      [owner, bytes, dryRun],
    );
    return rows[0]?.micros ?? null;
  };
  const hours = (count: bigint) => (DAY / 24n) * count;
  t.equal(await take(24, true), null, "a check takes nothing");
  t.equal(await take(24, true), null);
  t.equal(await take(20), null);
  t.equal(await take(4, true), null, "all of it");
  t.equal(await take(5, true), hours(1n), "one byte more");
  t.equal(await take(5), hours(1n));
  t.equal(await take(4), null, "a refusal took nothing");
  t.equal(await take(24, false, other.ownerId), null, "another owner's is its own");
  await clock.pass(hours(3n) - 1n);
  t.equal(await take(3, true), 1n);
  t.equal(await take(3), 1n);
  await clock.pass(1n);
  t.equal(await take(3, true), null);
  t.equal(await take(3), null, "three hours later");
  await clock.pass(hours(100n));
  t.equal(await take(24), null, "never more than a day's");
  t.equal(await take(1), hours(1n));
});
