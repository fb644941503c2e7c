// Goal: our client pays unmodified sellers through Permit2, exact or upto, with any facilitator; the uncharged rest is released at once.
import t from "tap";
import { until } from "../helpers/until.ts";
import { market, PAYEE } from "./market.ts";
import {
  allowanceOf,
  assertLedgerIsWallet,
  permit2Seller,
  referencePermit2,
} from "./permit2-sellers.ts";
import { ourFacilitator } from "./stock-sellers.ts";

t.test("stock sellers paid through Permit2", async (t) => {
  const made = await market(t, {
    listen: true,
    env: { SETTLE_WAIT_MS: "10000", CONFIRMATIONS_31337: "1" },
    agent: { dailyLimit: "1", perPaymentLimit: "0.1" },
  });
  const { chain, agent } = made;
  const account = chain.accounts[1];
  if (!account) throw new Error("the test chain has no accounts");
  const limits = async () => {
    const answer = await made.app.inject({ url: "/api/agents/me", headers: agent.headers });
    return answer.json<{ limits: Record<string, string> }>().limits;
  };
  let spent = 0n;
  const facilitators = {
    ours: ourFacilitator(made.baseUrl),
    reference: referencePermit2(chain, account),
  };
  for (const [whose, facilitator] of Object.entries(facilitators)) {
    const origin = await permit2Seller(t, { chain, payTo: PAYEE, facilitator });
    made.config.fetchPrivateOrigins.push(origin);

    await t.test(`exact with ${whose} facilitator`, async (t) => {
      const before = await made.balanceOf(PAYEE);
      const answer = await made.fetch({ url: `${origin}/exact` });
      t.match(
        answer,
        { status: 200, body: { paid: true, amountPaid: "0.002", data: { sold: "exact" } } },
        JSON.stringify(answer.body),
      );
      t.notOk("receipt" in answer.body);
      spent += 2_000n;
      t.equal((await made.balanceOf(PAYEE)) - before, 2_000n);
      t.match(await made.lastPayment(), { status: "settled", tx_hash: answer.body["txHash"] });
    });

    await t.test(`upto with ${whose} facilitator`, async (t) => {
      const before = await made.balanceOf(PAYEE);
      const key = { "idempotency-key": `upto ${whose}` };
      const answer = await made.fetch({ url: `${origin}/upto/7777` }, key);
      t.match(
        answer,
        {
          status: 200,
          body: {
            paid: true,
            amountPaid: "0.007777",
            data: { used: "7777" },
            receipt: { scheme: "upto", amount: "0.007777", maximum: "0.05" },
          },
        },
        JSON.stringify(answer.body),
      );
      spent += 7_777n;
      t.equal((await made.balanceOf(PAYEE)) - before, 7_777n);
      t.match(await made.lastPayment(), { status: "settled", amount: "7777" });
      const { remaining, reserved, spent: spentText } = await limits();
      t.match(
        { remaining, reserved, spentText },
        { reserved: "0", spentText: `0.${String(spent).padStart(6, "0")}`.replace(/0+$/, "") },
        "the uncharged rest is released",
      );
      t.equal(answer.body["remaining"], remaining);
      const again = await made.fetch({ url: `${origin}/upto/7777` }, key);
      t.match(again, { status: 200, headers: { "idempotent-replayed": "true" } });
      t.equal(again.body["txHash"], answer.body["txHash"], "the same key pays once");
      t.equal((await made.balanceOf(PAYEE)) - before, 7_777n);
    });

    await t.test(`upto, nothing used, with ${whose} facilitator`, async (t) => {
      const answer = await made.fetch({ url: `${origin}/upto/0` });
      t.match(
        answer,
        {
          status: 200,
          body: {
            paid: false,
            amountPaid: "0",
            txHash: null,
            delivered: true,
            receipt: { amount: "0", maximum: "0.05" },
            budgetReturnsAt: /Z$/,
            note: /charged nothing/,
          },
        },
        JSON.stringify(answer.body),
      );
      t.match(await made.lastPayment(), { status: "submitted", amount: "50000" });
    });
  }
  t.equal(
    (await limits())["reserved"],
    "0.1",
    "an amount that could still be charged stays reserved until its deadline",
  );
  const { rows } = await made.database.pool.query<{ kind: string; relay: boolean; n: string }>(
    "SELECT kind, relay, count(*)::text AS n FROM settlements GROUP BY 1, 2 ORDER BY 1, 2",
  );
  t.same(rows, [
    { kind: "allowance", relay: true, n: "1" },
    { kind: "x402", relay: false, n: "4" },
    { kind: "x402", relay: true, n: "2" },
  ]);
  t.equal(await allowanceOf(made), 1_000_000n - spent, "one permit, for the daily limit");

  // After the deadline on chain it is proven that the rest was not charged,
  await chain.testClient.increaseTime({ seconds: 200 });
  await chain.testClient.mine({ blocks: 3 });
  // and it is released.
  await until(async () => (await limits())["reserved"] === "0", 60_000);
  await assertLedgerIsWallet(t, made);
});
