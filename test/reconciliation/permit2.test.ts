// Goal: a Permit2 payment, whose nonce no event contains, is explained, repaired and restored with its charged
// amount like any other; unexplained transfers still raise an alarm.
import { randomBytes } from "node:crypto";
import t from "tap";
import { encodeFunctionData, multicall3Abi, toHex, type Address, type Hex } from "viem";
import { x402ExactPermit2ProxyABI, x402UptoPermit2ProxyABI } from "@x402/evm";
import type { SignedAuthorization } from "../../server/core/authorization.ts";
import { newId } from "../../server/core/ids.ts";
import { MULTICALL3_ADDRESS } from "../../server/core/networks.ts";
import { findScheme, paymentSchemeOf } from "../../server/schemes/index.ts";
import { ERC20_ABI, EXACT_PROXY, PERMIT2, UPTO_PROXY } from "../helpers/permit2.ts";
import { until } from "../helpers/until.ts";
import { settlePermit2, type Permit2Proof } from "../x402-client/permit2-sellers.ts";
import {
  reconciliationWorld,
  assertLedgerEqualsChain,
  differences,
  overview,
  reconcile,
  stealFrom,
  untilRead,
  type ReconciliationWorld,
} from "./world.ts";

const MAXIMUM = 50_000n;

/** A payment signed by custody, reserved, and sent to a seller. */
async function sentToSellerPermit2(
  ctx: ReconciliationWorld,
  name: "exact" | "upto",
  facilitator: Address,
) {
  const { app, agent, chain, payee, database } = ctx;
  const scheme = findScheme(name, { assetTransferMethod: "permit2" });
  const network = app.chains.byChainId(chain.chainId)?.network;
  if (!scheme || !network) throw new Error("no such scheme");
  const authorization = scheme.authorize({
    network,
    from: agent.walletAddress.toLowerCase() as Address,
    payTo: payee.toLowerCase() as Address,
    amountAtomic: MAXIMUM,
    validAfter: 0n,
    validBefore: BigInt(Math.floor(Date.now() / 1_000) + 600),
    nonce: toHex(randomBytes(32)),
    extra: { facilitatorAddress: facilitator },
  });
  const signature = await app.custody.signAuthorization(agent.id, authorization, {
    kind: "policy",
  });
  const signed: SignedAuthorization = { ...authorization, signature };
  const id = newId("pay");
  await database.pool.query(
    `WITH a AS (UPDATE agents SET window_sum = window_sum + $6 WHERE id = $1)
     INSERT INTO payments (agent_id, id, kind, status, chain_id, asset, counterparty, amount, nonce, valid_before, maximum)
     VALUES ($1, $2, 'x402', 'submitted', $3, $4, $5, $6, $7, $8, $9)`,
    [
      agent.id,
      id,
      chain.chainId,
      authorization.asset,
      authorization.to,
      String(MAXIMUM),
      authorization.nonce,
      String(authorization.validBefore),
      name === "upto" ? String(MAXIMUM) : null,
    ],
  );
  await app.settlement.accept(app.pool, {
    id,
    kind: "x402",
    agentId: agent.id,
    authorization: signed,
    relay: false,
  });
  const payload = paymentSchemeOf(signed).proofPayload(signed) as Permit2Proof["payload"];
  return { id, proof: { payload } };
}

async function approve({ chain, agent }: ReconciliationWorld): Promise<void> {
  const address = agent.walletAddress;
  await chain.testClient.impersonateAccount({ address });
  await chain.testClient.setBalance({ address, value: 10n ** 18n });
  const data = encodeFunctionData({
    abi: ERC20_ABI,
    functionName: "approve",
    args: [PERMIT2, 10_000_000n],
  });
  const hash = await chain.testClient.request({
    method: "eth_sendTransaction",
    params: [{ from: address, to: chain.usdc, data }],
  } as never);
  await chain.publicClient.waitForTransactionReceipt({ hash });
}

