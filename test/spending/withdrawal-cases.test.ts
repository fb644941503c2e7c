// Goal: purser_reserve_withdrawal is right in every branch: no money that is promised elsewhere leaves, an order is used
// once, and what is written is what the owner signed. A canceled call never reserves, and what is signed continues.
import { randomBytes } from "node:crypto";
import t from "tap";
import type { Address, Hex } from "viem";
import { readGasBudget } from "../../server/core/gas.ts";
import { newId } from "../../server/core/ids.ts";
import { createPool } from "../../server/infra/db/pool.ts";
import { limitsOf, writeGasLimits } from "../../server/plugins/settlement/gas-store.ts";
import {
  reserveWithdrawal,
  type WithdrawalRequest,
} from "../../server/plugins/withdrawals/store.ts";
import { withOwnClock } from "../helpers/database-clock.ts";
import { testDatabase } from "../helpers/postgres.ts";
import { ASSET, CHAIN_ID, PAYEE, seedAgent, type SeededAgent } from "./guardrails-sql.helper.ts";

const database = await testDatabase(t);
const clock = await withOwnClock(database);
const pool = createPool(database.url, { maxConnections: 3 });
t.teardown(() => pool.end());
await clock.set((clock.now() / 1_000_000n) * 1_000_000n);

const OTHER: Address = "0x3c44cdddb6a900fa2b585dd299e03d12fa4293bc";
const ROUTE = "POST /api/agents/withdraw";
const randomHash = (): Hex => `0x${randomBytes(32).toString("hex")}`;
const BODY = randomBytes(32);
const nowSeconds = () => clock.now() / 1_000_000n;
const proof = { signers: [{ signer: OTHER }] } as unknown as WithdrawalRequest["proof"];
const newAgent = () => seedAgent(pool, { dailyLimit: 0n });

function requestOf(agent: SeededAgent, more: Partial<WithdrawalRequest> = {}): WithdrawalRequest {
  return {
    agentId: agent.agentId,
    paymentId: newId("pay"),
    chainId: CHAIN_ID,
    asset: ASSET,
    to: OTHER,
    amountAtomic: 10n,
    nonce: randomHash(),
    deadlineSeconds: nowSeconds() + 3_600n,
    signature: "0x1234",
    proof,
    validForSeconds: 120,
    balance: { atomic: 10n, blockNumber: 5n, timestampSeconds: nowSeconds() },
    gasHold: 0n,
    requestId: "req_1",
    idempotency: undefined,
    ...more,
  };
}

async function withdraw(agent: SeededAgent, more: Partial<WithdrawalRequest> = {}) {
  const request = requestOf(agent, more);
  const row = await reserveWithdrawal(pool, request);
  const { rows } = await pool.query("SELECT FROM payments WHERE id = $1", [request.paymentId]);
  t.equal(rows.length, row.outcome === "reserved" ? 1 : 0, `what ${row.outcome} writes`);
  return row;
}
const outcomeOf = async (agent: SeededAgent, more: Partial<WithdrawalRequest> = {}) =>
  (await withdraw(agent, more)).outcome;

const keyed = (agent: SeededAgent, more = {}) => ({
  idempotency: { subjectId: agent.ownerId, route: ROUTE, key: "k", bodyHash: BODY, ...more },
});

async function rowsOf(table: string, { agentId }: SeededAgent) {
  const { rows } = await pool.query<Record<string, unknown>>(
    `SELECT * FROM ${table} WHERE agent_id = $1`,
    [agentId],
  );
  return rows;
}

/** What the change would cause; it is undone. */
async function inChanged<T>(
  sql: string,
  use: (client: Parameters<typeof reserveWithdrawal>[0]) => Promise<T>,
) {
  const client = await pool.connect();
  try {
    await client.query("BEGIN");
    await client.query(sql);
    return await use(client);
  } finally {
    await client.query("ROLLBACK");
    client.release();
  }
}

