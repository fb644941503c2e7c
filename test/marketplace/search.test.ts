// Goal: a buyer finds what it means, in one order everywhere; neither copies nor stuffed texts come before honest sellers.
import MiniSearch from "minisearch";
import type { Pool } from "pg";
import t from "tap";
import { createPrisma, type PrismaClient } from "../../server/infra/db/prisma.ts";
import { searchListings } from "../../server/plugins/listings/search.ts";
import { searchWords } from "../../server/plugins/listings/search-words.ts";
import { databaseWithPlans, recordScans } from "../conventions/plans.ts";
import { createPool } from "../../server/infra/db/pool.ts";
import { testApp } from "../helpers/app.ts";
import { createAgent, signIn } from "../helpers/owner.ts";
import { testDatabase } from "../helpers/postgres.ts";
import { isFullTier } from "../helpers/tier.ts";
import { toolResult } from "../helpers/tool-result.ts";
import { isWithin, listings, ndcg, queries, type JudgedListing } from "./judged/judged.ts";

type Query = (typeof queries)[number];
type Search = (query: Query) => JudgedListing[] | Promise<JudgedListing[]>;

const byId = new Map(listings.map((listing) => [listing.id, listing]));
const found = (ids: readonly string[]) =>
  ids.flatMap((id) => {
    const listing = byId.get(id);
    return listing ? [listing] : [];
  });

interface Row {
  id: string;
  name?: string;
  description?: string;
  category?: string;
  tags?: string[];
  parameters?: string[];
  host?: string;
  path?: string;
  payTo?: string;
  network?: string;
  priceAtomic?: number;
  status?: string;
  settlements?: number;
  payers?: number;
  ageDays?: number;
}

let rows = 0;
async function insert(pool: Pool, all: readonly Row[]): Promise<void> {
  const complete = all.map((row) => {
    rows += 1;
    const payTo = `0x${rows.toString(16).padStart(40, "0")}`;
    const host = `seller${rows}.example`;
    return {
      name: row.id,
      description: "",
      path: "/",
      host,
      payTo,
      network: "eip155:8453",
      ...row,
    };
  });
  await pool.query(
    `INSERT INTO listings (id, source, name, description, category, tags, url, method, host, pay_to, asset, network, price, price_ceiling,
                           status, flag, requirement, extensions, settlements, payers, created_at)
     SELECT l.id, 'bazaar', l.name, l.description, coalesce(l.category, 'other'), coalesce(l.tags, '{}'), 'https://' || l.host || l.path,
            'GET', l.host, l."payTo", '0x' || repeat('a', 40), l.network, coalesce(l."priceAtomic", 1000), coalesce(l."priceAtomic", 1000),
            coalesce(l.status, 'active'), CASE WHEN l.status = 'failing' THEN 'upstream_timeout' END, '{"scheme":"exact"}',
            jsonb_build_object('bazaar', jsonb_build_object('info', jsonb_build_object('input', jsonb_build_object('queryParams',
              (SELECT coalesce(jsonb_object_agg(p, ''), '{}') FROM unnest(l.parameters) p))))),
            coalesce(l.settlements, 0), coalesce(l.payers, 0), clock_timestamp() - coalesce(l."ageDays", 1) * interval '1 day'
       FROM jsonb_to_recordset($1) AS l (id TEXT, name TEXT, description TEXT, category TEXT, tags TEXT[], parameters TEXT[], host TEXT,
              path TEXT, "payTo" TEXT, network TEXT, "priceAtomic" NUMERIC, status TEXT, settlements INT, payers INT, "ageDays" FLOAT8)`,
    [JSON.stringify(complete)],
  );
  await pool.query("SELECT purser_listing_similar(array_agg(id)) FROM listings");
}

const clients = new WeakMap<Pool, PrismaClient>();
const clientOf = (pool: Pool): PrismaClient => {
  const client = clients.get(pool) ?? createPrisma(pool);
  clients.set(pool, client);
  return client;
};

const ids = async (pool: Pool, search: string, filter: object = {}) => {
  const page = await searchListings(clientOf(pool), { search, ...filter }, { limit: 100 });
  return page.items.map(({ id }) => id);
};

