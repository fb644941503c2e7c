// Goal: in local mode an agent can try three sellers: a fixed price, a price by use, and one that fails after the
// payment; and a person can pay on the pay page with the demo wallet. None of this exists in production.
import t from "tap";
import { privateKeyToAddress } from "viem/accounts";
import { launchBrowser, openPage } from "../helpers/browser.ts";
import { testApp } from "../helpers/app.ts";
import { testAccount } from "../helpers/chain.ts";
import { until } from "../helpers/until.ts";
import { market } from "../x402-client/market.ts";
import { reaching } from "./seller.ts";

const SELLERS = ["weather", "words", "broken"];

t.test("in production there is no sandbox and no demo wallet", async (t) => {
  const { app } = await testApp(t);
  for (const url of [
    ...SELLERS.map((name) => `/api/sandbox/${name}`),
    "/api/local/demo-wallet.js",
    "/api/local/demo-wallet/sign",
  ])
    t.equal((await app.inject(url)).statusCode, 404, url);
  const sign = { method: "POST", url: "/api/local/demo-wallet/sign", payload: {} } as const;
  t.equal((await app.inject(sign)).statusCode, 404);
  const page = await app.inject({ url: "/api/arc-stats", headers: { accept: "text/html" } });
  t.equal(page.statusCode, 402);
  t.notMatch(page.body, "demo-wallet");
  t.notMatch((await app.inject("/openapi.json")).body, "/api/sandbox");
  const { items } = (await app.inject("/api/listings?category=sandbox")).json<{
    items: unknown[];
  }>();
  t.same(items, []);
});

t.test("the local world", async (t) => {
  const { configure } = reaching();
  const payTo = testAccount(902).address;
  const made = await market(t, {
    listen: true,
    env: { SETTLE_WAIT_MS: "10000" },
    agent: { allowlist: [payTo] },
    configure(config) {
      configure?.(config);
      config.demoPayTo = payTo;
      config.fetchPrivateOrigins.push(config.publicUrl);
    },
  });
  const { app, baseUrl, config } = made;
  const url = (name: string): string => `${baseUrl}/api/sandbox/${name}`;

  await t.test("an agent pays the three sellers", async (t) => {
    t.match((await made.fetch({ url: url("weather") })).body, {
      paid: true,
      amountPaid: "0.01",
      data: { city: "Lisbon" },
    });
    t.match((await made.fetch({ url: `${url("words")}?count=5` })).body, {
      paid: true,
      amountPaid: "0.005",
      data: { words: ["amber", "brook", "cedar", "delta", "ember"] },
    });
    const failed = await made.fetch({ url: url("broken") });
    t.match(failed, {
      status: 502,
      body: { code: "paid_upstream_failed", amountPaid: "0.002", txHash: /^0x/ },
    });
    t.notMatch(
      JSON.stringify(failed.body),
      "Nothing was paid",
      "the seller's words do not deny it",
    );
    t.equal(await made.balanceOf(payTo), 17_000n);
    t.equal(await made.balanceOf(made.agent.walletAddress), 4_983_000n, "it paid exactly that");
    const { rows } = await made.database.pool.query<{ status: string; sum: string }>(
      "SELECT status, sum(amount)::text AS sum FROM payments GROUP BY status",
    );
    t.same(rows, [{ status: "settled", sum: "17000" }], "and the ledger says so");
  });

  await t.test("they are in the marketplace", async (t) => {
    const names = async () =>
      (await app.inject("/api/listings?category=sandbox"))
        .json<{ items: { thirdParty: { name: string } }[] }>()
        .items.map(({ thirdParty }) => thirdParty.name);
    await until(async () => (await names()).length === SELLERS.length);
    t.same((await names()).toSorted(), ["Sandbox broken", "Sandbox weather", "Sandbox words"]);
    for (const detail of ["short", "full"]) {
      const { items } = (await app.inject(`/api/listings?category=sandbox&detail=${detail}`)).json<{
        items: { url: string; price: string; maximum?: true }[];
      }>();
      const price = (name: string) => {
        const { price, maximum } = items.find((item) => item.url === url(name)) ?? {};
        return { price, maximum };
      };
      t.same(price("words"), { price: "0.05", maximum: true }, "it is charged by use");
      t.same(price("weather"), { price: "0.01", maximum: undefined });
    }
  });

  await t.test("a person pays with the demo wallet", async (t) => {
    const { page, faults } = await openPage(t, await launchBrowser(), { width: 360 });
    await page.goto(url("weather"));
    await page.getByRole("button", { name: "Pay with the demo wallet" }).click();
    await page.getByText("Paid. Each response is a new payment").waitFor();
    t.match(await page.locator("#data").textContent(), "Lisbon");
    t.equal(await made.balanceOf(payTo), 27_000n);
    // Priced by use: a person pays the price of this request, and no maximum.
    await page.goto(`${url("words")}?count=3`);
    await page.getByRole("heading", { name: "0.003 USDC" }).waitFor();
    await page.getByRole("button", { name: "Pay with the demo wallet" }).click();
    await page.getByText("Paid. Each response is a new payment").waitFor();
    t.match(await page.locator("#data").textContent(), "cedar");
    t.equal(await made.balanceOf(payTo), 30_000n);
    t.same(faults, []);
  });

  await t.test("the demo wallet signs only payments, and only for our own pages", async (t) => {
    const key = config.local?.demoOwnerPrivateKey ?? "0x";
    const transfer = {
      to: payTo,
      value: "1",
      validAfter: "0",
      validBefore: "1",
      nonce: `0x${"1".repeat(64)}`,
    };
    const sign = (payload: object, headers: Record<string, string> = {}) =>
      app.inject({ method: "POST", url: "/api/local/demo-wallet/sign", headers, payload });
    const own = await sign(transfer, { origin: baseUrl });
    t.match(own.json(), { signature: /^0x[0-9a-f]{130}$/ });
    t.equal(own.headers["access-control-allow-origin"], undefined);
    t.equal((await sign(transfer)).statusCode, 403, "without an origin");
    t.equal((await sign(transfer, { origin: "https://evil.example" })).statusCode, 403);
    const order = { types: {}, primaryType: "Withdraw", domain: {}, message: {} };
    t.equal((await sign(order, { origin: baseUrl })).statusCode, 422);
    const script = (await app.inject("/api/local/demo-wallet.js")).body;
    t.match(script, privateKeyToAddress(key));
    t.notMatch(script, key.slice(2), "the script does not contain the key");
  });
});
