// Goal: reconciliation corrects wrong rows from the chain's own record, counts the differences, and raises an
// alarm.
import t from "tap";
import { payers, authorize, request } from "../helpers/engine.ts";
import { asOwner, createAgent } from "../helpers/owner.ts";
import { rpcProxy, type RpcProxy } from "../helpers/rpc-proxy.ts";
import { testChain } from "../helpers/chain.ts";
import { testApp, type TestApp } from "../helpers/app.ts";
import {
  alarms,
  RECONCILIATION_TIMINGS,
  reconciliationWorld,
  assertLedgerEqualsChain,
  differences,
  sentToSeller,
  metric,
  overview,
  reconcile,
  readMore,
  ready,
  relay,
  sendTo,
  settlementOf,
  spend,
  stealFrom,
  untilRead,
  usdc,
  withAgent,
} from "./world.ts";

const VOID = `
  WITH s AS (
    UPDATE settlements SET status = 'failed', error_reason = 'authorization_already_used',
      error_message = 'The authorization was used before it was presented here.', tx_hash = NULL, block_number = NULL,
      block_hash = NULL, settled_at = NULL, proof = '{"kind":"unrecorded"}'
     WHERE id = $1 RETURNING agent_id, id),
  p AS (UPDATE payments p SET status = 'voided', tx_hash = NULL, block_number = NULL, settled_at = NULL
          FROM s WHERE p.agent_id = s.agent_id AND p.id = s.id RETURNING p.amount, p.agent_id)
  UPDATE agents a SET window_sum = window_sum - p.amount FROM p WHERE a.id = p.agent_id`;

let shared: TestApp;
let proxy: RpcProxy;

t.before(async () => {
  const chain = await testChain(t);
  proxy = await rpcProxy(t, chain.rpcUrl);
  const chainBehind = { ...chain, rpcUrl: proxy.url };
  shared = await testApp(t, { chain: chainBehind, timings: { ...RECONCILIATION_TIMINGS } });
});

/** A new owner and agent on the shared service; no open differences, and the node behaves normally. */
async function newAgent() {
  proxy.reset();
  Object.assign(shared.config.timings, RECONCILIATION_TIMINGS);
  await reconcile(shared);
  // The differences of other agents are kept, so that none of them raises an alarm again.
  await shared.database.pool.query("UPDATE ledger_differences SET healed_at = now()");
  await shared.database.pool.query("DELETE FROM ledger_differences WHERE agent_id IS NULL");
  shared.logs.length = 0;
  return { ctx: await withAgent(shared), proxy };
}

t.test("without differences it reports so, and up to which block", async (t) => {
  const { ctx } = await newAgent();
  t.match(await spend(ctx, "1"), { statusCode: 200 });
  await sendToSelf(ctx);
  await reconcile(ctx);
  const head = await ctx.chain.publicClient.getBlockNumber({ cacheTime: 0 });
  t.same(await differences(ctx), []);
  t.match(await overview(ctx), {
    ledger: [
      { network: "eip155:5042002", equalsChain: true, asOfBlock: String(head), differences: [] },
    ],
  });
  t.match(await ready(ctx), {
    status: 200,
    ledger: { ok: true, detail: `the ledger matches the chain as of block ${head}` },
  });
  t.match(await metric(ctx, "purser_ledger_block"), new RegExp(`5042002"} ${head}$`));
  t.same(alarms(ctx), []);
  await assertLedgerEqualsChain(t, ctx);
});

t.test("a payment wrongly marked failed is settled again, and counts", async (t) => {
  const { ctx } = await newAgent();
  const { app, agent, database } = ctx;
  const { txHash, paymentId } = (await spend(ctx, "4")).json<{
    txHash: string;
    paymentId: string;
  }>();
  await database.pool.query(VOID, [paymentId]);
  const limits = async () =>
    (await app.inject({ url: "/api/agents/me", headers: agent.headers })).json<{
      limits: { spent: string };
    }>().limits.spent;
  t.equal(await limits(), "0", "the wrong row released the budget");
  await reconcile(ctx);
  t.match(await settlementOf(ctx, paymentId), {
    status: "settled",
    tx_hash: txHash,
    payment: "settled",
  });
  t.equal(await limits(), "4");
  t.match(await differences(ctx), [
    { kind: "payment_not_settled", repaired: true, tx_hash: txHash },
  ]);
  t.same(alarms(ctx), ["ledger_payment_not_settled"]);
  t.match(await overview(ctx), { ledger: [{ equalsChain: true }] });
  await assertLedgerEqualsChain(t, ctx);
});