/** nDCG@5 of a search: of the queries it may be tuned on, and of the others. */
async function quality(search: Search): Promise<{ tuned: number; heldOut: number }> {
  const sums = { tuned: [0, 0], heldOut: [0, 0] };
  for (const query of queries) {
    const figure = ndcg(query, await search(query));
    if (figure === undefined) continue;
    const sum = sums[query.heldOut ? "heldOut" : "tuned"] as [number, number];
    sum[0] += figure;
    sum[1] += 1;
  }
  const mean = ([sum = 0, count = 1]: number[]) => Math.round((1000 * sum) / count) / 1000;
  return { tuned: mean(sums.tuned), heldOut: mean(sums.heldOut) };
}

const contains: Search = (query) => {
  const words = query.text.toLowerCase().split(/\s+/);
  return listings
    .filter((listing) => {
      const { name, description, category, host, path } = listing;
      const texts = [name, description, category, `https://${host}${path}`];
      const has = (word: string) => texts.some((text) => text.toLowerCase().includes(word));
      return isWithin(query, listing) && words.every(has);
    })
    .sort((one, other) => one.ageDays - other.ageDays)
    .slice(0, 5);
};

function miniSearch(): Search {
  const index = new MiniSearch<JudgedListing>({
    fields: ["name", "tags", "parameters", "category", "description", "host", "path"],
    extractField: (listing, field) => {
      const value = listing[field as keyof JudgedListing];
      return Array.isArray(value) ? value.join(" ") : String(value);
    },
    searchOptions: { boost: { name: 3, tags: 2, category: 2 }, prefix: true, fuzzy: 0.2 },
  });
  index.addAll(listings);
  return (query) => {
    const all = found(index.search(query.text).map(({ id }) => String(id)));
    return all.filter((listing) => isWithin(query, listing)).slice(0, 5);
  };
}

/** What was reached with the list of related words. */
const REACHED = { tuned: 0.819, heldOut: 0.795 };

t.test("the judged set", async (t) => {
  const { pool } = await testDatabase(t);
  await insert(pool, listings);
  const ranked =
    (hasRelated: boolean): Search =>
    async (query) => {
      const words = searchWords(query.text);
      const { rows } = await pool.query<{ id: string }>(
        `SELECT id FROM purser_search($1, $2, now(), NULL, NULL, NULL, $3, NULL, $4, NULL, NULL) ORDER BY place LIMIT 5`,
        [
          words?.words,
          hasRelated ? words?.related : words?.related.map(() => ""),
          query.network ?? null,
          query.maxPriceAtomic ?? null,
        ],
      );
      return found(rows.map(({ id }) => id));
    };
  const figures = {
    contains: await quality(contains),
    miniSearch: await quality(miniSearch()),
    ours: await quality(ranked(true)),
    // The list's author knew the queries; people with other words get something between the two.
    ...(isFullTier ? { withoutRelatedWords: await quality(ranked(false)) } : {}),
  };
  t.comment(JSON.stringify(figures));
  for (const part of ["tuned", "heldOut"] as const) {
    t.ok(figures.ours[part] >= REACHED[part] - 0.01, part, figures);
    const without = figures.withoutRelatedWords?.[part] ?? 1;
    t.ok(without > figures.miniSearch[part] + 0.05, part, figures);
    t.ok(figures.miniSearch[part] > figures.contains[part], part, figures);
  }
});

