// Goal: an authorization in a seller's hands is followed until it is used by anyone, canceled by us or expired; and the agent's payment and budget follow it.
import t, { type Test } from "tap";
import { newId } from "../../server/core/ids.ts";
import { transferCalldata } from "../../server/schemes/exact-eip3009/onchain.ts";
import type { SettlementRequest } from "../../server/plugins/settlement/types.ts";
import { testChain, type TestChain } from "../helpers/chain.ts";
import { expectLedgerEqualsChain } from "../helpers/engine-invariants.ts";
import {
  authorize,
  BRISK,
  payers,
  randomAddress,
  request,
  signCancel,
  startEngine,
  type TestEngine,
} from "../helpers/engine.ts";
import { testDatabase, type TestDatabase } from "../helpers/postgres.ts";
import { until } from "../helpers/until.ts";

const BLOCK_MS = 200;
let chain: TestChain;
let database: TestDatabase;
let node: TestEngine;

t.before(async () => {
  chain = await testChain(t, { blockTimeSeconds: BLOCK_MS / 1_000 });
  database = await testDatabase(t);
  node = await startEngine(t, {
    databaseUrl: database.url,
    chain,
    blockTimeMs: BLOCK_MS,
    timings: BRISK,
  });
});

/** Creates an agent with its own wallet. */
async function world() {
  const [wallet] = payers(1);
  if (!wallet) throw new Error("no wallet");
  await chain.mint(wallet.address, 10_000n);
  const ownerId = newId("own");
  const agentId = newId("agt");
  await database.pool.query("INSERT INTO owners (id, address) VALUES ($1, $2)", [
    ownerId,
    randomAddress(),
  ]);
  await database.pool.query(
    "INSERT INTO agents (id, owner_id, name, network, wallet_address, daily_limit, window_sum) VALUES ($1, $2, 'a', $3, $4, 5000, 1000)",
    [agentId, ownerId, `eip155:${chain.chainId}`, wallet.address.toLowerCase()],
  );

  /** Creates an x402 payment as the client leaves it: signed, counted, and in a seller's hands. */
  const signed = async (validForSeconds = 600): Promise<SettlementRequest> => {
    const { timestamp } = await chain.publicClient.getBlock();
    const authorization = await authorize(chain, wallet, {
      to: randomAddress(),
      validBefore: timestamp + BigInt(validForSeconds),
    });
    const wanted = request(authorization, { kind: "x402", agentId, relay: false });
    await database.pool.query(
      `INSERT INTO payments (agent_id, id, kind, status, chain_id, asset, counterparty, amount, nonce)
       VALUES ($1, $2, 'x402', 'submitted', $3, $4, $5, 1000, $6)`,
      [
        agentId,
        wanted.id,
        chain.chainId,
        chain.usdc.toLowerCase(),
        authorization.to,
        authorization.nonce,
      ],
    );
    await node.engine.settlement.accept(node.pool, wanted);
    return wanted;
  };
  const seller = async (wanted: SettlementRequest) => {
    const [account] = chain.accounts;
    if (!account) throw new Error("no account");
    return chain.walletClient(account).sendTransaction({
      to: chain.usdc,
      data: transferCalldata(wanted.authorization, wanted.authorization.signature),
    });
  };
  const ledger = async (wanted: SettlementRequest) => {
    const { rows } = await database.pool.query<{ status: string; window_sum: string }>(
      "SELECT p.status, a.window_sum FROM payments p JOIN agents a ON a.id = p.agent_id WHERE p.id = $1",
      [wanted.id],
    );
    return rows[0];
  };
  return { wallet, signed, seller, ledger };
}

t.test("a seller uses it", async (t) => {
  const { signed, seller, ledger } = await world();
  const wanted = await signed();
  const hash = await seller(wanted);
  const outcome = await node.engine.settlement.wait(wanted.id, 15_000);
  t.match(outcome, { status: "settled", txHash: hash, byOther: true });
  t.same(await ledger(wanted), { status: "settled", window_sum: "1000" });
  await expectLedgerEqualsChain(t, chain, database.pool);
});

