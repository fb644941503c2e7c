// Every statement that a payment runs between its request and the ledger, on tables of any size.
import { randomBytes } from "node:crypto";
import type { Test } from "tap";
import type { Pool } from "../../server/infra/db/pool.ts";
import { keepEventPartitions } from "../../server/infra/event-partitions.ts";
import { newId } from "../../server/core/ids.ts";
import { readLimits, readOutstanding } from "../../server/plugins/guardrails/store.ts";
import {
  markUnknown,
  markUnknownInGroups,
  reserve,
  staleReservations,
  voidUnsigned,
} from "../../server/plugins/guardrails/store.ts";
import type { ReserveRequest } from "../../server/plugins/guardrails/types.ts";
import { readWallets } from "../../server/plugins/guardrails/store.ts";
import { acceptSettlements } from "../../server/plugins/settlement/accept.ts";
import * as lanes from "../../server/plugins/settlement/lane-store.ts";
import * as settlements from "../../server/plugins/settlement/store.ts";
import type {
  ProvenOutcome,
  SettlementKind,
  SettlementRecord,
  SettlementRequest,
} from "../../server/plugins/settlement/types.ts";
import { reserveWithdrawal } from "../../server/plugins/withdrawals/store.ts";
import { testApp, type TestAppOptions } from "../helpers/app.ts";
import { createAgent, signIn } from "../helpers/owner.ts";
import { databaseWithPlans, type Scan } from "./plans.ts";
import {
  ASSET,
  PAYEE,
  randomAddress,
  reserveRequest,
  type SeededAgent,
} from "../spending/guardrails-sql.helper.ts";

/** Another chain than that of the running app, so that its engine ignores these rows. */
export const CHAIN_ID = 84_532;
/** Multiplies the seeded rows, to check by hand that the plans stay the same: `PLANS_AT=100`. */
export const TIMES = Number(process.env["PLANS_AT"] ?? "1");
const AGENTS = 180 * TIMES;
export const PAYMENTS_EACH = 300;
const BIG_TABLES = new Set(["payments", "settlements", "events"]);
/** The rows that a statement reads of a big table belong to one agent or to the open work. */
const MOST_ROWS = 2 * PAYMENTS_EACH;

export const bad = (scans: readonly Scan[]): Scan[] =>
  scans.filter(
    ({ table, partition, node, rows }) =>
      BIG_TABLES.has(table) &&
      // Partitions that were made ahead are empty.
      ((node === "Seq Scan" && (partition === table || rows > 0)) || rows > MOST_ROWS),
  );

/** The number of each agent's payments that have a settlement and an event: enough for the planner, fast to seed. */
const SETTLED_EACH = 100;
const OPEN_SETTLEMENTS = 40;
/** As read a few blocks before the newest settled payment. */
const BALANCE = { atomic: 10n ** 9n, blockNumber: BigInt(PAYMENTS_EACH - 5) };
const hash = (): `0x${string}` => `0x${randomBytes(32).toString("hex")}`;

