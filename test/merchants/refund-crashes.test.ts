// Goal: whenever the process is killed during a refund, it is paid once or not at all; its amount is reserved as
// long as it may be paid, and released when it provably was not.
// Tier: full (kills at every step of one more flow).
import t, { type Test } from "tap";
import { killedMidway } from "../spending/replica.helper.ts";
import { expectGasIsAccounted } from "../helpers/engine-invariants.ts";
import { until } from "../helpers/until.ts";
import {
  send,
  balanceOf,
  merchantWorld,
  pay,
  refundUrl,
  signedRefund,
  type World,
} from "./world.ts";

const usdc = 1_000_000n;

t.test("killed at every step", async (t) => {
  const ctx = await merchantWorld(t);
  const { merchant, payer, database } = ctx;
  // The last one holds locks on the gas budget, for which the others would wait.
  const points = ["locked", "recorded", "committed", "accepted"] as const;
  const refunds = [];
  for (const point of points) {
    const id = await pay(ctx, merchant.account.address);
    refunds.push({ point, id, authorization: await signedRefund(ctx, merchant, id) });
  }
  const before = await balanceOf(ctx, payer.address);
  await killedMidway(
    t,
    ctx,
    refunds.map(({ point, id, authorization }) => ({
      point,
      path: refundUrl(id),
      headers: merchant.headers,
      body: { authorization },
    })),
  );
  // A committed refund is paid without a repeat.
  await until(async () => (await balanceOf(ctx, payer.address)) === before + usdc);
  for (const [index, { point, id, authorization }] of refunds.entries())
    await t.test(`killed at ${point}`, async (t) => {
      const { rows } = await database.pool.query("SELECT 1 FROM refunds WHERE settlement_id = $1", [
        id,
      ]);
      t.equal(rows.length, point === "committed" ? 1 : 0, "all of it or nothing");
      const again = await send(ctx, merchant, "POST", refundUrl(id), { authorization });
      t.match(again, { status: 200, body: { status: "settled", amount: "1" } });
      const paid = new Set([...points.slice(0, index + 1), "committed"]).size;
      t.equal(await balanceOf(ctx, payer.address), before + BigInt(paid) * usdc, "paid once");
      t.match(await send(ctx, merchant, "POST", refundUrl(id), {}), {
        body: { code: "not_refundable" },
      });
    });
  await expectGasIsAccounted(t, ctx.database.pool);
});

t.test("unknown stays unknown, and only a proven end releases the amount", async (t: Test) => {
  const ctx = await merchantWorld(t, { env: { SETTLE_WAIT_MS: "1500" } });
  const { app, chain, merchant, payer, database } = ctx;
  const id = await pay(ctx, merchant.account.address);
  const authorization = await signedRefund(ctx, merchant, id);
  // The wallet is emptied after the check: the token refuses for now, and it is unknown for how long.
  app.refundFaults.at = async (point) => {
    if (point === "accepted") await empty(ctx);
  };
  const waiting = await send(ctx, merchant, "POST", refundUrl(id), { authorization });
  delete app.refundFaults.at;
  t.match(waiting, { status: 202, body: { status: "pending" } });
  const taken = async () =>
    (await send(ctx, merchant, "GET", `/api/merchant/settlements/${id}`)).body;
  t.match(await taken(), { refunded: "1", refundable: "0" });
  t.match(await send(ctx, merchant, "POST", refundUrl(id), {}), {
    body: { code: "not_refundable" },
  });
  // The authorization has expired: the next block proves that it was not used.
  await database.pool.query(
    "UPDATE settlements SET valid_before = extract(epoch FROM now()) WHERE kind = 'refund'",
  );
  await until(async () => {
    await chain.testClient.mine({ blocks: 1 });
    return (await taken())["refundable"] === "1";
  });
  t.match(await taken(), { refunds: [{ status: "failed", txHash: null }] });
  t.match(
    await send(ctx, merchant, "POST", refundUrl(id), { authorization }),
    { status: 200, body: { status: "failed" } },
    "a repeat returns the result",
  );
  await database.pool.query("UPDATE settlements SET final_at = NULL WHERE kind = 'refund'");
  t.match(
    await taken(),
    { refundable: "0", refunds: [{ status: "pending" }] },
    "not final: still reserved",
  );
  await database.pool.query("UPDATE settlements SET final_at = now() WHERE kind = 'refund'");
  const before = await balanceOf(ctx, payer.address);
  await chain.mint(merchant.account.address, usdc);
  const second = await signedRefund(ctx, merchant, id);
  t.not(second.order["nonce"], authorization.order["nonce"], "another transfer");
  t.match(await send(ctx, merchant, "POST", refundUrl(id), { authorization: second }), {
    status: 200,
  });
  t.equal(await balanceOf(ctx, payer.address), before + usdc);
});

/** Moves the merchant's whole balance away. */
async function empty(ctx: World): Promise<void> {
  const { chain, merchant } = ctx;
  const account = merchant.account;
  await chain.testClient.setBalance({ address: account.address, value: 10n ** 18n });
  const hash = await chain.walletClient(account).writeContract({
    address: chain.usdc,
    abi: [
      {
        type: "function",
        name: "transfer",
        stateMutability: "nonpayable",
        inputs: [
          { name: "to", type: "address" },
          { name: "value", type: "uint256" },
        ],
        outputs: [{ type: "bool" }],
      },
    ],
    functionName: "transfer",
    args: [ctx.payer.address, await balanceOf(ctx, account.address)],
  });
  await chain.publicClient.waitForTransactionReceipt({ hash });
}