t.test("our own API, MCP and the protocol's Bazaar give one order, page by page", async (t) => {
  const service = await testApp(t);
  const { app, database } = service;
  const agent = await createAgent(service, await signIn(service));
  await app.listings.refreshBuiltIns();
  await insert(database.pool, listings);
  // No job changes them in the meantime.
  await database.pool.query(
    "UPDATE listings SET next_probe_at = now() + interval '1 day', figures_at = now() + interval '1 day'",
  );
  interface Answer {
    items?: { id?: string; metadata?: { listingId: string } }[];
    resources?: { metadata: { listingId: string } }[];
    nextCursor?: string | null;
    pagination?: { cursor: string | null };
  }
  const get = async (path: string, args: object) =>
    (
      await app.inject({
        url: path,
        query: JSON.parse(JSON.stringify(args)) as { [key: string]: string },
      })
    ).json<Answer>();
  const ways = {
    api: (search: string, page: object) => get("/api/listings", { search, ...page }),
    mcp: async (search: string, page: object) => {
      const params = { name: "search_services", arguments: { search, ...page } };
      const answer = await app.inject({
        method: "POST",
        url: "/mcp",
        headers: { ...agent.headers, accept: "application/json, text/event-stream" },
        payload: { jsonrpc: "2.0", id: 1, method: "tools/call", params },
      });
      const text = answer.body.replace(/^[^]*?data: /, "");
      return toolResult(
        (JSON.parse(text) as { result: { content: unknown } }).result,
      ) as unknown as Answer;
    },
    bazaar: (query: string, page: object) => get("/api/x402/discovery/search", { query, ...page }),
  };
  const idsOn = ({ items, resources }: Answer) =>
    (items ?? resources ?? []).map((item) => ("id" in item ? item.id : item.metadata?.listingId));
  const pagesOf = async (way: (typeof ways)["api"], search: string, limit: number) => {
    const found: unknown[][] = [];
    let cursor: string | null | undefined;
    do {
      const page = await way(search, { limit, ...(cursor && { cursor }) });
      found.push(idsOn(page));
      cursor = page.nextCursor ?? page.pagination?.cursor;
    } while (cursor && found.length < 4);
    return found;
  };
  const { rows: active } = await database.pool.query<{ id: string }>(
    "SELECT id FROM listings WHERE status = 'active'",
  );
  const isActive = new Set<unknown>(active.map(({ id }) => id));
  let failing = 0;
  const one = isFullTier ? 20 : 60;
  for (const { text } of queries.filter((_, index) => index % one === 0)) {
    const api = await pagesOf(ways.api, text, 9);
    t.ok(api.flat().length > 0, text);
    t.same(await pagesOf(ways.mcp, text, 9), api, `MCP: ${text}`);
    // The Bazaar has no listings that fail at the moment.
    const bazaar = (await pagesOf(ways.bazaar, text, 9)).flat();
    const expected = api.flat().filter((id) => isActive.has(id));
    failing += api.flat().length - expected.length;
    t.same(bazaar.slice(0, expected.length), expected, `Bazaar: ${text}`);
  }
  t.ok(failing > 0, "some of them fail");
  const all = await get("/api/listings", { status: "active", limit: 100 });
  const bazaar = await get("/api/x402/discovery/resources", { limit: 100 });
  t.same(idsOn(bazaar), idsOn(all), "without a search: the newest first");
});