t.test("a payment wrongly marked failed is found by Purser's own transaction", async (t) => {
  const { ctx } = await newAgent();
  const { app, chain, database, payee } = ctx;
  const [payer] = payers(1);
  if (!payer) throw new Error("no payer");
  await chain.mint(payer.address, usdc);
  const wanted = request(await authorize(chain, payer, { to: payee }));
  await app.settlement.accept(app.pool, wanted);
  const outcome = await app.settlement.wait(wanted.id, 10_000);
  t.match(outcome, { status: "settled" });
  await reconcile(ctx);
  t.same(await differences(ctx), []);

  const again = request(await authorize(chain, payer, { to: payee }));
  await app.settlement.accept(app.pool, again);
  t.match(await app.settlement.wait(again.id, 10_000), { status: "settled" });
  await database.pool.query(VOID, [again.id]);
  // As in the original defect: the transaction was attributed to another relayer.
  await untilRead(ctx, async () => (await settlementOf(ctx, again.id))?.status === "settled");
  t.match(await differences(ctx), [{ kind: "payment_not_settled", repaired: true }]);
});

t.test("a row marked settled that is not on the chain is opened again", async (t) => {
  const { ctx } = await newAgent();
  const { chain, database } = ctx;
  const { id } = await sentToSeller(ctx, { amount: 2n * usdc });
  await chain.testClient.mine({ blocks: 1 });
  const block = await chain.publicClient.getBlock();
  const bogus = `0x${"ab".repeat(32)}`;
  await database.pool.query(
    `UPDATE settlements SET status = 'settled', tx_hash = $2, block_number = $3::bigint, block_hash = $4, settled_at = now(),
       final_at = now(), by_other = TRUE,
       proof = jsonb_build_object('kind', 'receipt', 'tx', $2::text, 'block', $3, 'blockHash', $4::text) WHERE id = $1`,
    [id, bogus, String(block.number), block.hash],
  );
  await database.pool.query(
    "UPDATE payments SET status = 'settled', tx_hash = $2, block_number = $3::bigint, settled_at = now() WHERE id = $1",
    [id, bogus, String(block.number)],
  );
  await reconcile(ctx);
  t.match(
    await settlementOf(ctx, id),
    { status: "settled" },
    "an absence must last before it counts",
  );
  t.notMatch(
    await overview(ctx),
    { ledger: [{ asOfBlock: String(block.number) }] },
    "not read yet",
  );
  await untilRead(ctx, async () => (await settlementOf(ctx, id))?.status === "queued");
  t.match(await settlementOf(ctx, id), { payment: "submitted" });
  t.match(await differences(ctx), [
    { kind: "payment_not_on_chain", repaired: true, tx_hash: bogus },
  ]);
  t.ok(alarms(ctx).includes("ledger_payment_not_on_chain"));
});

t.test("a voided reservation that a third party relays later is counted", async (t) => {
  const { ctx } = await newAgent();
  const { id, authorization } = await sentToSeller(ctx, { amount: 3n * usdc });
  await ctx.database.pool.query(VOID, [id]);
  await reconcile(ctx);
  const hash = await relay(ctx, authorization);
  await reconcile(ctx);
  t.match(await settlementOf(ctx, id), { status: "settled", tx_hash: hash, payment: "settled" });
  t.match(await differences(ctx), [{ kind: "payment_not_settled", repaired: true, tx_hash: hash }]);
  t.match((await spend(ctx, "8")).json(), { code: "daily_limit_exceeded" });
  await assertLedgerEqualsChain(t, ctx);
});

t.test("money that leaves without an authorization raises an alarm until closed", async (t) => {
  const { ctx } = await newAgent();
  const hash = await stealFrom(ctx, ctx.agent.walletAddress, 5n * usdc);
  await reconcile(ctx);
  t.match(await differences(ctx), [{ kind: "transfer_unknown", repaired: false, tx_hash: hash }]);
  t.same(alarms(ctx), ["ledger_transfer_unknown"]);
  t.match(await overview(ctx), {
    ledger: [{ equalsChain: false, differences: [{ kind: "transfer_unknown", txHash: hash }] }],
  });
  t.match(await ready(ctx), {
    status: 200,
    ledger: { ok: true, detail: /^degraded: .*\(1 transfer_unknown\)/ },
  });
  t.match(
    await metric(
      ctx,
      'purser_ledger_differences{network="eip155:5042002",kind="transfer_unknown"}',
    ),
    / 1$/,
  );
  await ctx.database.pool.query("UPDATE ledger_differences SET healed_at = now()");
  t.match(await overview(ctx), { ledger: [{ equalsChain: true }] });
});

