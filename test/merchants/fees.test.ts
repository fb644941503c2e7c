// Goal: a payee owes exactly what its settlements cost, once each, whatever happens; beyond its credit it is refused before anything is sent; and what it pays is credited once.
import { wrapFetchWithPayment } from "@x402/fetch";
import { HTTPFacilitatorClient } from "@x402/core/server";
import t, { type Test } from "tap";
import { testApp } from "../helpers/app.ts";
import { testChain } from "../helpers/chain.ts";
import { expectFeesAgree, expectLedgerEqualsChain } from "../helpers/engine-invariants.ts";
import { createAgent, signIn } from "../helpers/owner.ts";
import { testDatabase } from "../helpers/postgres.ts";
import { until } from "../helpers/until.ts";
import { post, signedPayment } from "../facilitator/payments.ts";
import { expressSeller, ourFacilitator } from "../x402-client/stock-sellers.ts";
import { stockClient } from "../paywall/stock.ts";
import {
  FEE_ADDRESS,
  merchantWorld,
  newAccount,
  owedBy,
  pay,
  payFeesUrl,
  refund,
  send,
  WITH_FEES as env,
} from "./world.ts";

/** Of a payment of 1 USDC. */
const FEE = 12_500n;

t.test("a merchant is billed, refused, and pays", async (t) => {
  const ctx = await merchantWorld(t, { env, listen: true });
  const { app, chain, merchant, payer, baseUrl } = ctx;
  const payTo = merchant.account.address;

  await t.test("the fee is announced, and stock clients ignore it", async (t) => {
    t.match((await app.inject({ url: "/api/x402/supported" })).json(), {
      fees: { billedTo: "payTo", perSettlement: "10000", perMille: "2.5", credit: "30000" },
    });
    const stock = await new HTTPFacilitatorClient({ url: `${baseUrl}/api/x402` }).getSupported();
    t.ok(stock.kinds.length > 0);
    t.match(await send(ctx, merchant, "GET", "/api/merchant/fees"), {
      body: { terms: { perSettlement: "0.01", perMille: "2.5", credit: "0.03" }, accounts: [] },
    });
  });

  const first = await pay(ctx, payTo);
  await t.test("a settlement is charged once, and a refund gives nothing back", async (t) => {
    t.equal(await owedBy(ctx, payTo), FEE);
    await until(async () => {
      const { body } = await send(ctx, merchant, "GET", `/api/merchant/settlements/${first}`);
      return body["final"] === true;
    });
    t.match(await refund(ctx, merchant, first), { body: { status: "settled" } });
    t.equal(await owedBy(ctx, payTo), FEE);
    const { body } = await send(ctx, merchant, "GET", "/api/merchant/fees/entries");
    t.match(body, { items: [{ id: first, kind: "fee", amount: "0.0125", settled: "1" }] });
    t.equal((body["items"] as unknown[]).length, 1);
  });

  await t.test("above the credit nothing is sent, and what was accepted stays good", async (t) => {
    await pay(ctx, payTo);
    const body = await signedPayment({ chain, payer, payTo, amount: "1000000" });
    const refused = { invalidReason: "fees_unpaid", invalidMessage: /owes .* 0.025 USDC/ };
    t.match(await post(app, "verify", body), { isValid: false, ...refused });
    t.match(await post(app, "settle", body), { success: false, errorReason: "fees_unpaid" });
    const small = await signedPayment({ chain, payer, payTo, amount: "30000" });
    t.match(await post(app, "verify", small), { isValid: true }, "its smaller fee fits");
    const other = await signedPayment({ chain, payer, payTo: newAccount().address });
    t.match(await post(app, "verify", other), { isValid: true }, "another payee");
    t.equal(await owedBy(ctx, payTo), 2n * FEE);
    t.equal(await chain.usdcOf(FEE_ADDRESS), 0n);
  });

  await t.test("a stock client pays what is owed, once", async (t) => {
    const wallet = newAccount();
    await chain.mint(wallet.address, 1_000_000n);
    let proof = "";
    const paying = wrapFetchWithPayment(
      async (input, init) => {
        const request = new Request(input, init);
        proof = request.headers.get("payment-signature") ?? proof;
        return fetch(request);
      },
      stockClient(chain, wallet as never),
    );
    const answer = await paying(`${baseUrl}${payFeesUrl(payTo)}`, { method: "POST" });
    t.equal(answer.status, 200);
    t.match(await answer.json(), { paid: "0.025", owed: "0", prepaid: "0" });
    t.equal(await owedBy(ctx, payTo), 0n);
    t.equal(await chain.usdcOf(FEE_ADDRESS), 2n * FEE, "the payment of fees has no fee");
    const again = await app.inject({
      method: "POST",
      url: payFeesUrl(payTo),
      headers: { "payment-signature": proof },
    });
    t.equal(again.statusCode, 402);
    t.match(again.json(), { errorReason: "duplicate_settlement" });
    t.equal(await owedBy(ctx, payTo), 0n, "credited once");
    const body = await signedPayment({ chain, payer, payTo, amount: "1000000" });
    t.match(await post(app, "verify", body), { isValid: true });
    const nothing = await app.inject({ method: "POST", url: payFeesUrl(payTo) });
    t.match(nothing.json(), { code: "invalid_amount", detail: /nothing is owed/ });
    const paid = await paying(`${baseUrl}${payFeesUrl(payTo, "0.5")}`, { method: "POST" });
    t.match(await paid.json(), { paid: "0.5", owed: "0", prepaid: "0.5" }, "an advance");
    t.match(await send(ctx, merchant, "GET", "/api/merchant/fees"), {
      body: { accounts: [{ owed: "0", prepaid: "0.5", refused: false }] },
    });
    const csv = await app.inject({
      url: "/api/merchant/fees/entries.csv",
      headers: { ...merchant.headers, origin: ctx.config.publicUrl },
    });
    t.match(csv.body, /^createdAt,id,kind,network,amount,settled\r\n/);
    t.equal(csv.body.trim().split("\r\n").length, 5, "two fees and two payments");
  });

  await t.test("a payment of fees that is posted to settle is credited as well", async (t) => {
    const wallet = newAccount();
    await chain.mint(wallet.address, 1_000_000n);
    const body = await signedPayment({
      chain,
      payer: wallet,
      payTo: FEE_ADDRESS,
      amount: "7000",
    });
    Object.assign(body.paymentPayload, { resource: { url: `${baseUrl}${payFeesUrl(payTo)}` } });
    const before = await owedBy(ctx, payTo);
    t.match(await post(app, "settle", body), { success: true });
    t.equal(await owedBy(ctx, payTo), before - 7_000n);
    const unnamed = await signedPayment({ chain, payer: wallet, payTo: FEE_ADDRESS });
    t.match(await post(app, "settle", unnamed), { success: true });
    t.equal(await owedBy(ctx, payTo), before - 7_000n);
  });

  await t.test(
    "a payment that the seller itself sends to settle has the same fee, once",
    async (t) => {
      const seller = newAccount().address;
      const agent = await createAgent(ctx, merchant, { allowlist: [seller], dailyLimit: "10" });
      await chain.mint(agent.walletAddress, 1_000_000n);
      const facilitator = ourFacilitator(baseUrl);
      const url = await expressSeller(t, { chain, payTo: seller, facilitator });
      ctx.config.fetchPrivateOrigins.push(new URL(url).origin);
      const { body } = await send(ctx, agent, "POST", "/api/agents/x402-fetch", {
        url,
        detail: "full",
      });
      t.match(body, { paid: true, status: 200 });
      const received = await chain.usdcOf(seller);
      t.ok(received > 0n);
      const { rows } = await ctx.database.pool.query<{ kind: string }>(
        "SELECT kind FROM settlements WHERE to_address = $1",
        [seller.toLowerCase()],
      );
      t.same(rows, [{ kind: "x402" }], "one row, which the seller's call joined");
      t.equal(await owedBy(ctx, seller), received / 10n, "at most a tenth");
    },
  );

  await t.test(
    "a person who pays a payee to lock it out gives it ten times its debt",
    async (t) => {
      const victim = newAccount().address;
      for (const amount of ["100", "999", "30000", "100000"])
        await pay({ app, chain, payer }, victim, amount);
      const received = await chain.usdcOf(victim);
      t.ok((await owedBy(ctx, victim)) * 10n <= received);
      t.not(await owedBy(ctx, victim), 0n);
    },
  );

  const metrics = await app.metrics.metrics();
  t.match(metrics, /purser_fees_charged_usdc\{network="eip155:\d+"\} 0\.0[0-9]+/);
  t.match(metrics, /purser_fees_paid_usdc\{network="eip155:\d+"\} 0\.532/);
  await expectFeesAgree(t, ctx.database.pool);
});