t.test("copies, stuffed texts and unusual searches", async (t) => {
  const { pool } = await testDatabase(t);
  const description = "Hourly forecast of rain and wind for any place";
  await insert(pool, [
    { id: "copy", name: "Rain Forecast Pro", description, priceAtomic: 1, payers: 1 },
    { id: "original", name: "Rain Forecast", description, payers: 30, settlements: 90 },
    {
      id: "own-host",
      name: "Rain Forecast",
      description,
      host: "b.example",
      payTo: `0x${"c".repeat(40)}`,
    },
    { id: "other", name: "Rain Forecast", description: "Where it rains", payers: 2 },
    {
      id: "stuffed",
      name: "Rain rain rain forecast forecast rain weather rain forecast",
      description: `${"rain forecast ".repeat(20)} ocr translate stocks news hotels flights maps search images video audio email sms phone`,
      tags: ["rain", "forecast", "stocks", "news", "ocr"],
    },
    { id: "ocr", name: "OCR", description: "The text of scanned pages" },
  ]);

  await t.test("a copy comes after its original, and is marked", async (t) => {
    const order = await ids(pool, "rain forecast");
    t.ok(order.indexOf("copy") > order.indexOf("original"), "the cheaper copy is below", { order });
    const { rows } = await pool.query("SELECT id, similar_to FROM listings WHERE similar_to > ''");
    t.same(rows, [
      { id: "copy", similar_to: "original" },
      { id: "own-host", similar_to: "original" },
    ]);
    // Each on its own makes it a seller like others.
    await pool.query("UPDATE listings SET payers = 31 WHERE id = 'copy'");
    await pool.query(
      "UPDATE listings SET pay_to = (SELECT pay_to FROM listings WHERE id = 'original') WHERE id = 'own-host'",
    );
    await pool.query("SELECT purser_listing_similar(array_agg(id)) FROM listings");
    const marked = await pool.query(
      "SELECT id, similar_to FROM listings WHERE similar_to > '' ORDER BY id",
    );
    t.same(marked.rows, [
      { id: "original", similar_to: "copy" },
      { id: "own-host", similar_to: "copy" },
    ]);
  });

  await t.test("repeated and added words do not help", async (t) => {
    const order = await ids(pool, "rain forecast");
    for (const honest of ["copy", "other"])
      t.ok(order.indexOf("stuffed") > order.indexOf(honest), honest, { order });
    t.equal((await ids(pool, "ocr"))[0], "ocr");
  });

  await t.test("typing errors, starts of words, quotes and operators are only words", async (t) => {
    t.equal((await ids(pool, "forcast"))[0], (await ids(pool, "forecast"))[0]);
    t.ok((await ids(pool, "forec")).includes("other"));
    for (const odd of ["rain & !forecast | (", "'rain':*", "rain <-> forecast", "RÀIN", "\\rain"])
      t.ok((await ids(pool, odd)).includes("original"), odd);
    for (const empty of ["the", "!!!", "zzzzqqq", "ab".repeat(100), "🙂"])
      t.same(await ids(pool, empty), [], empty);
    t.ok((await ids(pool, "rain ".repeat(40))).length > 0, "only the first words count");
  });
});

t.test("pages and filters", async (t) => {
  const { pool } = await testDatabase(t);
  const all = Array.from({ length: 9 }, (_, index) => ({
    id: `page-${index}`,
    name: "Tide tables",
    description: `Number ${index}`,
    priceAtomic: 1_000 * (index + 1),
    network: index < 5 ? "eip155:8453" : "eip155:137",
    category: index % 2 === 0 ? "sea" : "other",
    status: index === 8 ? "failing" : "active",
  }));
  await insert(pool, all);
  const db = clientOf(pool);
  const first = await searchListings(db, { search: "tide" }, { limit: 3 });
  t.same(
    first.items.map(({ id }) => id),
    ["page-0", "page-1", "page-2"],
    "the cheapest first",
  );
  // Meanwhile one is added on top, one of the first page leaves, and one of the second.
  await insert(pool, [{ id: "new", name: "Tide", payers: 100, settlements: 900, ageDays: 0 }]);
  await pool.query("DELETE FROM listings WHERE id IN ('page-0', 'page-3')");
  const cursor = first.nextCursor ?? undefined;
  const second = await searchListings(db, { search: "tide" }, { limit: 3, cursor });
  t.same(
    second.items.map(({ id }) => id),
    ["page-4", "page-5", "page-6"],
  );
  const last = await searchListings(
    db,
    { search: "tide" },
    { limit: 3, cursor: second.nextCursor ?? undefined },
  );
  t.same(
    last.items.map(({ id }) => id),
    ["page-7", "page-8"],
    "one that fails is last",
  );
  t.equal(last.nextCursor, null);
  t.equal((await ids(pool, "tide"))[0], "new");
  const plain = Buffer.from(JSON.stringify(["1", "page-1"])).toString("base64url");
  await t.rejects(searchListings(db, { search: "tide" }, { limit: 3, cursor: plain }), {
    code: "validation_failed",
  });

  const filters: [object, string[]][] = [
    [{ network: "eip155:137" }, ["page-5", "page-6", "page-7", "page-8"]],
    [{ maxPriceAtomic: 3_000n }, ["new", "page-1", "page-2"]],
    [{ category: "sea" }, ["page-2", "page-4", "page-6", "page-8"]],
    [{ status: "failing" }, ["page-8"]],
    [{ scheme: "upto" }, []],
    [{ scheme: "exact", network: "eip155:8453", category: "sea" }, ["page-2", "page-4"]],
    [{ ownerId: "own_somebody" }, []],
  ];
  for (const [filter, expected] of filters)
    t.same(
      await ids(pool, "tide", filter),
      expected,
      JSON.stringify(filter, (_, value: unknown) =>
        typeof value === "bigint" ? String(value) : value,
      ),
    );
});