t.test("a second signer with the relayer's key raises an alarm", async (t) => {
  const ctx = await reconciliationWorld(t);
  const { chain } = ctx;
  t.equal((await spend(ctx, "1")).statusCode, 200);
  await reconcile(ctx);
  const hash = await chain
    .walletClient(chain.relayer)
    .sendTransaction({ to: chain.admin.address, value: 1n });
  await chain.publicClient.waitForTransactionReceipt({ hash });
  await reconcile(ctx);
  t.same(await differences(ctx), [], "its row may still be on the way");
  await untilRead(ctx, async () => (await differences(ctx)).length > 0);
  t.match(await differences(ctx), [
    {
      kind: "relayer_nonce",
      repaired: false,
      detail: { lane: chain.relayer.address.toLowerCase(), count: 1 },
    },
  ]);
  t.ok(alarms(ctx).includes("ledger_relayer_nonce"));
  t.match(
    await overview(ctx),
    { ledger: [{ equalsChain: true }] },
    "it concerns only the operator",
  );
  t.match(await ready(ctx), { ledger: { detail: /1 relayer_nonce/ } });
});

t.test("a node without the logs proves nothing: the blocks wait, without an alarm", async (t) => {
  const { ctx, proxy } = await newAgent();
  const { chain } = ctx;
  proxy.behave = ({ method }) =>
    method === "eth_getLogs" ? { do: "answer", result: [] } : { do: "pass" };
  t.equal((await spend(ctx, "1")).statusCode, 200);
  const head = await chain.publicClient.getBlockNumber({ cacheTime: 0 });
  await readMore(ctx);
  t.notMatch(await overview(ctx), { ledger: [{ asOfBlock: String(head) }] });
  t.same(await differences(ctx), []);
  proxy.reset();
  await reconcile(ctx);
  t.match(await overview(ctx), { ledger: [{ equalsChain: true, asOfBlock: String(head) }] });

  // Money left that no row misses: the balance shows that logs are missing.
  await sendTo(ctx, ctx.agent.walletAddress, 0n);
  const stolen = await stealFrom(ctx, ctx.agent.walletAddress, 2n * usdc);
  proxy.behave = ({ method, params }) => {
    const [filter] = params as [{ topics?: unknown[] }];
    return method === "eth_getLogs" && filter.topics?.length === 2
      ? { do: "answer", result: [] }
      : { do: "pass" };
  };
  await chain.mint(chain.accounts[0]?.address ?? "0x", usdc);
  await sendTo(ctx, ctx.agent.walletAddress, usdc);
  await reconcile(ctx);
  const at = await chain.publicClient.getBlockNumber({ cacheTime: 0 });
  t.notMatch(await overview(ctx), { ledger: [{ asOfBlock: String(at) }] }, "the range waits");
  proxy.reset();
  await untilRead(ctx, async () => (await differences(ctx)).length > 0);
  t.match(await differences(ctx), [{ kind: "transfer_unknown", tx_hash: stolen }]);
});

t.test("two log responses of different blocks raise no false alarm", async (t) => {
  const { ctx, proxy } = await newAgent();
  const { chain } = ctx;
  const other = await createAgent(ctx, ctx.owner, { allowlist: [ctx.payee] });
  const added = await asOwner(ctx.app, ctx.owner, {
    method: "POST",
    url: `/api/agents/${ctx.agent.id}/allowlist`,
    body: { address: other.walletAddress },
  });
  t.equal(added.statusCode, 201, added.body);
  t.equal((await spend({ ...ctx, payee: other.walletAddress }, "1")).statusCode, 200);
  // The transfer is missing among the outgoing ones, but present among the incoming ones, without its
  // authorization.
  proxy.behave = ({ method, params: [filter] }) =>
    method === "eth_getLogs" && (filter as { topics: unknown[] }).topics.length === 2
      ? { do: "answer", result: [] }
      : { do: "pass" };
  await readMore(ctx);
  t.same(await differences(ctx), []);
  t.same(alarms(ctx), []);
  proxy.reset();
  await reconcile(ctx);
  const head = String(await chain.publicClient.getBlockNumber({ cacheTime: 0 }));
  t.match(await overview(ctx), { ledger: [{ equalsChain: true, asOfBlock: head }] });
});

t.test("a transfer whose log came late is found, also by another process", async (t) => {
  const chain = await testChain(t);
  const proxy = await rpcProxy(t, chain.rpcUrl);
  const ctx = await reconciliationWorld(t, { chain: { ...chain, rpcUrl: proxy.url } });
  await reconcile(ctx);
  await sendToSelf(ctx);
  const late = await chain.publicClient.getBlockNumber({ cacheTime: 0 });
  // The block is there without its log; nothing else changes in this wallet, so the balance cannot show it.
  proxy.behave = ({ method }) =>
    method === "eth_getLogs" ? { do: "answer", result: [] } : { do: "pass" };
  await reconcile(ctx);
  t.match(await overview(ctx), { ledger: [{ asOfBlock: String(late) }] }, "apparently read");
  await ctx.app.close();
  proxy.reset();
  const next = await testApp(t, {
    chain: { ...chain, rpcUrl: proxy.url },
    database: ctx.database,
    timings: { ...RECONCILIATION_TIMINGS, reconcileLookBackMs: 0 },
  });
  const received = async () =>
    (
      await ctx.database.pool.query<{ n: number }>(
        "SELECT count(*)::int AS n FROM payments WHERE agent_id = $1 AND kind = 'incoming' AND block_number = $2",
        [ctx.agent.id, String(late)],
      )
    ).rows[0]?.n;
  t.equal(await received(), 0);
  for (let pass = 0; pass < 3; pass += 1) await reconcile(next);
  t.equal(await received(), 1, "once, however often it is read");
});

