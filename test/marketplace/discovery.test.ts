// Goal: what hosts and other catalogues name is listed only after our own probe, marked as found, within bounds, and never
// in the place of a listing that somebody signed for.
import type { IncomingMessage, ServerResponse } from "node:http";
import t, { type Test } from "tap";
import { CATALOGUE_LIMITS } from "../../server/plugins/discovery/documents.ts";
import type { ListingWire } from "../../server/schemas/listings.ts";
import { testApp } from "../helpers/app.ts";
import { testAccount } from "../helpers/chain.ts";
import { signIn } from "../helpers/owner.ts";
import { localServer } from "../x402-client/sellers.ts";
import { reaching, seller, SELLER, USDC, type Seller } from "./seller.ts";

const OTHER = testAccount(905).address;

interface Catalogue {
  url: string;
  origin: string;
  asked: string[];
  /** Tests change it. */
  items: unknown[];
  answer: ((request: IncomingMessage, response: ServerResponse) => void) | undefined;
}

/** Another facilitator's catalogue, with pages as the protocol has them. */
async function catalogue(t: Test): Promise<Catalogue> {
  const state: Catalogue = { url: "", origin: "", asked: [], items: [], answer: undefined };
  const { origin } = await localServer(t, (request, response) => {
    state.asked.push(request.url ?? "");
    if (state.answer) return state.answer(request, response);
    const query = new URL(request.url ?? "", "http://any").searchParams;
    const [limit, offset] = [Number(query.get("limit")), Number(query.get("offset"))];
    const items = state.items.slice(offset, offset + limit);
    const pagination = { limit, offset, total: state.items.length };
    return response.end(JSON.stringify({ x402Version: 2, items, pagination }));
  });
  return Object.assign(state, { origin, url: `${origin}/discovery/resources` });
}

const item = (resource: string, over: object = {}, more: object = {}) => ({
  resource,
  type: "http",
  x402Version: 2,
  accepts: [
    {
      scheme: "exact",
      network: "eip155:5042002",
      asset: USDC,
      payTo: SELLER,
      amount: "5000",
      ...over,
    },
  ],
  ...more,
});

const service = await testApp(t, reaching());
const { app, config } = service;
const { headers } = await signIn(service);
const { prisma, pool, discovery } = app;

/** As after a restart with other configuration, and with empty tables. */
async function begin(shops: Seller[], ...catalogues: Catalogue[]): Promise<void> {
  await pool.query("DELETE FROM listings WHERE source <> 'built-in'");
  await pool.query("DELETE FROM discovery_documents");
  config.fetchPrivateOrigins.push(...[...shops, ...catalogues].map(({ origin }) => origin));
  configure(catalogues);
}
const configure = (catalogues: Catalogue[]): void =>
  void config.foreignCatalogues.splice(0, Infinity, ...catalogues.map(({ url }) => url));

const makeDue = () => pool.query("UPDATE discovery_documents SET next_read_at = now()");

/** Rounds as the job makes them, until nothing is due. */
async function discover(): Promise<void> {
  await makeDue();
  await discovery.tidy();
  await discovery.read();
  while ((await discovery.probe()) > 0);
  await discovery.tidy();
}

/** Retries and the day of a refused URL pass. */
const passTime = () => pool.query("UPDATE discovered_urls SET next_try_at = now()");

async function listedAt(shop: Seller): Promise<Map<string, ListingWire["source"]>> {
  const answer = await app.inject("/api/listings?limit=100");
  const { items } = answer.json<{ items: ListingWire[] }>();
  return new Map(
    items
      .filter(({ host }) => host === shop.host)
      .map(({ url, source }) => [url.slice(shop.origin.length), source]),
  );
}

async function list(url: string): Promise<void> {
  const payload = JSON.stringify({ name: "Weather", url });
  const answer = await app.inject({ method: "POST", url: "/api/listings", headers, payload });
  if (answer.statusCode !== 201) throw new Error(answer.body);
}

