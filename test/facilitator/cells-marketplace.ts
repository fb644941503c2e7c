// What an owner of the first cell lists, found and bought in the second one.
import type { Test } from "tap";
import type { ListingWire } from "../../server/schemas/listings.ts";
import type { TestApp } from "../helpers/app.ts";
import { createAgent, signIn } from "../helpers/owner.ts";
import { seller, SELLER } from "../marketplace/seller.ts";
import { send } from "../merchants/world.ts";
import type { CellsWorld } from "./cells-world.ts";

/** Rounds as the job makes them, with all documents due. */
async function discover({ app }: TestApp): Promise<void> {
  await app.discovery.tidy();
  await app.pool.query("UPDATE discovery_documents SET next_read_at = now()");
  await app.discovery.read();
  while ((await app.discovery.probe()) > 0);
  await app.discovery.tidy();
}

export async function marketplaceCases(t: Test, { worlds, payerOf, whileDown }: CellsWorld) {
  const [one, two] = worlds;
  const shop = await seller(t);
  Object.assign(shop.terms, { network: `eip155:${one.chain.chainId}`, asset: one.chain.usdc });
  for (const { config } of worlds) config.fetchPrivateOrigins.push(shop.origin);
  const owner = await signIn(one, await payerOf("c1"));
  const list = async (url: string): Promise<string> => {
    const made = await send(one, owner, "POST", "/api/listings", { name: "Weather", url });
    t.equal(made.status, 201, JSON.stringify(made.body));
    return String(made.body["id"]);
  };
  const listedIn = async ({ app }: TestApp): Promise<ListingWire[]> => {
    const answer = await app.inject("/api/listings?limit=100");
    return answer.json<{ items: ListingWire[] }>().items.filter(({ host }) => host === shop.host);
  };
  const sourcesIn = async (world: TestApp) =>
    (await listedIn(world)).map(({ source, cell }) => ({ source, cell }));
  const id = await list(`${shop.origin}/weather`);
  const discoverAll = async () => {
    for (let round = 0; round < 2; round += 1) for (const world of worlds) await discover(world);
  };

  await t.test("a listing is found in the other cell once, marked with its cell", async (t) => {
    await discoverAll();
    t.same(await sourcesIn(two), [{ source: "cell", cell: "c1" }]);
    t.same(
      await sourcesIn(one),
      [{ source: "owner", cell: undefined }],
      "it does not come back to its own cell",
    );
  });

  await t.test("an agent of the other cell buys it under its pinned terms", async (t) => {
    const [found] = await listedIn(two);
    const buyer = await signIn(two, await payerOf("c2"));
    const agent = await createAgent(two, buyer, { fetch: "any" });
    await two.chain.mint(agent.walletAddress, 1_000_000n);
    const ask = async (dryRun: boolean) => {
      const answer = await two.app.inject({
        method: "POST",
        url: "/api/agents/x402-fetch",
        headers: { authorization: `Bearer ${agent.apiKey}` },
        payload: { listingId: found?.id, ...(dryRun && { dryRun }) },
      });
      return answer.json<object>();
    };
    t.match(await ask(true), { price: "0.005" });
    shop.terms.payTo = buyer.account.address;
    t.match(await ask(false), { code: "listing_mismatch" });
    shop.terms.payTo = SELLER;
  });

  await t.test("it stays while its cell is down, and goes with it", async (t) => {
    await whileDown(async () => {
      await discover(two);
      t.equal((await listedIn(two)).length, 1);
    }, 0);
    const removed = await send(one, owner, "DELETE", `/api/listings/${id}`);
    t.ok(removed.status < 300, JSON.stringify(removed));
    await discoverAll();
    t.same(await sourcesIn(two), []);
    t.same(await sourcesIn(one), [], "neither cell has it from the other");
  });
}