t.test("a transaction hint is checked, and proves nothing by itself", async (t) => {
  const { signed, seller } = await world();
  const other = await signed();
  const wanted = await signed();
  const foreign = await seller(other);
  await chain.publicClient.waitForTransactionReceipt({ hash: foreign });
  t.match(
    await node.engine.settlement.wait(wanted.id, 500, { look: true, txHash: foreign }),
    { status: "pending" },
    "a transaction of another payment",
  );
  const hash = await seller(wanted);
  await chain.publicClient.waitForTransactionReceipt({ hash });
  t.match(await node.engine.settlement.wait(wanted.id, 10_000, { look: true, txHash: hash }), {
    status: "settled",
    txHash: hash,
  });
  t.match(await node.engine.settlement.wait(other.id, 10_000, { look: true }), {
    status: "settled",
    txHash: foreign,
  });
  await expectLedgerEqualsChain(t, chain, database.pool);
});

t.test("it is not used: it expires, and only then the budget is released", async (t) => {
  const { signed, ledger } = await world();
  const wanted = await signed(60);
  t.match(await node.engine.settlement.wait(wanted.id, 500), { status: "pending" });
  t.same(
    await ledger(wanted),
    { status: "submitted", window_sum: "1000" },
    "a timeout proves nothing",
  );
  await chain.testClient.setNextBlockTimestamp({ timestamp: wanted.authorization.validBefore });
  const outcome = await node.engine.settlement.wait(wanted.id, 20_000);
  t.match(outcome, {
    status: "expired",
    reason: "invalid_exact_evm_payload_authorization_valid_before",
  });
  t.same(await ledger(wanted), { status: "voided", window_sum: "0" });
  await expectLedgerEqualsChain(t, chain, database.pool);
});

t.test("it is canceled before the seller collects", async (t) => {
  const { wallet, signed, seller, ledger } = await world();
  const wanted = await signed();
  const { authorization } = wanted;
  const cancelSignature = await signCancel(chain, wallet, authorization.nonce);
  const cancellation = { key: authorization, cancelSignature };
  t.match(
    await node.engine.settlement.requestCancel({ ...cancellation, timeoutMs: 0 }),
    { status: "pending" },
    "the chain decides: nothing is reported before a block",
  );
  const outcome = await node.engine.settlement.requestCancel(cancellation);
  t.equal(outcome.status, "canceled", node.logText());
  t.same(await ledger(wanted), { status: "voided", window_sum: "0" });
  await t.rejects(seller(wanted), /used or canceled/, "the seller comes too late");
  t.match(await node.engine.settlement.requestCancel({ key: authorization, cancelSignature }), {
    status: "canceled",
  });
  await expectLedgerEqualsChain(t, chain, database.pool);
});

t.test("the seller was faster than the cancellation", async (t) => {
  const { wallet, signed, seller, ledger } = await world();
  const wanted = await signed();
  const hash = await seller(wanted);
  await chain.publicClient.waitForTransactionReceipt({ hash });
  const outcome = await node.engine.settlement.requestCancel({
    key: wanted.authorization,
    cancelSignature: await signCancel(chain, wallet, wanted.authorization.nonce),
  });
  t.match(outcome, { status: "settled", txHash: hash });
  t.same(await ledger(wanted), { status: "settled", window_sum: "1000" });
  await expectLedgerEqualsChain(t, chain, database.pool);
});