t.test("a known host's document nominates what it names, and only there", async (t) => {
  const shop = await seller(t);
  const neighbour = await seller(t);
  await begin([shop, neighbour]);
  shop.wellKnown = JSON.stringify({
    version: 1,
    resources: [
      `${shop.origin}/rain`,
      "/snow?day=1",
      { url: `${shop.origin}/wind`, method: "GET" },
      `POST ${shop.origin}/order`,
      `${neighbour.origin}/storm`,
      `${shop.origin}/weather`,
      7,
    ],
  });
  await discover();
  t.equal((await listedAt(shop)).size, 0, "nobody listed this host yet");
  t.same(shop.requests, []);

  await list(`${shop.origin}/weather`);
  await discover();
  const expected = {
    "/weather": "owner",
    "/rain": "well-known",
    "/snow?day=1": "well-known",
    "/wind": "well-known",
  };
  t.same(Object.fromEntries(await listedAt(shop)), expected);
  t.equal((await listedAt(neighbour)).size, 0);
  t.same(neighbour.requests, [], "another host is not requested");
  t.same(
    shop.requests.filter(({ method }) => method !== "GET"),
    [],
  );

  const asked = shop.requests.length;
  await discovery.tidy();
  t.equal(await discovery.read(), 0, "not before it is due");
  t.equal(shop.requests.length, asked);

  shop.wellKnown = JSON.stringify({ version: 1, resources: ["/wind"] });
  await discover();
  t.same([...(await listedAt(shop)).keys()].sort(), ["/weather", "/wind"]);
  shop.wellKnown = undefined;
  shop.answer = "500";
  await discover();
  t.ok((await listedAt(shop)).has("/wind"), "a failed read changes nothing");
});

t.test("a document cannot fill our tables", async (t) => {
  const shop = await seller(t);
  await begin([shop]);
  await list(`${shop.origin}/weather`);
  const count = () => prisma.discoveredUrl.count();
  const resources = Array.from({ length: 1_000 }, (_, at) => `/r${at}`);
  shop.wellKnown = JSON.stringify({ version: 1, resources });
  await discovery.tidy();
  await discovery.read();
  t.equal(await count(), 50);
  t.equal(await discovery.probe(), 1, "one probe of a host in a round");
  shop.wellKnown = JSON.stringify({ version: 1, resources, padding: "x".repeat(70_000) });
  await makeDue();
  await discovery.read();
  const { reason } = await prisma.discoveryDocument.findFirstOrThrow();
  t.equal(reason, "It could not be read: too_large.");
  t.equal(await count(), 50);
});

t.test("a catalogue's entry is shown after our own probe, and marked", async (t) => {
  const shop = await seller(t);
  const other = await catalogue(t);
  await begin([shop], other);
  other.items = [
    item(`${shop.origin}/good`),
    item(`${shop.origin}/for-another-payee`, { payTo: OTHER }),
    item(`${shop.origin}/cheaper-than-it-is`, { amount: "4999" }),
    item(`${shop.origin}/on-another-chain`, { network: "eip155:8453" }),
    item(`${shop.origin}/order`, {}, { metadata: { method: "POST" } }),
    item("ftp://shop.example/file"),
    item("https://10.0.0.1/latest"),
    item("https://localhost/admin"),
    item(`${config.publicUrl}/api/arc-stats`),
    { resource: 7 },
    null,
  ];
  await discovery.tidy();
  await discovery.read();
  t.equal((await listedAt(shop)).size, 0, "not before a probe");
  t.same(
    (await prisma.discoveredUrl.findMany({ orderBy: { url: "asc" } })).map(({ url }) =>
      url.slice(shop.origin.length),
    ),
    ["/cheaper-than-it-is", "/for-another-payee", "/good"],
  );
  await discover();
  t.same([...(await listedAt(shop))], [["/good", { catalogue: other.url }]]);
  t.same(
    shop.requests.filter(({ method, hasBody }) => method !== "GET" || hasBody),
    [],
  );

  const short = await app.inject("/api/listings?detail=short&search=good");
  t.match(short.json(), { items: [{ source: { catalogue: other.url } }] });
  const bazaar = await app.inject("/api/x402/discovery/resources");
  const found = bazaar
    .json<{ items: { resource: string }[] }>()
    .items.find(({ resource }) => resource === `${shop.origin}/good`);
  t.match(found, { metadata: { source: { catalogue: other.url } } });
  const suggested = await app.inject("/api/listings/suggested");
  t.notOk(suggested.body.includes("/good"), "not suggested: nobody paid for it here");
  const metrics = await app.metrics.metrics();
  t.match(metrics, /purser_discovery_reads_total\{kind="catalogue",outcome="read"\} [1-9]/);
});