/** Seeds `mine` among many other agents, all with two months of payments, settlements, events and open work. */
async function seed(pool: Pool, mine: SeededAgent): Promise<void> {
  await pool.query(
    `INSERT INTO owners (id, address) SELECT 'own_' || n, '0x' || lpad(to_hex(n), 40, '0') FROM generate_series(1, $1) n`,
    [AGENTS],
  );
  await pool.query(
    `INSERT INTO agents (id, owner_id, name, network, wallet_address, daily_limit)
     SELECT 'agt_' || n, 'own_' || n, 'other', $2, '0x' || lpad(to_hex(n), 40, '0'), 1 FROM generate_series(1, $1) n`,
    [AGENTS, `eip155:${CHAIN_ID}`],
  );
  const tables = ["payments", "settlements"];
  for (const table of tables) await pool.query(`ALTER TABLE ${table} DISABLE TRIGGER USER`);
  await pool.query(
    `INSERT INTO payments (agent_id, id, kind, status, chain_id, asset, counterparty, amount, denial_code, tx_hash,
                           block_number, created_at, settled_at)
     SELECT a.id, 'pay_' || a.id || n, CASE n % 10 WHEN 0 THEN 'incoming' WHEN 1 THEN 'x402' ELSE 'spend' END,
            CASE n % 10 WHEN 2 THEN 'blocked' WHEN 3 THEN 'voided' ELSE 'settled' END, $1, $2, $3, 1,
            CASE n % 10 WHEN 2 THEN 'daily_limit_exceeded' END,
            '0x' || encode(sha256((a.id || n)::bytea), 'hex'), n, at, at
       FROM agents a, generate_series(1, $4) n, LATERAL (SELECT now() - n * interval '5 hours' AS at) times`,
    [CHAIN_ID, ASSET, PAYEE, PAYMENTS_EACH],
  );
  await pool.query(
    `INSERT INTO settlements (from_address, chain_id, asset, nonce, id, kind, agent_id, to_address, value, valid_after,
                              valid_before, signature, relay, status, tx_hash, proof, created_at, settled_at, class)
     SELECT a.wallet_address, p.chain_id, p.asset, p.tx_hash, p.id, 'spend', p.agent_id, p.counterparty, p.amount, 0,
            4102444800, '\\x00', true, 'settled', p.tx_hash, '{}', p.created_at, p.settled_at, 1
       FROM payments p JOIN agents a ON a.id = p.agent_id WHERE p.status = 'settled' AND p.kind <> 'incoming' AND p.block_number <= $1`,
    [SETTLED_EACH],
  );
  await pool.query(
    `UPDATE settlements SET status = 'queued', tx_hash = NULL, settled_at = NULL
      WHERE id IN (SELECT id FROM settlements ORDER BY created_at LIMIT $1)`,
    [OPEN_SETTLEMENTS],
  );
  await pool.query(
    `INSERT INTO events (owner_id, tx, type, agent_id, subject_id, created_at)
     SELECT a.owner_id, 1, 'payment', a.id, p.id, p.created_at FROM payments p JOIN agents a ON a.id = p.agent_id
      WHERE p.block_number <= $1`,
    [SETTLED_EACH],
  );
  await keepEventPartitions(pool);
  for (const table of tables) await pool.query(`ALTER TABLE ${table} ENABLE TRIGGER USER`);
  await pool.query(
    `UPDATE agents a SET daily_limit = 1000, window_tail_at = now() - interval '24 hours 1 second',
            window_sum = (SELECT count(*) FROM payments p WHERE p.agent_id = a.id AND p.counted
                             AND p.created_at > now() - interval '24 hours 1 second')
      WHERE id = $1`,
    [mine.agentId],
  );
  await pool.query("VACUUM (ANALYZE) payments, settlements, events, agents");
}

function settlementRequest(
  agent: SeededAgent,
  kind: SettlementKind,
  more: Partial<SettlementRequest>,
): SettlementRequest {
  return {
    id: newId("tx"),
    kind,
    agentId: kind === "facilitated" ? null : agent.agentId,
    relay: true,
    authorization: {
      chainId: CHAIN_ID,
      asset: ASSET,
      from: agent.walletAddress,
      to: PAYEE,
      value: 1n,
      validAfter: 0n,
      validBefore: 4_102_444_800n,
      nonce: hash(),
      signature: "0x00",
    },
    ...more,
  };
}