t.test(
  "two processes at the limit, and a fee that is set while payments are in flight",
  async (t: Test) => {
    const chain = await testChain(t);
    const database = await testDatabase(t);
    const before = await testApp(t, { chain, database });
    const merchant = await signIn(before);
    const payer = newAccount();
    await chain.mint(payer.address, 1_000_000_000n);
    const payTo = merchant.account.address;
    const early = await pay({ ...before, payer }, payTo);
    t.equal(await owedBy({ database }, payTo), 0n);
    const one = await testApp(t, { chain, database, env });
    const two = await testApp(t, { chain, database, env });
    t.match(await before.app.settlement.find(early), { status: "settled" });

    const bodies = await Promise.all(
      Array.from({ length: 12 }, () => signedPayment({ chain, payer, payTo, amount: "1000000" })),
    );
    const answers = await Promise.all(
      bodies.map((body, index) => post((index % 2 === 0 ? one : two).app, "settle", body)),
    );
    t.ok(answers.filter(({ success }) => success === true).length >= 2, "its credit can be used");
    await until(async () => {
      const { rows } = await database.pool.query(
        "SELECT FROM settlements WHERE status IN ('queued', 'submitted')",
      );
      return rows.length === 0;
    });
    const charged = ((await chain.usdcOf(payTo)) / 1_000_000n - 1n) * FEE;
    t.equal(await owedBy({ database }, payTo), charged, "each is charged once");
    // Posted again: nobody is charged again.
    await Promise.all(bodies.slice(0, 4).map((body) => post(two.app, "settle", body)));
    t.equal(await owedBy({ database }, payTo), charged);
    for (const { app } of [one, two]) {
      const more = await signedPayment({ chain, payer, payTo, amount: "1000000" });
      t.match(await post(app, "settle", more), { errorReason: "fees_unpaid" });
    }
    // A process of the configuration before still settles without a fee.
    await pay({ ...before, payer }, payTo);
    t.equal(await owedBy({ database }, payTo), charged);
    await expectFeesAgree(t, database.pool);
    await expectLedgerEqualsChain(t, chain, database.pool, { isAllFinal: false });
  },
);