t.test("what a withdrawal writes", async (t) => {
  const [agent, other] = [await newAgent(), await newAgent()];
  const request = requestOf(agent, { ...keyed(agent), gasHold: 7n });
  const row = await reserveWithdrawal(pool, request);
  const validBefore = nowSeconds() + 120n;
  t.match(row, {
    outcome: "reserved",
    paymentId: request.paymentId,
    validBefore,
    availableAtomic: 10n,
    statusCode: null,
    response: null,
  });
  t.match(await rowsOf("payments", agent), [
    {
      id: request.paymentId,
      kind: "withdrawal",
      status: "reserved",
      chain_id: BigInt(CHAIN_ID),
      asset: ASSET,
      counterparty: OTHER,
      amount: 10n,
      request_id: "req_1",
      nonce: request.nonce,
      valid_before: validBefore,
      gas_hold: 7n,
      counted: false,
      outstanding: true,
    },
  ]);
  t.match(await rowsOf("withdrawal_orders", agent), [
    {
      nonce: request.nonce,
      payment_id: request.paymentId,
      to_address: OTHER,
      amount: 10n,
      deadline: request.deadlineSeconds,
      signature: Buffer.from("1234", "hex"),
    },
  ]);
  const { rows: keys } = await pool.query("SELECT * FROM idempotency_keys WHERE subject_id = $1", [
    agent.ownerId,
  ]);
  t.match(keys, [
    { route: ROUTE, key: "k", body_hash: BODY, payment_id: request.paymentId, implicit: false },
  ]);
  const { rows: audit } = await pool.query<{ agent_id: string; action: string; body: string }>(
    "SELECT * FROM audit_log WHERE owner_id = $1 AND action = 'withdrawal.ordered'",
    [agent.ownerId],
  );
  t.match(audit, [{ agent_id: agent.agentId }]);
  t.match(JSON.parse(audit[0]?.body ?? "{}"), {
    actor: OTHER,
    requestId: "req_1",
    after: {
      paymentId: request.paymentId,
      to: OTHER,
      amountAtomic: "10",
      network: `eip155:${CHAIN_ID}`,
      nonce: request.nonce,
    },
  });
  t.equal((await rowsOf("payments", other)).length, 0);
  const { rows: ofOther } = await pool.query("SELECT FROM audit_log WHERE owner_id = $1", [
    other.ownerId,
  ]);
  t.equal(ofOther.length, 0, "nor has its audit an entry");
  t.equal(await outcomeOf({ ...agent, agentId: "agt_nobody" }), "not_found");
});

t.test("a withdrawal is decided under the agent's lock", async (t) => {
  const agent = await newAgent();
  await inChanged("SELECT", async (client) => {
    await reserveWithdrawal(client, requestOf(agent, { amountAtomic: 11n }));
    const lock = pool.query("SELECT FROM agents WHERE id = $1 FOR UPDATE NOWAIT", [agent.agentId]);
    await t.rejects(lock, { code: "55P03" });
  });
});

t.test("only what the wallet has and did not promise", async (t) => {
  const balance = (atomic: bigint, blockNumber = 5n) => ({
    balance: { atomic, blockNumber, timestampSeconds: nowSeconds() },
  });
  const [agent, other] = [await newAgent(), await newAgent()];
  t.match(await withdraw(agent, balance(9n)), { outcome: "insufficient", availableAtomic: 9n });
  t.same(await rowsOf("payments", agent), []);
  t.equal(await outcomeOf(agent, balance(10n)), "reserved");
  const available = async (block: bigint, change = "SELECT") =>
    inChanged(change, async (client) => {
      const request = requestOf(agent, { ...balance(100n, block), amountAtomic: 1_000n });
      const { availableAtomic } = await reserveWithdrawal(client, request);
      return Number(availableAtomic);
    });
  const settled = (more: string) =>
    `UPDATE payments SET status = 'settled', tx_hash = '0x${"ab".repeat(32)}', block_number = 6, settled_at = now()${more}
      WHERE agent_id = '${agent.agentId}'`;
  const cases: [string, number, bigint, string?][] = [
    ["the withdrawal is open", 90, 5n],
    ["it settled after the balance was read", 90, 5n, settled("")],
    ["it is in the balance", 100, 6n, settled("")],
    ["on another chain", 100, 5n, settled(", chain_id = 1")],
    ["received, not paid", 100, 5n, settled(", kind = 'incoming'")],
    [
      "open on another chain",
      100,
      5n,
      `UPDATE payments SET chain_id = 1 WHERE agent_id = '${agent.agentId}'`,
    ],
    [
      "of another agent",
      100,
      5n,
      `UPDATE payments SET agent_id = '${other.agentId}' WHERE agent_id = '${agent.agentId}'`,
    ],
    ["of another agent, settled", 100, 5n, settled(`, agent_id = '${other.agentId}'`)],
    [
      "voided",
      100,
      5n,
      `UPDATE payments SET status = 'voided', block_number = 6 WHERE agent_id = '${agent.agentId}'`,
    ],
  ];
  for (const [what, expected, block, change] of cases)
    t.equal(await available(block, change), expected, what);
});