/** Runs every statement of a payment between its request and the ledger. */
export async function spendInEveryWay(t: Test, pool: Pool, agent: SeededAgent): Promise<void> {
  const reserveAmount = (
    amount: bigint,
    more: Partial<ReserveRequest> & { dryRun?: boolean } = {},
  ) =>
    reserve(pool, {
      dryRun: false,
      paymentId: newId("pay"),
      ...reserveRequest(agent, amount, { chainId: CHAIN_ID, balance: BALANCE, ...more }),
    });
  const reserved = async (): Promise<string> => {
    const idempotency = {
      subjectId: agent.agentId,
      route: "spend",
      key: newId("key"),
      bodyHash: randomBytes(32),
    };
    const { outcome, paymentId } = await reserveAmount(1n, { idempotency });
    t.equal(outcome, "reserved");
    return paymentId ?? "";
  };
  const { agentId } = agent;
  const [first, second, third] = [await reserved(), await reserved(), await reserved()];
  t.equal((await reserveAmount(1n, { dryRun: true })).outcome, "allowed");
  t.equal((await reserveAmount(999n)).code, "daily_limit_exceeded");
  t.ok(await voidUnsigned(pool, { agentId, paymentId: third, code: "test", detail: "" }));
  await staleReservations(pool, { olderThanSeconds: 60, limit: 100 });
  t.equal((await readLimits(pool, [agentId])).size, 1);
  await readOutstanding(pool, { agentId, chainId: CHAIN_ID, balanceBlock: BALANCE.blockNumber });
  const wallet = { agentId, chainId: CHAIN_ID, asset: ASSET, balance: BALANCE, gasHold: 1n };
  t.equal((await readWallets(pool, [wallet], 1n)).size, 1);
  const order = await reserveWithdrawal(pool, {
    agentId,
    paymentId: newId("pay"),
    chainId: CHAIN_ID,
    asset: ASSET,
    to: PAYEE,
    amountAtomic: 1n,
    nonce: hash(),
    deadlineSeconds: 4_102_444_800n,
    signature: "0x00",
    proof: {
      kind: "order",
      digest: hash(),
      signers: [{ signer: PAYEE, chainId: 0, signature: "0x00" }],
    },
    validForSeconds: 120,
    balance: { ...BALANCE, timestampSeconds: BigInt(Math.floor(Date.now() / 1_000)) },
    gasHold: 1n,
    requestId: "req_1",
    idempotency: undefined,
  });
  t.equal(order.outcome, "reserved");
  await settleInEveryWay(t, pool, agent, [first, second]);
}

type Carried = lanes.CarriedItem;

const carried = ({ authorization }: SettlementRecord): Carried => ({
  action: "transfer",
  from: authorization.from,
  asset: authorization.asset,
  nonce: authorization.nonce,
  to: authorization.to,
  value: authorization.value,
});

const attemptOf = (itsHash: `0x${string}`): lanes.StoredAttempt => ({
  hash: itsHash,
  attempt: 1,
  purpose: "work",
  answer: undefined,
  raw: "0x00",
  maxFeeWei: 1n,
  priorityFeeWei: 1n,
});

const transactionOf = (nonce: bigint, attempt: lanes.StoredAttempt, items: Carried[]) => ({
  nonce,
  to: ASSET,
  calldata: "0x00" as const,
  gasLimit: 100n,
  attempt,
  items,
  sentBlock: 1n,
});

const minedAs = (nonce: bigint, itsHash: `0x${string}`) => ({
  nonce,
  status: "mined" as const,
  hash: itsHash,
  blockNumber: 1n,
  blockHash: hash(),
  gasUsed: 1n,
});

const provenIn = ({ from, asset, nonce }: Carried, tx: string): ProvenOutcome => ({
  from,
  asset,
  nonce,
  isFinal: true,
  status: "settled",
  proof: { kind: "receipt", tx, block: "1", blockHash: hash() },
});