/** A third party's relay contract, whose inner calls cannot be read from its calldata. */
async function hiddenRelay({ chain }: ReconciliationWorld) {
  const [relayer] = chain.accounts;
  if (!relayer) throw new Error("no account");
  const address: Address = toHex(randomBytes(20));
  const code = (await chain.publicClient.getCode({ address: MULTICALL3_ADDRESS })) ?? "0x";
  await chain.testClient.setCode({ address, bytecode: code });
  const callOf = ({ payload }: Permit2Proof, charged?: bigint) => {
    const { signature, permit2Authorization: signed } = payload;
    const { facilitator, to } = signed.witness;
    const permit = {
      permitted: { token: signed.permitted.token, amount: BigInt(signed.permitted.amount) },
      nonce: BigInt(signed.nonce),
      deadline: BigInt(signed.deadline),
    };
    const validAfter = BigInt(signed.witness.validAfter);
    const callData: Hex = facilitator
      ? encodeFunctionData({
          abi: x402UptoPermit2ProxyABI,
          functionName: "settle",
          args: [permit, charged ?? 0n, signed.from, { to, facilitator, validAfter }, signature],
        })
      : encodeFunctionData({
          abi: x402ExactPermit2ProxyABI,
          functionName: "settle",
          args: [permit, signed.from, { to, validAfter }, signature],
        });
    return { target: facilitator ? UPTO_PROXY : EXACT_PROXY, allowFailure: false, callData };
  };
  /** Settles all in one transaction. */
  const settle = async (...payments: (readonly [Permit2Proof, bigint?])[]) => {
    const hash = await chain.walletClient(relayer).writeContract({
      address,
      abi: multicall3Abi,
      functionName: "aggregate3",
      args: [payments.map(([proof, charged]) => callOf(proof, charged))],
    });
    await chain.publicClient.waitForTransactionReceipt({ hash });
  };
  return { address, settle };
}

