// Goal: our client pays unmodified sellers of both protocol versions with any facilitator; with ours there is one row and one broadcast.
import t from "tap";
import { assertLedgerIsChain, PAYEE } from "./market.ts";
import {
  expressSeller,
  honoSeller,
  ourFacilitator,
  stockFacilitator,
  stockMarket,
  V1_NAME,
  v1Seller,
} from "./stock-sellers.ts";

t.test("stock sellers", async (t) => {
  const { made, account } = await stockMarket(t);
  const { chain } = made;
  const facilitators = {
    reference: stockFacilitator(chain, account, V1_NAME),
    ours: ourFacilitator(made.baseUrl),
  };
  for (const [whose, facilitator] of Object.entries(facilitators)) {
    const options = { chain, payTo: PAYEE, facilitator };
    const sellers = {
      express: await expressSeller(t, options),
      hono: await honoSeller(t, options),
      v1: await v1Seller(t, { ...options, v1Name: V1_NAME }),
    };
    for (const [sold, url] of Object.entries(sellers)) {
      await t.test(`${sold} with ${whose} facilitator`, async (t) => {
        made.config.fetchPrivateOrigins.push(new URL(url).origin);
        const before = await made.balanceOf(PAYEE);
        const answer = await made.fetch({ url });
        t.match(
          answer,
          {
            status: 200,
            body: {
              paid: true,
              amountPaid: "0.001",
              data: { sold },
              network: `eip155:${chain.chainId}`,
            },
          },
          JSON.stringify(answer.body),
        );
        t.equal((await made.balanceOf(PAYEE)) - before, 1000n);
        t.match(await made.lastPayment(), {
          status: "settled",
          delivered: true,
          tx_hash: answer.body["txHash"],
        });
        const { rows } = await made.database.pool.query<Record<string, unknown>>(
          "SELECT id, relay, by_other FROM settlements WHERE agent_id = $1 ORDER BY created_at DESC LIMIT 1",
          [made.agent.id],
        );
        t.same(
          rows[0],
          {
            id: answer.body["paymentId"],
            relay: whose === "ours",
            by_other: whose !== "ours",
          },
          "our facilitator attached to the existing row",
        );
        t.match(await made.fetch({ url, dryRun: true }), {
          body: { price: "0.001", verdict: { allowed: true } },
        });
      });
    }
  }
  const { rows } = await made.database.pool.query<{ kind: string; count: string }>(
    "SELECT kind, count(*)::text AS count FROM settlements GROUP BY kind",
  );
  t.same(rows, [{ kind: "x402", count: "6" }], "never a second row for one authorization");
  await assertLedgerIsChain(t, made);
});