t.test("the seller uses our facilitator: the same row is relayed", async (t) => {
  const { signed, ledger } = await world();
  const wanted = await signed();
  const attached = await node.engine.settlement.accept(node.pool, {
    ...request(wanted.authorization),
    bodyHash: new Uint8Array(32).fill(7),
  });
  t.equal(attached.created, false);
  t.equal(attached.settlement.id, wanted.id);
  t.equal(attached.settlement.relay, true);
  t.same(Buffer.from(attached.settlement.bodyHash ?? []), Buffer.alloc(32, 7));
  const outcome = await node.engine.settlement.wait(wanted.id, 15_000);
  t.match(outcome, { status: "settled", byOther: false });
  t.same(await ledger(wanted), { status: "settled", window_sum: "1000" });
  await expectLedgerEqualsChain(t, chain, database.pool);
});

t.test("another authorization with the same nonce is not taken for it", async (t) => {
  const { wallet, signed, ledger } = await world();
  const wanted = await signed();
  const { nonce } = wanted.authorization;
  const different = await authorize(chain, wallet, { to: randomAddress(), value: 1n, nonce });
  const answer = await node.engine.settlement.accept(node.pool, request(different));
  t.equal(answer.settlement.relay, false, "not attached");
  t.equal(
    answer.settlement.authorization.value,
    1_000n,
    "the caller sees the stored authorization",
  );
  const [account] = chain.accounts;
  if (!account) throw new Error("no account");
  await chain.walletClient(account).sendTransaction({
    to: chain.usdc,
    data: transferCalldata(different, different.signature),
  });
  t.match(await node.engine.settlement.wait(wanted.id, 15_000), { status: "failed" });
  t.same(
    await ledger(wanted),
    { status: "voided", window_sum: "0" },
    "this payment can never happen",
  );
  await expectLedgerEqualsChain(t, chain, database.pool);
});

/** A payment without money, which is refused. */
async function refusedPayment(t: Test) {
  const [poor] = payers(1);
  if (!poor) throw new Error("no payer");
  const { timestamp } = await chain.publicClient.getBlock();
  const wanted = request(
    await authorize(chain, poor, { to: randomAddress(), validBefore: timestamp + 600n }),
  );
  await node.engine.settlement.accept(node.pool, wanted);
  t.match(await node.engine.settlement.wait(wanted.id, 15_000), { status: "failed" });
  return { poor, wanted };
}

/** As long after its expiry as if no process had run until then. */
const expire = (id: string) =>
  database.pool.query(
    "UPDATE settlements SET valid_before = extract(epoch FROM now()) - 3600 WHERE id = $1",
    [id],
  );
/** Refused rows are looked at only from time to time. */
const makeDue = (id: string) =>
  database.pool.query("UPDATE settlements SET look_at = now() WHERE id = $1", [id]);

for (const isLate of [false, true])
  t.test(
    `refused here, and relayed by a third party later${isLate ? ", which is seen when it has expired" : ""}`,
    { timeout: 60_000 },
    async (t) => {
      const { seller } = await world();
      const before = node.corrections.length;
      const { poor, wanted } = await refusedPayment(t);
      await chain.mint(poor.address, 1_000n);
      const txHash = await seller(wanted);
      if (isLate) await expire(wanted.id);
      const row = async () =>
        (await node.engine.settlement.find(wanted.id)) ?? { status: undefined };
      await until(async () => {
        await makeDue(wanted.id);
        return (await row()).status === "settled";
      }, 40_000);
      t.match(await row(), { txHash, byOther: true });
      await until(() => node.corrections.length > before);
      t.same(
        node.corrections.slice(before),
        ["failed_to_settled"],
        "corrected once, with an alarm",
      );
      await expectLedgerEqualsChain(t, chain, database.pool);
    },
  );

t.test("refused here, and expired unused: nobody looks at it again", async (t) => {
  await world();
  const { wanted } = await refusedPayment(t);
  await expire(wanted.id);
  await makeDue(wanted.id);
  await until(async () => {
    const { rows } = await database.pool.query(
      "SELECT 1 FROM settlements WHERE id = $1 AND status = 'failed' AND look_at = 'infinity'",
      [wanted.id],
    );
    return rows.length === 1;
  }, 40_000);
});
