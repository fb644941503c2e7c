// Goal: sellers that settle here are found through the protocol's Bazaar, and no announcement delays, fails or corrupts anything.
import { decodePaymentRequiredHeader, HTTPFacilitatorClient } from "@x402/core/http";
import type { PaymentPayload, PaymentRequired } from "@x402/core/types";
import { declareDiscoveryExtension, withBazaar } from "@x402/extensions/bazaar";
import { wrapFetchWithPayment } from "@x402/fetch";
import Fastify from "fastify";
import t, { type Test } from "tap";
import { forgetDeadAnnouncements } from "../../server/plugins/marketplace/announcement.ts";
import { freePort } from "../../server/local/free-port.ts";
import { paywall } from "../../server/plugins/paywall/paywall.ts";
import { testApp, type TestApp } from "../helpers/app.ts";
import { testAccount } from "../helpers/chain.ts";
import { until } from "../helpers/until.ts";
import { proofFor, stockClient } from "../paywall/stock.ts";
import { reaching, SELLER } from "./seller.ts";

/** Somebody's Fastify app with our paywall, which settles at our facilitator's URL. */
async function externalShop(t: Test, facilitatorUrl: string, port: number) {
  const app = Fastify();
  await app.register(paywall, {
    facilitator: new HTTPFacilitatorClient({ url: facilitatorUrl }),
    networks: ["eip155:5042002"],
    payTo: SELLER,
  });
  const sold = {
    price: "0.002",
    description: "Tomorrow's weather",
    serviceName: "Weather Co",
    discoverable: { example: { rain: true } },
  };
  app.get("/weather", { config: { paywall: sold } }, async () => ({ rain: false }));
  t.teardown(() => app.close());
  return { app, origin: await app.listen({ host: "127.0.0.1", port }) };
}

const discovered = async ({ baseUrl }: TestApp) => {
  const client = withBazaar(new HTTPFacilitatorClient({ url: `${baseUrl}/api/x402` }));
  return client.extensions.bazaar;
};

t.test("an announced resource is catalogued, probed and then listed", async (t) => {
  const port = await freePort();
  const origin = `http://127.0.0.1:${port}`;
  const local = reaching();
  const service = await testApp(t, {
    ...local,
    env: { FETCH_PRIVATE_ORIGINS: origin },
    listen: true,
  });
  const { app, chain, baseUrl } = service;
  const payer = testAccount(2);
  await chain.mint(payer.address, 1_000_000n);
  await externalShop(t, `${baseUrl}/api/x402`, port);
  const bazaar = await discovered(service);

  const buy = wrapFetchWithPayment(fetch, stockClient(chain, payer));
  const answer = await buy(`${origin}/weather?day=1`);
  t.equal(answer.status, 200);
  t.same(await answer.json(), { rain: false });
  const find = async () =>
    (await bazaar.listResources({ payTo: SELLER })).items.find(
      ({ resource }) => resource === `${origin}/weather`,
    );
  await until(async () => (await find()) !== undefined);
  t.match(await find(), {
    type: "http",
    x402Version: 2,
    accepts: [{ scheme: "exact", amount: "2000", payTo: SELLER, network: "eip155:5042002" }],
    description: "Tomorrow's weather",
    serviceName: "Weather Co",
    extensions: { bazaar: { info: { input: { type: "http", method: "GET" } } } },
  });

  // Bought again: the same listing. Probed: now everybody's marketplace shows it.
  await buy(`${origin}/weather?day=2`);
  await until(async () => {
    await app.pool.query("UPDATE listings SET next_probe_at = now() WHERE source = 'bazaar'");
    await app.reprobeListings();
    return (await app.inject("/api/listings?search=weather")).body.includes(`${origin}/weather`);
  });
  const { items, pagination } = await bazaar.listResources({});
  t.equal(items.filter(({ resource }) => resource === `${origin}/weather`).length, 1);
  t.same(pagination, { limit: 100, offset: 0, total: 2 });

  t.test("the stock client filters, pages and searches", async (t) => {
    const count = async (params: object) => (await bazaar.listResources(params)).items.length;
    t.equal(await count({ network: "eip155:1" }), 0);
    t.equal(await count({ network: "eip155:5042002" }), 2);
    t.equal(await count({ type: "mcp" }), 0);
    t.equal(await count({ scheme: "upto" }), 0);
    t.equal(await count({ extensions: "bazaar" }), 2);
    t.same((await bazaar.listResources({ limit: 1, offset: 1 })).pagination, {
      limit: 1,
      offset: 1,
      total: 2,
    });
    t.same((await bazaar.listResources({ offset: 5 })).pagination.total, 2);
    const found = await bazaar.search({ query: "tomorrow weather" });
    t.same(
      found.resources.map(({ resource }) => resource),
      [`${origin}/weather`],
    );
    const first = await bazaar.search({ query: "http", limit: 1 });
    t.equal(first.partialResults, true);
    const next = await bazaar.search({
      query: "http",
      limit: 1,
      cursor: first.pagination?.cursor ?? "",
    });
    t.not(next.resources[0]?.resource, first.resources[0]?.resource);
    t.equal(next.pagination?.cursor, null);
  });
});