t.test("an entry never stands beside or in place of a signed listing", async (t) => {
  const shop = await seller(t);
  const other = await catalogue(t);
  await begin([shop], other);
  await list(`${shop.origin}/weather`);
  other.items = [
    "/weather",
    "/weather/",
    "/Weather",
    "//weather",
    "/%77eather",
    "/weather?x=1",
  ].map((path) => item(`${shop.origin}${path}`));
  other.items.push(item(`${shop.origin}/sun`), item(`${shop.origin}/sun?again=1`));
  await discover();
  t.same([...(await listedAt(shop)).keys()].sort(), ["/sun", "/weather"]);

  await list(`${shop.origin}/sun/`);
  t.same(Object.fromEntries(await listedAt(shop)), {
    "/weather": "owner",
    "/sun/": "owner",
  });
  await passTime();
  await discover();
  t.equal((await listedAt(shop)).size, 2, "it does not come back");
});

t.test("a catalogue that changes what it says is probed anew", async (t) => {
  const shop = await seller(t);
  const other = await catalogue(t);
  await begin([shop], other);
  other.items = [item(`${shop.origin}/good`), item(`${shop.origin}/gone`)];
  await discover();
  t.equal((await listedAt(shop)).size, 2);
  other.items = [item(`${shop.origin}/good`, { payTo: OTHER })];
  await makeDue();
  await discovery.read();
  t.equal((await listedAt(shop)).size, 0, "hidden until the new terms are proven");
  await discover();
  await passTime();
  await discover();
  t.equal((await listedAt(shop)).size, 0, "the endpoint asks for another payee");
  other.items = [item(`${shop.origin}/good`)];
  await discover();
  t.equal((await listedAt(shop)).size, 1);

  shop.answer = "500";
  for (let round = 0; round < 5; round += 1) {
    await pool.query("UPDATE listings SET next_probe_at = now() WHERE host = $1", [shop.host]);
    await app.reprobeListings();
  }
  await discovery.tidy();
  t.equal((await listedAt(shop)).size, 0, "dropped after five failed probes");
});

t.test("outside of local mode only https is imported", async (t) => {
  const other = await catalogue(t);
  other.items = [item("http://shop.example/plain"), item("https://shop.example/tls")];
  const env = { FETCH_PRIVATE_ORIGINS: other.origin, FOREIGN_CATALOGUES: other.url };
  const made = await testApp(t, { chain: service.chain, env });
  await made.app.discovery.tidy();
  await made.app.discovery.read();
  const found = await made.app.prisma.discoveredUrl.findMany({ where: { documentUrl: other.url } });
  t.same(
    found.map(({ url }) => url),
    ["https://shop.example/tls"],
  );
});

t.test("a document that cannot be read for days is withdrawn with its entries", async (t) => {
  const shop = await seller(t);
  const other = await catalogue(t);
  await begin([shop], other);
  other.items = [item(`${shop.origin}/good`)];
  await discover();
  other.answer = (_, response) => response.writeHead(500).end();
  const failedReads = async (times: number) => {
    for (let time = 0; time < times; time += 1) {
      await makeDue();
      await discovery.read();
    }
    return (await listedAt(shop)).size;
  };
  t.equal(await failedReads(11), 1, "eleven failures change nothing");
  other.answer = undefined;
  t.equal(await failedReads(1), 1);
  other.answer = (_, response) => response.writeHead(500).end();
  t.equal(await failedReads(11), 1, "a read in between begins anew");
  t.equal(await failedReads(1), 0, "the twelfth in a row withdraws them");
  other.answer = undefined;
  await discover();
  t.equal((await listedAt(shop)).size, 1, "it comes back with the catalogue");
});

