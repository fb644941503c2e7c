// Goal: our own wallet pays our own paywall whatever else it offers, and fetches again by signature what it has paid for.
import type { FastifyRequest } from "fastify";
import t from "tap";
import { OneProcessStore } from "../../packages/paywall/src/paywall.ts";
import { market, PAYEE } from "../x402-client/market.ts";
import { newAccount, openShop } from "./shop.ts";

t.test("our wallet at our paywall", async (t) => {
  const made = await market(t, { listen: true, env: { SETTLE_WAIT_MS: "10000" } });
  const { chain, baseUrl } = made;
  const key = newAccount();
  let served = 0;
  const { origin } = await openShop(
    t,
    chain,
    `${baseUrl}/api/x402`,
    (app) => {
      const again = { price: "0.001", again: { for: "1h" } };
      app.get("/article", { config: { paywall: again } }, async (request: FastifyRequest) => {
        served += 1;
        return { served, kind: request.payment?.kind };
      });
    },
    { store: new OneProcessStore(), receipts: { signer: key }, payTo: PAYEE },
  );
  made.config.fetchPrivateOrigins.push(origin);
  const url = `${origin}/article`;
  t.match((await made.fetch({ url })).body, {
    paid: true,
    amountPaid: "0.001",
    signedIn: undefined,
    data: { served: 1, kind: "settled" },
  });
  t.match((await made.fetch({ url })).body, {
    paid: false,
    amountPaid: "0",
    signedIn: true,
    data: { served: 2, kind: "again" },
  });
  t.match((await made.fetch({ url: `${url}?page=2` })).body, {
    paid: true,
    data: { served: 3, kind: "settled" },
  });
  t.equal(await made.balanceOf(PAYEE), 2_000n);
});
