// Goal: our client pays an unmodified MPP server, alone or beside x402 and with any facilitator, once and
// over one protocol.
import t from "tap";
import { assertLedgerIsChain, PAYEE } from "../x402-client/market.ts";
import { stockFacilitator, stockMarket, V1_NAME } from "../x402-client/stock-sellers.ts";
import { mppxSeller, type MppxFacilitator } from "./mpp-sellers.ts";

t.test("stock MPP servers", async (t) => {
  const { made, account } = await stockMarket(t);
  const { chain } = made;
  const facilitators: Record<string, MppxFacilitator> = {
    reference: stockFacilitator(chain, account, V1_NAME) as unknown as MppxFacilitator,
    ours: `${made.baseUrl}/api/x402`,
  };
  let settled = 0;
  for (const [facilitatorName, facilitator] of Object.entries(facilitators)) {
    for (const offersX402 of [false, true]) {
      const seller = await mppxSeller(t, { chain, payTo: PAYEE, facilitator, offersX402 });
      made.config.fetchPrivateOrigins.push(seller.origin);
      const by = offersX402 ? "x402, which is first at equal prices" : "MPP";
      await t.test(`${facilitatorName} facilitator, paid by ${by}`, async (t) => {
        const before = await made.balanceOf(PAYEE);
        const quote = await made.fetch({ url: seller.url, dryRun: true });
        t.match(quote, {
          body: {
            price: "0.001",
            verdict: { allowed: true },
            requirement: { scheme: offersX402 ? "exact" : "charge" },
          },
        });
        const answer = await made.fetch({ url: seller.url });
        t.match(
          answer,
          {
            status: 200,
            body: {
              paid: true,
              amountPaid: "0.001",
              data: { sold: "mppx" },
              thirdParty: {
                paymentResponse: offersX402 ? { success: true } : { status: "success" },
              },
            },
          },
          JSON.stringify(answer.body),
        );
        t.equal((await made.balanceOf(PAYEE)) - before, 1000n, "paid once");
        t.equal(seller.sold(), 1);
        t.match(await made.lastPayment(), { status: "settled", delivered: true });
        settled += 1;
        const { rows } = await made.database.pool.query<Record<string, unknown>>(
          "SELECT id, relay, by_other FROM settlements WHERE agent_id = $1 ORDER BY created_at DESC LIMIT 1",
          [made.agent.id],
        );
        t.same(rows[0], {
          id: answer.body["paymentId"],
          relay: facilitatorName === "ours",
          by_other: facilitatorName !== "ours",
        });
      });
    }
  }
  await t.test("a seller that requires payments bound to its route", async (t) => {
    const facilitator = `${made.baseUrl}/api/x402`;
    const terms = { chain, payTo: PAYEE, facilitator, boundTo: "GET /paid" };
    const byX402 = await mppxSeller(t, { ...terms, offersX402: true });
    const byMpp = await mppxSeller(t, terms);
    for (const [seller, scheme] of [
      [byX402, "exact"],
      [byMpp, "charge"],
    ] as const) {
      made.config.fetchPrivateOrigins.push(seller.origin);
      const quote = await made.fetch({ url: seller.url, dryRun: true });
      t.match(quote.body["requirement"], { scheme });
      for (const nth of [1, 2]) {
        const answer = await made.fetch({ url: seller.url });
        t.match(answer, { status: 200, body: { paid: true, amountPaid: "0.001" } }, answer.text);
        t.equal(seller.sold(), nth);
        settled += 1;
      }
    }
  });

  const { rows } = await made.database.pool.query<{ count: string }>(
    "SELECT count(*)::text AS count FROM settlements",
  );
  t.equal(Number(rows[0]?.count), settled, "one row for each payment, and no other");

  await t.test("a refusal of the payment itself is not called retryable", async (t) => {
    const facilitator: MppxFacilitator = {
      verify: async () => ({ isValid: false, invalidReason: "not_welcome" }),
      settle: async () => ({ success: false, transaction: "", network: "eip155:1" }),
    };
    const seller = await mppxSeller(t, { chain, payTo: PAYEE, facilitator, offersX402: true });
    made.config.fetchPrivateOrigins.push(seller.origin);
    const answer = await made.fetch({ url: seller.url });
    t.match(
      answer,
      { status: 502, body: { code: "settlement_failed", paid: false, retryable: false } },
      answer.text,
    );
    t.match(answer.body["thirdParty"], { reason: String });
    t.equal(await made.reserved(), "0");
  });

  await assertLedgerIsChain(t, made);
});