t.test("huge, slow, redirecting and broken catalogues change nothing", async (t) => {
  const shop = await seller(t);
  const other = await catalogue(t);
  await begin([shop], other);
  other.items = [item(`${shop.origin}/good`)];
  await discover();
  const usual = { ...CATALOGUE_LIMITS };
  t.teardown(() => void Object.assign(CATALOGUE_LIMITS, usual));
  const reads = async (answer: NonNullable<Catalogue["answer"]>) => {
    other.answer = answer;
    await makeDue();
    await discovery.read();
    const { reason } = await prisma.discoveryDocument.findUniqueOrThrow({
      where: { url: other.url },
    });
    t.ok((await listedAt(shop)).has("/good"), String(reason));
    return reason;
  };
  const whole = JSON.stringify({
    items: Array.from({ length: 100_000 }, (_, at) => item(`https://h${at}.example/`)),
  });
  t.equal(await reads((_, response) => response.end(whole)), "It could not be read: too_large.");
  CATALOGUE_LIMITS.pageMs = 300;
  const slow = await reads((_, response) => void response.write("{"));
  t.equal(slow, "It could not be read: timeout.");
  Object.assign(CATALOGUE_LIMITS, usual);
  const elsewhere = await reads((_, response) =>
    response.writeHead(302, { location: "http://169.254.169.254/latest" }).end(),
  );
  t.equal(elsewhere, "It answered with status 302.");
  t.equal(await reads((_, response) => response.end("<html>")), "It is no page of a catalogue.");
  t.equal(
    await reads((_, response) => response.end("[".repeat(200_000))),
    "It is no page of a catalogue.",
  );
  const halfway = await reads((request, response) => {
    const isFirst = request.url?.includes("offset=0") ?? false;
    const items = Array.from({ length: 100 }, (_, at) => item(`https://h${at}.example/`));
    if (isFirst) response.end(JSON.stringify({ items, pagination: { total: 200 } }));
    else response.writeHead(500).end();
  });
  t.equal(halfway, "It answered with status 500.");
  t.equal(await prisma.discoveredUrl.count(), 1, "nothing of a half catalogue is kept");
});

t.test("a hundred thousand entries, and a flood of one host", async (t) => {
  const shop = await seller(t);
  const other = await catalogue(t);
  const second = await catalogue(t);
  const third = await catalogue(t);
  await begin([shop], other, second, third);
  other.items = Array.from({ length: 100_000 }, (_, at) => item(`https://h${at}.example/`));
  const flood = Array.from({ length: 5_000 }, (_, at) => item(`${shop.origin}/${at}`));
  second.items = flood;
  third.items = flood.slice(2_500);
  await discovery.tidy();
  await discovery.read();
  await discovery.read();
  t.equal(other.asked.length, 10, "a page of 100 for each of the first thousand");
  t.equal(second.asked.length, CATALOGUE_LIMITS.pages);
  const count = (documentUrl: string) => prisma.discoveredUrl.count({ where: { documentUrl } });
  t.equal(await count(other.url), 1_000);
  t.equal(await count(second.url), 10);
  t.equal(await count(third.url), 10);
  const fourth = await catalogue(t);
  fourth.items = flood.slice(-500);
  config.fetchPrivateOrigins.push(fourth.origin);
  configure([other, second, third, fourth]);
  await discovery.tidy();
  await discovery.read();
  t.ok(fourth.asked.length > 0);
  t.equal(await count(fourth.url), 0, "the host's places are used");
});

t.test("a catalogue that is no longer configured takes its entries along", async (t) => {
  const shop = await seller(t);
  const other = await catalogue(t);
  const kept = await catalogue(t);
  await begin([shop], other, kept);
  other.items = [item(`${shop.origin}/one`)];
  kept.items = [item(`${shop.origin}/two`)];
  await discover();
  t.equal((await listedAt(shop)).size, 2);
  configure([kept]);
  await discovery.tidy();
  t.same([...(await listedAt(shop)).keys()], ["/two"]);
  t.equal(await prisma.discoveredUrl.count(), 1);
});