t.test("an order is used once, and has a deadline", async (t) => {
  const [agent, other] = [await newAgent(), await newAgent()];
  const first = requestOf(agent, { amountAtomic: 1n });
  const { nonce } = first;
  t.equal((await reserveWithdrawal(pool, first)).outcome, "reserved");
  t.equal(await outcomeOf(agent, { nonce, amountAtomic: 1n }), "replayed");
  t.equal(await outcomeOf(other, { nonce, amountAtomic: 1n }), "reserved", "another agent's order");
  const taken = randomHash();
  const settlement = `INSERT INTO settlements (from_address, chain_id, asset, nonce, id, kind, to_address, value, valid_after,
      valid_before, signature, relay, status, class)
    VALUES ('${agent.walletAddress}', ${CHAIN_ID}, '${ASSET}', '${taken}', 'set_1', 'facilitated', '${PAYEE}', 1, 0, 9, '\\x00', true,
      'queued', 1)`;
  const withSettlement = (sql: string) =>
    inChanged(sql, async (client) => {
      const request = requestOf(agent, { nonce: taken, amountAtomic: 1n });
      return (await reserveWithdrawal(client, request)).outcome;
    });
  t.equal(await withSettlement(settlement), "replayed", "the nonce is in a settlement");
  for (const [what, from, to] of [
    ["of another wallet", agent.walletAddress, other.walletAddress],
    ["on another chain", `${CHAIN_ID}`, "1"],
    ["of another asset", ASSET, OTHER],
    ["with another nonce", taken, randomHash()],
  ] as const)
    t.equal(await withSettlement(settlement.replace(from, to)), "reserved", what);

  const due = (deadlineSeconds: bigint) => withdraw(agent, { deadlineSeconds, amountAtomic: 1n });
  t.match(await due(nowSeconds()), { outcome: "expired" });
  t.match(await due(nowSeconds() + 1n), { outcome: "reserved", validBefore: nowSeconds() + 1n });
  t.match(await due(nowSeconds() + 121n), { validBefore: nowSeconds() + 120n });
  const apart = {
    balance: { atomic: 10n, blockNumber: 5n, timestampSeconds: nowSeconds() - 121n },
  };
  t.equal(await outcomeOf(agent, { ...apart, amountAtomic: 1n }), "clock_apart");
});

t.test("the same key gets the same answer", async (t) => {
  const [agent, other] = [await newAgent(), await newAgent()];
  const ask = (more = {}, of = agent) => withdraw(of, { ...keyed(of, more), amountAtomic: 1n });
  const { paymentId } = await ask();
  t.match(await ask(), { outcome: "running", paymentId, statusCode: null, response: null });
  await pool.query(
    "UPDATE idempotency_keys SET status_code = 200, response = 'r' WHERE subject_id = $1",
    [agent.ownerId],
  );
  t.match(await ask(), { outcome: "replay", paymentId, statusCode: 200, response: "r" });
  t.match(await ask({ bodyHash: randomBytes(32) }), { outcome: "key_reused" });
  t.equal((await rowsOf("payments", agent)).length, 1);
  t.match(await ask({ key: "k2" }), { outcome: "reserved" });
  t.match(await ask({ route: "POST /other" }), { outcome: "reserved" });
  t.match(await ask({}, other), { outcome: "reserved" }, "another owner");
  t.match(await withdraw(other, { amountAtomic: 1n }), { outcome: "reserved" }, "without a key");
});