t.test("sales count for the payee and host that were paid", async (t) => {
  const { pool } = await testDatabase(t);
  const payTo = `0x${"b".repeat(40)}`;
  await insert(pool, [
    { id: "sold", host: "shop.example", payTo, name: "Sold" },
    { id: "same-payee", host: "other.example", payTo, name: "Same payee" },
  ]);
  await pool.query("ALTER TABLE settlements DISABLE TRIGGER USER");
  await pool.query(
    `INSERT INTO settlements (from_address, chain_id, asset, nonce, id, kind, to_address, value, valid_after, valid_before, signature,
                              relay, status, tx_hash, block_number, proof, settled_at, class, resource_url)
     SELECT '0x' || lpad(to_hex(n % 3), 40, '0'), 8453, '0x' || repeat('a', 40), '0x' || encode(sha256(n::text::bytea), 'hex'), 'pay_' || n,
            'facilitated', $1, 1, 0, 4102444800, '\\x00', true, 'settled', '0x' || repeat('0', 64), 1, '{}', now(), 2, 'https://shop.example/a'
       FROM generate_series(0, 40) n`,
    [payTo],
  );
  const count = await pool.query("SELECT purser_listing_figures(100) AS counted");
  t.ok(count.rows[0].counted >= 2);
  const { rows } = await pool.query(
    "SELECT id, settlements, payers FROM listings WHERE pay_to = $1 ORDER BY id",
    [payTo],
  );
  t.same(
    rows,
    [
      { id: "same-payee", settlements: 0, payers: 0 },
      { id: "sold", settlements: 30, payers: 3 },
    ],
    "at most ten of one payer",
  );
  t.same((await pool.query("SELECT purser_listing_figures(100) AS counted")).rows, [
    { counted: 0 },
  ]);
});

t.test("with many listings a search ranks only a few, found by an index", async (t) => {
  const database = await databaseWithPlans(t);
  // A connection from before would not send its plans.
  const pool = createPool(database.url, { maxConnections: 1 });
  t.teardown(() => pool.end());
  const count = isFullTier ? 100_000 : 20_000;
  await pool.query("ALTER TABLE listings DISABLE TRIGGER USER");
  // In parts, each within the time of a statement.
  for (let first = 1; first <= count; first += 10_000)
    await pool.query(
      `INSERT INTO listings (id, source, name, url, method, host, pay_to, asset, network, price, price_ceiling, status, requirement,
                             document, near_words, payers)
       SELECT 'many-' || n, 'bazaar', 'One of many', 'https://h/' || n, 'GET', 'h', '0x' || lpad(to_hex(n), 40, '0'), '0x' || repeat('a', 40),
              'eip155:8453', 1, 1, 'active', '{}',
              to_tsvector('simple', concat_ws(' ', 'w' || n % 997, CASE WHEN n % 10 = 0 THEN 'frequent' END, CASE WHEN n % 1000 = 0 THEN 'scarce' END)),
              ARRAY['w' || n], n
         FROM generate_series($1::int, $1::int + 9999) n`,
      [first],
    );
  await pool.query("VACUUM (ANALYZE) listings");
  const scans = recordScans(pool);
  const found = await ids(pool, "scarce frequent");
  t.equal(found[0], `many-${count}`, "the one with the most payers");
  const read = scans.filter(({ table }) => table === "listings");
  t.ok(
    read.some(({ index, node }) => node.includes("Bitmap") || index === "listings_document_idx"),
  );
  for (const { node, rows, statement } of read) {
    t.not(node, "Seq Scan", statement);
    const isRanking = statement.includes("ts_filter");
    t.ok(rows <= (isRanking ? 400 : count / 10), `${rows} rows`, { statement });
  }
});