t.test("Permit2 in reconciliation", async (t) => {
  const ctx = await reconciliationWorld(t, { env: { CONFIRMATIONS_5042002: "1" } });
  const { app, chain, database, agent } = ctx;
  const [relayer] = chain.accounts;
  if (!relayer) throw new Error("no account");
  await approve(ctx);
  const paymentOf = async (id: string) =>
    (
      await database.pool.query<{ status: string; amount: string; maximum: string | null }>(
        "SELECT status, amount::text, maximum::text FROM payments WHERE id = $1",
        [id],
      )
    ).rows[0];
  const settledByEngine = (id: string) =>
    until(async () => (await paymentOf(id))?.status === "settled", 15_000);
  const window = async () =>
    (
      await database.pool.query<{ sum: string }>(
        "SELECT window_sum::text AS sum FROM agents WHERE id = $1",
        [agent.id],
      )
    ).rows[0]?.sum;

  await t.test("payments relayed by others are explained", async (t) => {
    const exact = await sentToSellerPermit2(ctx, "exact", relayer.address);
    await settlePermit2(chain, relayer, exact.proof);
    const upto = await sentToSellerPermit2(ctx, "upto", relayer.address);
    await settlePermit2(chain, relayer, upto.proof, 7_000n);
    const hidden = await sentToSellerPermit2(ctx, "exact", relayer.address);
    await (await hiddenRelay(ctx)).settle([hidden.proof]);
    for (const { id } of [exact, upto, hidden]) await settledByEngine(id);
    t.same(await paymentOf(upto.id), { status: "settled", amount: "7000", maximum: "50000" });
    t.equal(await window(), "107000", "the amount that was not charged is available again");
    await reconcile(ctx);
    t.same(await differences(ctx), []);
    t.match(await overview(ctx), { ledger: [{ equalsChain: true }] });
    await assertLedgerEqualsChain(t, ctx);
  });

  await t.test("wrongly marked failed: settled again with the charged amount", async (t) => {
    const { id, proof } = await sentToSellerPermit2(ctx, "upto", relayer.address);
    const before = BigInt((await window()) ?? "0");
    await settlePermit2(chain, relayer, proof, 9_000n);
    await settledByEngine(id);
    await database.pool.query(
      `WITH s AS (UPDATE settlements SET status = 'failed', error_reason = 'x', error_message = 'x', value = 50000,
                    tx_hash = NULL, block_number = NULL, final_at = now() WHERE id = $1),
            a AS (UPDATE agents SET window_sum = window_sum - 9000 WHERE id = $2)
       UPDATE payments SET status = 'voided', amount = 50000, tx_hash = NULL, settled_at = NULL WHERE id = $1`,
      [id, agent.id],
    );
    await untilRead(ctx, async () => (await paymentOf(id))?.status === "settled");
    t.match(await differences(ctx), [{ kind: "payment_not_settled", repaired: true }]);
    t.match(await paymentOf(id), { amount: "9000" });
    t.equal(BigInt((await window()) ?? "0"), before - MAXIMUM + 9_000n);
    await assertLedgerEqualsChain(t, ctx);
  });

  await t.test("restored after the loss of its rows", async (t) => {
    const { id, proof } = await sentToSellerPermit2(ctx, "upto", relayer.address);
    const before = BigInt((await window()) ?? "0");
    await settlePermit2(chain, relayer, proof, 11_000n);
    await settledByEngine(id);
    await database.pool.query("DELETE FROM payments WHERE id = $1", [id]);
    await database.pool.query("DELETE FROM settlements WHERE id = $1", [id]);
    await database.pool.query("UPDATE agents SET window_sum = $2 WHERE id = $1", [
      agent.id,
      String(before - MAXIMUM),
    ]);
    await untilRead(ctx, async () =>
      (await differences(ctx)).some(({ kind, repaired }) => kind === "payment_unknown" && repaired),
    );
    const { rows } = await database.pool.query<{ amount: string; nonce: string }>(
      "SELECT amount::text, nonce FROM payments WHERE agent_id = $1 AND memo LIKE 'Found%'",
      [agent.id],
    );
    t.match(rows, [{ amount: "11000", nonce: /^permit2:0x/ }]);
    t.equal(BigInt((await window()) ?? "0"), before - MAXIMUM + 11_000n);
    await assertLedgerEqualsChain(t, ctx);
  });

  await t.test("identical payments in one unreadable call: all are settled", async (t) => {
    const relay = await hiddenRelay(ctx);
    const before = BigInt((await window()) ?? "0");
    const exact = [
      await sentToSellerPermit2(ctx, "exact", relayer.address),
      await sentToSellerPermit2(ctx, "exact", relayer.address),
    ] as const;
    await relay.settle([exact[0].proof], [exact[1].proof]);
    const upto = [
      await sentToSellerPermit2(ctx, "upto", relay.address),
      await sentToSellerPermit2(ctx, "upto", relay.address),
    ] as const;
    await relay.settle([upto[0].proof, 7_000n], [upto[1].proof, 9_000n]);
    for (const { id } of [...exact, ...upto]) await settledByEngine(id);
    const charged = await Promise.all(upto.map(async ({ id }) => (await paymentOf(id))?.amount));
    t.same(new Set(charged), new Set(["7000", "9000"]), "each transfer belongs to one payment");
    t.equal(await window(), String(before + 2n * MAXIMUM + 16_000n));
    await reconcile(ctx);
    t.notOk((await differences(ctx)).some(({ repaired }) => !repaired));
    t.match(await overview(ctx), { ledger: [{ equalsChain: true }] });
    await assertLedgerEqualsChain(t, ctx);
  });

  await t.test("a payment that cannot be proven does not block the chain", async (t) => {
    const relay = await hiddenRelay(ctx);
    const { id, proof } = await sentToSellerPermit2(ctx, "exact", relayer.address);
    const lost = await sentToSellerPermit2(ctx, "exact", relayer.address);
    // As after a restore: two payments left the same transfers, and only one of them is known.
    await database.pool.query("DELETE FROM payments WHERE id = $1", [lost.id]);
    await database.pool.query("DELETE FROM settlements WHERE id = $1", [lost.id]);
    await relay.settle([proof], [lost.proof]);
    const used = await chain.publicClient.getBlockNumber();
    const readTo = async () => BigInt((await overview(ctx)).ledger[0]?.asOfBlock ?? "0");
    const later = async () => {
      await chain.testClient.mine({ blocks: 1 });
      await reconcile(ctx);
    };
    for (let round = 0; round < 5; round += 1) await later();
    t.equal(await readTo(), used - 1n, "reconciliation waits as long as it may still be proven");
    await database.pool.query("UPDATE settlements SET valid_before = 1 WHERE id = $1", [id]);
    await until(async () => {
      await later();
      return (await readTo()) > used;
    }, 15_000);
    const left = (await differences(ctx)).filter(({ repaired }) => !repaired);
    t.same(
      left.map(({ kind }) => kind),
      ["transfer_unknown", "transfer_unknown"],
    );
    t.match(await paymentOf(id), { status: "submitted" }, "its status is not changed");

    ctx.config.timings.reconcileRecheckMs = 0;
    // When it is proven in the end, its transfer is explained.
    const block = await chain.publicClient.getBlock({ blockNumber: used });
    const row = await app.settlement.find(id);
    if (!row || !left[0]?.tx_hash) throw new Error("no such row");
    const { from, asset, nonce } = row.authorization;
    await app.settlement.record(chain.chainId, [
      {
        from,
        asset,
        nonce,
        status: "settled",
        proof: {
          kind: "receipt",
          tx: left[0].tx_hash,
          block: String(used),
          blockHash: block.hash,
        },
        isFinal: true,
        byOther: true,
      },
    ]);
    await until(async () => {
      await later();
      return (await differences(ctx)).filter(({ repaired }) => !repaired).length === 1;
    }, 15_000);
    await database.pool.query("UPDATE ledger_differences SET healed_at = now()");
  });

  await t.test("an unexplained transfer still raises an alarm", async (t) => {
    await stealFrom(ctx, agent.walletAddress, 5n);
    await untilRead(ctx, async () =>
      (await differences(ctx)).some(({ kind }) => kind === "transfer_unknown"),
    );
    t.match(await overview(ctx), { ledger: [{ equalsChain: false }] });
  });
});