t.test("the gas is charged to the owner's share of withdrawals", async (t) => {
  const chainId = 8_453;
  await writeGasLimits(
    pool,
    chainId,
    limitsOf({ ...readGasBudget(""), withdrawals: 100n, withdrawer: 10n }, 1n),
  );
  const agent = await newAgent();
  const ask = (gasHold: bigint) => withdraw(agent, { chainId, gasHold, amountAtomic: 1n });
  const { outcome, response } = await ask(11n);
  t.equal(outcome, "gas");
  t.match(JSON.parse(response ?? "{}"), { code: "gas_budget_exhausted", gasShort: "withdrawer" });
  t.same(await rowsOf("payments", agent), [], "nothing is reserved");
  t.match(await ask(10n), { outcome: "reserved" });
  t.match(await ask(1n), { outcome: "gas" });
  const { rows } = await pool.query("SELECT account, held FROM gas_accounts WHERE chain_id = $1", [
    chainId,
  ]);
  t.same(rows, [{ account: `withdrawer:${agent.ownerId}`, held: 10n }]);
});

t.test("a canceled call", async (t) => {
  const [other, agent] = [await newAgent(), await newAgent()];
  const cancel = (call: string) =>
    pool.query("SELECT purser_cancel_call($1, $2)", [agent.agentId, call]);
  const canceled = () => rowsOf("canceled_calls", agent);
  /** A call with a payment, whose response was sent. */
  const call = async (name: string, status: "reserved" | "submitted", of = agent) => {
    const id = newId("pay");
    await pool.query(
      `INSERT INTO payments (agent_id, id, kind, status, chain_id, asset, counterparty, amount, nonce)
       VALUES ($1, $2, 'spend', $3, ${CHAIN_ID}, '${ASSET}', '${PAYEE}', 1, $4)`,
      [of.agentId, id, status, randomHash()],
    );
    await pool.query(
      `INSERT INTO idempotency_keys (subject_id, route, key, body_hash, payment_id, implicit, call, told_at, told_call)
       VALUES ($1, 'r', $2, sha256(''), $3, true, $4, now(), $4)`,
      [of.agentId, id, id, name],
    );
    return id;
  };
  const stateOf = async (id: string) => {
    const { rows } = await pool.query(
      `SELECT p.status, p.failure_code AS code, k.key IS NOT NULL AS has_key, k.told_at IS NOT NULL AS was_told
         FROM payments p LEFT JOIN idempotency_keys k ON k.payment_id = p.id WHERE p.id = $1`,
      [id],
    );
    return rows[0] as unknown;
  };
  await pool.query("UPDATE agents SET window_sum = 9");
  const ofOther = await call("unsigned", "reserved", other);
  const unsigned = await call("unsigned", "reserved");
  const signed = await call("signed", "submitted");
  const untouched = await call("another", "reserved");
  const signedOfOther = await call("signed", "submitted", other);
  const asBefore = { status: "reserved", code: null, has_key: true, was_told: true };
  await cancel("unknown");
  t.match(await canceled(), [{ call: "unknown" }], "it is remembered: the call never reserves");
  await cancel("unknown");
  t.same(await stateOf(unsigned), asBefore);
  await cancel("unsigned");
  t.match(await stateOf(unsigned), { status: "voided", code: "call_canceled", has_key: false });
  t.same(await stateOf(untouched), asBefore);
  t.same(await stateOf(ofOther), asBefore, "another agent's call of that name");
  await cancel("signed");
  t.same(
    await stateOf(signed),
    { status: "submitted", code: null, has_key: true, was_told: false },
    "a signed payment continues, and its response is kept for an identical call",
  );
  t.match(await stateOf(signedOfOther), { was_told: true });
  t.match(await stateOf(untouched), { was_told: true });
  t.same((await canceled()).map((row) => String(row["call"])).toSorted(), [
    "signed",
    "unknown",
    "unsigned",
  ]);
  await inChanged(`SELECT purser_cancel_call('${agent.agentId}', 'c')`, async () => {
    const lock = "SELECT FROM agents WHERE id = $1 FOR UPDATE NOWAIT";
    await t.rejects(pool.query(lock, [agent.agentId]), { code: "55P03" }, "under the agent's lock");
    await t.resolves(pool.query(lock, [other.agentId]), "and no other's");
    const { rows } = await pool.query(
      `SELECT pg_try_advisory_xact_lock(hashtextextended('${agent.agentId}' || ' ' || 'c', 0)) AS free`,
    );
    t.same(rows, [{ free: false }], "and under the call's lock, as a response that is sent");
  });
});
