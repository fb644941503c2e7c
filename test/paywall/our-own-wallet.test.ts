// Goal: our own wallet pays our own paywall with all its options, verifies what the paywall signed, and
// fetches again by signature what it has paid for.
import type { FastifyRequest } from "fastify";
import t from "tap";
import { OneProcessStore } from "../../packages/paywall/src/paywall.ts";
import { callApi } from "../helpers/call.ts";
import { market } from "../x402-client/market.ts";
import { newAccount, openShop } from "./shop.ts";

t.test("our wallet at our paywall", async (t) => {
  const key = newAccount();
  const made = await market(t, {
    listen: true,
    env: { SETTLE_WAIT_MS: "10000" },
    agent: { allowlist: [key.address] },
  });
  const { chain, baseUrl } = made;
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
      const byUse = { price: { upTo: "0.05" } };
      app.get("/words", { config: { paywall: byUse } }, async (request: FastifyRequest) => {
        request.payment?.charge("0.004");
        return { words: 4 };
      });
    },
    { store: new OneProcessStore(), receipts: { signer: key }, payTo: key.address },
  );
  made.config.fetchPrivateOrigins.push(origin);
  const url = `${origin}/article`;
  t.match((await made.fetch({ url })).body, {
    paid: true,
    amountPaid: "0.001",
    signedIn: undefined,
    data: { served: 1, kind: "settled" },
    receipt: { evidence: { verified: true } },
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
  const words = { url: `${origin}/words` };
  const most = { price: "0.05", maximum: true };
  for (const detail of ["short", "full"])
    t.match((await made.fetch({ ...words, dryRun: true, detail })).body, most, detail);
  const { app, agent, owner } = made;
  const asked = (path: string) => callApi(app, owner, "POST", path, words);
  t.match((await asked("/api/listings/probe")).json(), most);
  t.match((await asked("/api/allowlist/lookup")).json(), most);
  t.match((await asked("/api/x402/validate")).json(), { offers: [most] });
  const listed = await callApi(app, owner, "POST", "/api/listings", { ...words, name: "Words" });
  t.match(listed.json(), { ...most, maxPrice: "0.05" });
  const found = await callApi(app, agent, "GET", "/api/listings?search=words&detail=short");
  t.match(found.json(), { items: [most] });
  const fixed = (await made.fetch({ url: `${url}?page=3`, dryRun: true })).body;
  t.equal(fixed["price"], "0.001");
  t.notOk("maximum" in fixed, "a fixed price is no maximum");
  t.match((await made.fetch(words)).body, {
    paid: true,
    data: { words: 4 },
    receipt: { amount: "0.004", maximum: "0.05", evidence: { verified: true } },
  });
  t.equal(await made.balanceOf(key.address), 6_000n);
});
