// Goal: while an endpoint is behind, a settle pays what was claimed just before, alone or with a refund: it is not refused
// as nothing to settle, and does not get an earlier settle's answer. A voucher and a claim after a deposit are not refused either.
import t, { type Test } from "tap";
import { AMPLE_GAS, testApp } from "../helpers/app.ts";
import { testChain } from "../helpers/chain.ts";
import { lagging, PASSING, rpcProxy, type Rule } from "../helpers/rpc-proxy.ts";
import {
  account,
  channelOf,
  channelWorld,
  claimBody,
  depositBody,
  voucherBody,
} from "./channel-bodies.ts";
import { channelIdOf } from "../helpers/batch-settlement.ts";
import { post, type Body } from "./payments.ts";

const NOTHING = "invalid_batch_settlement_evm_nothing_to_settle";

async function laggingWorld(t: Test, { endpoints }: { endpoints: 1 | 2 }) {
  const chain = await testChain(t);
  const proxy = await rpcProxy(t, chain.rpcUrl);
  const urls = [proxy.url, chain.rpcUrl].slice(0, endpoints);
  const { app, database } = await testApp(t, {
    chain,
    env: {
      [`RPC_URL_${chain.chainId}`]: urls.join(),
      [`GAS_BUDGET_${chain.chainId}`]: AMPLE_GAS,
      MIN_PAYMENT: "0",
    },
  });
  const world = channelWorld(chain);
  const seller = world.seller();
  const settle = (body: Body) => post(app, "settle", body);
  const justNow = async (): Promise<void> => {
    await database.pool.query(
      "UPDATE settlements SET settled_at = now() WHERE settled_at IS NOT NULL",
    );
  };
  return {
    app,
    chain,
    proxy,
    world,
    seller,
    channel: await world.open(seller),
    settle,
    /** Calls are answered as of the present block from now on: all of them, or those that name no block. */
    stopShowing: async (which: "all" | "latest") => {
      const { number } = await chain.publicClient.getBlock();
      const behind = lagging({ atBlock: Number(number) }, ["eth_call"]);
      const isPassed = (params: unknown[]) => which === "latest" && params[1] !== "latest";
      const rule: Rule = (call, request) =>
        isPassed(call.params) ? PASSING(call, request) : behind(call, request);
      proxy.behave = rule;
    },
    /** However slow this machine is: only orders of the last minute are looked for. */
    settleAtOnce: async () => {
      await justNow();
      return settle(world.settle(seller));
    },
    justNow,
    paid: () => chain.usdcOf(seller.receiver),
  };
}

t.test("the preferred of two endpoints is behind the claim", async (t) => {
  const { proxy, world, channel, settle, stopShowing, settleAtOnce, paid } = await laggingWorld(t, {
    endpoints: 2,
  });
  await settle(await world.claim([{ channel, total: 100n }]));
  t.match(await settleAtOnce(), { success: true, amount: "100" });
  await stopShowing("all");
  t.match(await settle(await world.claim([{ channel, total: 400n }])), { success: true });
  const before = proxy.count("eth_call");
  t.match(await settleAtOnce(), { success: true, amount: "300" });
  t.ok(proxy.count("eth_call") > before, "the one that is behind was asked");
  t.equal(await paid(), 400n);
});

t.test("behind a balancer, some answers are of an earlier block", async (t) => {
  const { world, channel, settle, stopShowing, settleAtOnce, paid } = await laggingWorld(t, {
    endpoints: 1,
  });
  await stopShowing("latest");
  t.match(await settle(await world.claim([{ channel, total: 400n }])), { success: true });
  t.match(await settleAtOnce(), { success: true, amount: "400" }, "it shows no claim");

  await stopShowing("latest");
  t.match(await settleAtOnce(), { success: false, errorReason: NOTHING });
  t.match(await settle(await world.claim([{ channel, total: 700n }])), { success: true });
  await stopShowing("latest");
  t.match(await settleAtOnce(), { success: true, amount: "300" });
  t.equal(await paid(), 700n);
  t.match(await settle(await world.claim([{ channel, total: 900n }])), { success: true });
  // It shows the claim of 700, and not that it is settled.
  t.match(
    await settleAtOnce(),
    { success: true, amount: "200" },
    "not the answer of the one before",
  );
  t.equal(await paid(), 900n);
  t.match(await settleAtOnce(), { success: false, errorReason: NOTHING });

  await stopShowing("latest");
  const refund = await world.refund(channel, {
    amount: 5_000n,
    charges: [{ channel, total: 1_500n }],
  });
  t.match(await settle(refund), { success: true, amount: "5000" });
  t.match(await settleAtOnce(), { success: true, amount: "600" }, "what the refund claimed");
  t.equal(await paid(), 1_500n);
});

t.test("a voucher and a claim after a deposit that an endpoint does not show", async (t) => {
  const { app, chain, proxy, settle, stopShowing, justNow } = await laggingWorld(t, {
    endpoints: 1,
  });
  const channel = channelOf(chain, { voucherKey: account() });
  const id = channelIdOf(chain, channel.config).slice(2);
  await chain.mint(channel.config.payer, 20_000n);
  await stopShowing("latest");
  const behind = proxy.behave;
  t.match(await settle(await depositBody(channel)), { success: true });
  await justNow();
  const verify = async (ceiling: bigint) =>
    post(app, "verify", await voucherBody(channel, ceiling));
  t.match(await verify(2_000n), { isValid: true, extra: { balance: "10000" } });
  const over = { isValid: false, invalidReason: /cumulative_exceeds_balance|channel_not_found/ };
  t.match(await verify(10_001n), over, "and no more than that");

  // It shows the deposit after it was asked for the channel a few times.
  let stale = 3;
  proxy.behave = (call, request) => {
    const { method, params } = call;
    if (method === "eth_call" && JSON.stringify(params).includes(id)) stale -= 1;
    return stale > 0 ? behind(call, request) : PASSING(call, request);
  };
  t.match(await settle(await claimBody([{ channel, ceiling: 2_000n, total: 700n }])), {
    success: true,
  });
  t.ok(stale <= 0, "it was behind at first");
});