t.test("what a payer says of a seller proves nothing", async (t) => {
  const service = await testApp(t, { ...reaching(), listen: true });
  const { app, chain, baseUrl, logs } = service;
  const payer = testAccount(3);
  await chain.mint(payer.address, 10_000_000n);
  const demo = await fetch(`${baseUrl}/api/arc-stats`);
  const template = decodePaymentRequiredHeader(demo.headers.get("payment-required") ?? "");
  const accepts = template.accepts.map((entry) => ({ ...entry, payTo: SELLER }));

  /** A payment that settles, carrying any announcement. */
  async function settleWith(change: {
    resource?: unknown;
    extensions?: unknown;
  }): Promise<{ success: boolean }> {
    const required: PaymentRequired = { ...template, accepts };
    const { payload } = await proofFor(chain, payer, required);
    const answer = await fetch(`${baseUrl}/api/x402/settle`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({
        x402Version: 2,
        paymentPayload: { ...payload, ...change } as PaymentPayload,
        paymentRequirements: payload.accepted,
      }),
    });
    return (await answer.json()) as { success: boolean };
  }
  const bazaar = declareDiscoveryExtension({ output: { example: 1 } })["bazaar"];
  const url = "https://bank.example/statements";
  const hostile: { resource?: unknown; extensions?: unknown }[] = [
    { resource: { url: "javascript:alert(1)" }, extensions: { bazaar } },
    { resource: { url: "not a url" }, extensions: { bazaar } },
    { resource: { url: "ftp://bank.example/" }, extensions: { bazaar } },
    { resource: { url: `https://bank.example/${"x".repeat(3000)}` }, extensions: { bazaar } },
    { resource: { url }, extensions: { bazaar: { ...bazaar, info: null } } },
    { resource: { url }, extensions: { bazaar: "yes" } },
    {
      resource: { url },
      extensions: { bazaar: { info: { input: { type: "http", method: {} } } } },
    },
    {
      resource: { url },
      extensions: { bazaar: { info: { input: { type: "mcp", toolName: "x" } } } },
    },
    { resource: { url }, extensions: { bazaar: { ...bazaar, routeTemplate: "/:anything" } } },
    { resource: { url }, extensions: { bazaar: { ...bazaar, junk: "x".repeat(40_000) } } },
    { resource: null, extensions: { bazaar } },
  ];
  for (const change of hostile) {
    const label = JSON.stringify(change).slice(0, 80);
    t.equal((await settleWith(change)).success, true, `settles all the same: ${label}`);
  }
  const odd = {
    resource: { url, description: `line\u0000\u202e\nbreak ${"y".repeat(900)}`, mimeType: 7 },
    extensions: { bazaar: { ...bazaar, note: "nul \u0000 and \ud800" } },
  };
  t.equal((await settleWith(odd)).success, true);
  const stored = async () =>
    (
      await app.pool.query<{ url: string; description: string; status: string; flag: string }>(
        "SELECT url, description, status, flag FROM listings WHERE source = 'bazaar'",
      )
    ).rows;
  await until(async () => (await stored()).length > 0);
  const rows = await stored();
  t.match(rows, [{ url, status: "failing", flag: "not_probed" }]);
  t.equal(rows.length, 1);
  t.match(rows[0]?.description, /^line break y+$/);
  t.ok((rows[0]?.description.length ?? 999) <= 500);
  t.notMatch(
    (await app.inject("/api/listings")).body,
    "bank.example",
    "not for agents until probed",
  );
  t.notOk(
    logs.some((line) => line.includes("cataloguing")),
    "refused quietly, not by accident",
  );

  // The address is nobody's here, so probes fail: after three the catalogue forgets it too.
  for (let round = 0; round < 3; round += 1) {
    await app.pool.query("UPDATE listings SET next_probe_at = now() WHERE source = 'bazaar'");
    await app.reprobeListings();
  }
  t.notMatch((await app.inject("/api/x402/discovery/resources")).body, "bank.example");
  await app.pool.query("UPDATE listings SET failures = 20 WHERE source = 'bazaar'");
  t.equal(await forgetDeadAnnouncements(app.prisma), 1);
});

t.test("a database that fails while cataloguing does not fail the settle", async (t) => {
  const service = await testApp(t, { listen: true });
  const { app, chain, baseUrl, logs } = service;
  const payer = testAccount(4);
  await chain.mint(payer.address, 1_000_000n);
  await app.pool.query("ALTER TABLE listings RENAME TO listings_away");
  const buy = wrapFetchWithPayment(fetch, stockClient(chain, payer));
  t.equal((await buy(`${baseUrl}/api/arc-stats`)).status, 200);
  await until(() => logs.some((line) => line.includes("cataloguing a settled resource failed")));
});
