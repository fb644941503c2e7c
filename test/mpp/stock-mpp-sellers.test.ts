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
  const { rows } = await made.database.pool.query<{ count: string }>(
    "SELECT count(*)::text AS count FROM settlements",
  );
  t.equal(Number(rows[0]?.count), settled, "one row for each payment, and no other");
  await assertLedgerIsChain(t, made);
});