async function settleInEveryWay(t: Test, pool: Pool, agent: SeededAgent, ids: [string, string]) {
  const [first, second] = ids;
  const { agentId } = agent;
  const request = settlementRequest(agent, "spend", { id: first });
  await acceptSettlements(pool, [request]);
  await acceptSettlements(pool, [
    settlementRequest(agent, "x402", { id: second, relay: false }),
    settlementRequest({ ...agent, walletAddress: randomAddress() }, "facilitated", {}),
  ]);
  await markUnknown(pool, { agentId, paymentId: first });
  await markUnknownInGroups(pool)({ agentId, paymentId: second });
  t.equal((await settlements.findSettlements(pool, [first, second])).length, 2);
  t.ok(await settlements.findOpenRecord(pool, first));
  t.ok(await settlements.findByAuthorization(pool, request.authorization));
  await settlements.openWatched(pool, CHAIN_ID, 100);
  await settlements.settledUnfollowed(pool, CHAIN_ID, 1n, 100);
  await settlements.openPastDeadline(pool, CHAIN_ID, 1n, 100);
  t.ok((await settlements.countQueued(pool, CHAIN_ID)) > OPEN_SETTLEMENTS / 2);

  const lane = { chainId: CHAIN_ID, address: randomAddress() };
  const lease = { ...lane, owner: "me", epoch: 1n };
  t.same(await lanes.acquireLease(pool, lane, "me", 60_000), { epoch: 1n, nextNonce: 0n });
  const claimed = await settlements.claim(pool, lease, {
    batchable: 20,
    ownSolo: 4,
    thirdPartySolo: 4,
  });
  t.equal(claimed.length, 20);
  const items = claimed.map(carried);
  await settlements.unclaim(pool, lease, items.splice(10), 0);
  await settlements.voidLapsedClaims(pool, CHAIN_ID);
  await lanes.orphanedLanes(pool, CHAIN_ID);
  const attempt = attemptOf(hash());
  await lanes.persistTransaction(pool, lease, transactionOf(0n, attempt, items));
  t.equal((await lanes.pendingTransactions(pool, lane))[0]?.items.length, 10);
  const outcomes = items.map((item, index) => ({
    ...provenIn(item, attempt.hash),
    ...(index === 0 && { status: "failed" as const, reason: "test", message: "test" }),
  }));
  await lanes.finalizeTransaction(pool, lane, minedAs(0n, attempt.hash), outcomes.slice(0, 8));
  t.equal((await settlements.finalizeSettlements(pool, CHAIN_ID, outcomes)).finished, 2);
}

export const BURST = 1_500;
export const BATCH = 100;

/** Settlement requests of third parties. */
export const thirdPartyRequests = (count: number) =>
  Array.from({ length: count }, () =>
    settlementRequest(
      { agentId: "", ownerId: "", walletAddress: randomAddress() },
      "facilitated",
      {},
    ),
  );

/** Settles the batches of a burst: many settlements are open at once in a table that was idle. */
export async function settleOfABurst(t: Test, pool: Pool, burst = BURST): Promise<void> {
  const all = thirdPartyRequests(burst);
  for (let at = 0; at < burst; at += 500) await acceptSettlements(pool, all.slice(at, at + 500));
  const lane = { chainId: CHAIN_ID, address: randomAddress() };
  const lease = { ...lane, owner: "me", epoch: 1n };
  await lanes.acquireLease(pool, lane, "me", 60_000);
  const claimed = await settlements.claim(pool, lease, {
    batchable: burst,
    ownSolo: 0,
    thirdPartySolo: 0,
  });
  t.equal(claimed.length, burst);
  for (let nonce = 0n; nonce < 8n && claimed.length > 0; nonce += 1n) {
    const items = claimed.splice(0, BATCH).map(carried);
    t.equal(items.length, Math.min(burst, BATCH));
    const attempt = attemptOf(hash());
    await lanes.persistTransaction(pool, lease, transactionOf(nonce, attempt, items));
    const finalized = await lanes.finalizeTransaction(
      pool,
      lane,
      minedAs(nonce, attempt.hash),
      items.map((item) => provenIn(item, attempt.hash)),
    );
    t.equal(finalized.finished, items.length);
  }
}

/** An app with this seed, and one agent for the payments. */
export async function seededApp(t: Test, options: Omit<TestAppOptions, "database"> = {}) {
  const made = await testApp(t, { ...options, database: await databaseWithPlans(t) });
  const { pool } = made.database;
  const owner = await signIn(made);
  const agent = await createAgent(made, owner);
  const seeded = {
    agentId: agent.id,
    ownerId: "",
    walletAddress: agent.walletAddress.toLowerCase() as `0x${string}`,
  };
  await pool.query("INSERT INTO allowlist_entries (agent_id, address) VALUES ($1, $2)", [
    agent.id,
    PAYEE,
  ]);
  await seed(pool, seeded);
  return { ...made, owner, agent, seeded };
}
