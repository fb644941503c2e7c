// Goal: a listing follows the behaviour of its endpoint: after several failures, once per round, and never while it
// is paused.
import t, { type Test } from "tap";
import { nextProbeInMs } from "../../server/plugins/marketplace/round.ts";
import { testApp, type TestApp } from "../helpers/app.ts";
import { signIn } from "../helpers/owner.ts";
import { until } from "../helpers/until.ts";
import { reaching, seller, SELLER, type Seller } from "./seller.ts";

async function listed(t: Test): Promise<{ shop: Seller; service: TestApp; id: string }> {
  const shop = await seller(t);
  const service = await testApp(t, reaching(shop));
  const owner = await signIn(service);
  const lister = {
    id: await ownerId(service, owner.account.address),
    address: owner.account.address,
  };
  const row = await service.app.listings.create(lister, {
    name: "Weather",
    url: `${shop.origin}/weather`,
  });
  return { shop, service, id: row.id };
}

const ownerId = async ({ app }: TestApp, address: string): Promise<string> => {
  const { rows } = await app.pool.query<{ id: string }>(
    "SELECT id FROM owners WHERE address = $1",
    [address.toLowerCase()],
  );
  return rows[0]?.id ?? "";
};

const makeDue = ({ app }: TestApp) =>
  app.pool.query("UPDATE listings SET next_probe_at = now() WHERE source <> 'built-in'");

t.test("failing after three failures, active again after one success", async (t) => {
  const { shop, service, id } = await listed(t);
  const { app } = service;
  const round = async () => {
    await makeDue(service);
    t.equal(await app.reprobeListings(), 1);
    return app.listings.get(id, undefined);
  };
  t.equal(await app.reprobeListings(), 0, "not due yet");
  shop.answer = "500";
  t.match(await round(), { status: "active", failures: 1 });
  t.match(await round(), { status: "active", failures: 2 });
  t.match(await round(), { status: "failing", failures: 3, flag: "upstream_invalid_402" });
  shop.answer = "hang-up";
  t.match(await round(), { status: "failing", flag: "upstream_error" });
  shop.answer = "402";
  t.match(await round(), { status: "active", failures: 0, flag: null, statusReason: null });
});

t.test("changed terms take effect at once; a lower price is accepted", async (t) => {
  const { shop, service, id } = await listed(t);
  const { app } = service;
  const round = async () => {
    await makeDue(service);
    await app.reprobeListings();
    return app.listings.get(id, undefined);
  };
  shop.terms.amount = "4000";
  t.match(await round(), { status: "active", priceAtomic: 4000n, priceCeilingAtomic: 5000n });
  shop.terms.amount = "5001";
  t.match(await round(), {
    status: "failing",
    flag: "listing_mismatch",
    statusReason: /0\.005001/,
  });
  shop.terms.amount = "5000";
  t.match(await round(), { status: "active", flag: null });
  shop.terms.payTo = "0x000000000000000000000000000000000000dEaD";
  t.match(await round(), {
    status: "failing",
    flag: "listing_mismatch",
    payTo: SELLER.toLowerCase(),
  });
});

t.test("two replicas probe a due listing once; a paused one is not probed", async (t) => {
  const { shop, service } = await listed(t);
  const replica = await testApp(t, {
    ...reaching(shop),
    database: service.database,
    chain: service.chain,
  });
  await makeDue(service);
  const requestsBefore = shop.requests.length;
  const counts = await Promise.all([
    service.app.reprobeListings(),
    replica.app.reprobeListings(),
    service.app.reprobeListings(),
  ]);
  t.equal(
    counts.reduce((sum, count) => sum + count, 0),
    1,
  );
  t.equal(shop.requests.length, requestsBefore + 1);
  await service.app.pool.query("UPDATE listings SET status = 'paused' WHERE source = 'owner'");
  await makeDue(service);
  t.equal(await service.app.reprobeListings(), 0);
  t.equal(shop.requests.length, requestsBefore + 1);
});

t.test("the job queue of a running service probes on schedule", async (t) => {
  const { shop, service, id } = await listed(t);
  await makeDue(service);
  shop.terms.amount = "9999";
  const { database, chain } = service;
  const running = await testApp(t, { ...reaching(shop), database, chain, listen: true });
  await until(async () => (await running.app.listings.get(id, undefined)).status === "failing");
  t.match(await running.app.listings.get(id, undefined), { flag: "listing_mismatch" });
});

t.test("the interval between probes grows with failures up to a maximum", async (t) => {
  const middle = () => 0.5;
  t.equal(nextProbeInMs(0, middle), 15 * 60_000);
  t.same(
    [1, 2, 3].map((failures) => nextProbeInMs(failures, middle) / 60_000),
    [1, 2, 4],
  );
  t.equal(nextProbeInMs(1000, middle), 6 * 60 * 60_000);
  t.ok(nextProbeInMs(1, () => 0) < nextProbeInMs(1, () => 1));
});