t.test("an outgoing transfer whose log came late is counted then", async (t) => {
  const chain = await testChain(t);
  const proxy = await rpcProxy(t, chain.rpcUrl);
  const ctx = await reconciliationWorld(t, { chain: { ...chain, rpcUrl: proxy.url } });
  t.match(await spend(ctx, "1"), { statusCode: 200 });
  await reconcile(ctx);
  proxy.behave = ({ method }) =>
    method === "eth_getLogs" ? { do: "answer", result: [] } : { do: "pass" };
  await stealFrom(ctx, ctx.agent.walletAddress, usdc);
  await reconcile(ctx);
  const late = await chain.publicClient.getBlockNumber({ cacheTime: 0 });
  t.match(await overview(ctx), { ledger: [{ asOfBlock: String(late) }] }, "apparently read");
  proxy.reset();
  t.match(await spend(ctx, "2"), { statusCode: 200 });
  await reconcile(ctx);
  const head = await chain.publicClient.getBlockNumber({ cacheTime: 0 });
  t.match(await overview(ctx), { ledger: [{ asOfBlock: String(head) }] }, "nothing waits for it");
  await untilRead(ctx, async () => (await differences(ctx)).length > 0);
  const kinds = (await differences(ctx)).map(({ kind }) => kind);
  t.same(
    kinds,
    ["transfer_unknown"],
    "a transfer that was not signed here is reported, however late",
  );
});

t.test("two short absences of logs are not one long absence", async (t) => {
  const { ctx, proxy } = await newAgent();
  ctx.config.timings.reconcileAbsentMs = 150;
  await sendToSelf(ctx);
  await reconcile(ctx);
  for (const amount of [1_000n, 2_000n]) {
    const { authorization } = await sentToSeller(ctx, { amount });
    await relay(ctx, authorization);
    await sendToSelf(ctx);
    proxy.behave = ({ method, params: [filter] }) =>
      method === "eth_getLogs" && (filter as { topics: unknown[] }).topics.length === 2
        ? { do: "answer", result: [] }
        : { do: "pass" };
    await reconcile(ctx);
    proxy.reset();
    // As long as one absence would have to last.
    await new Promise((resolve) => setTimeout(resolve, 2 * ctx.config.timings.reconcileAbsentMs));
    await reconcile(ctx);
  }
  const kinds = (await differences(ctx)).map(({ kind }) => kind);
  t.notOk(kinds.includes("balance_short"), kinds.join(", "));
});

t.test("a range that cannot be finished raises one alarm", async (t) => {
  const chain = await testChain(t);
  const proxy = await rpcProxy(t, chain.rpcUrl);
  const ctx = await reconciliationWorld(t, { chain: { ...chain, rpcUrl: proxy.url } });
  await sendToSelf(ctx);
  await reconcile(ctx);
  await stealFrom(ctx, ctx.agent.walletAddress, 2n * usdc);
  await sendToSelf(ctx);
  const lost = `0x${(await chain.publicClient.getBlockNumber({ cacheTime: 0 })).toString(16)}`;
  // The outgoing transfer is in no log, and the block of the incoming one is missing.
  proxy.behave = ({ method, params }) => {
    const [first] = params as [{ topics?: unknown[] } | string];
    if (method === "eth_getBlockByNumber" && first === lost)
      return { do: "answer", error: { code: -32603, message: "block not found" } };
    return method === "eth_getLogs" && typeof first === "object" && first.topics?.length === 2
      ? { do: "answer", result: [] }
      : { do: "pass" };
  };
  ctx.config.timings.reconcileAbsentMs = 0;
  for (let pass = 0; pass < 5; pass += 1) {
    await chain.testClient.mine({ blocks: 1 });
    await reconcile(ctx).catch(() => undefined);
  }
  t.match(await differences(ctx), [{ kind: "balance_short", repaired: false }], "one row");
  t.same(alarms(ctx), ["ledger_balance_short"], "one alarm");
});

async function sendToSelf(
  ctx: Parameters<typeof sendTo>[0] & { agent: { walletAddress: `0x${string}` } },
) {
  await ctx.chain.mint(ctx.chain.accounts[0]?.address ?? "0x", usdc);
  await sendTo(ctx, ctx.agent.walletAddress, usdc);
}
