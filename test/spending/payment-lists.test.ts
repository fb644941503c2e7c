// Goal: payment lists are complete, stable and private, filters are exact, and no CSV cell can start a formula.
import * as fc from "fast-check";
import t from "tap";
import { createPool } from "../../server/infra/db/pool.ts";
import { csvCell } from "../../server/plugins/payments/history.ts";
import { callApi } from "../helpers/call.ts";
import { testApp } from "../helpers/app.ts";
import { createAgent, signIn } from "../helpers/owner.ts";

const ctx = await testApp(t);
const { app, database, chain } = ctx;
const owner = await signIn(ctx);
const agent = await createAgent(ctx, owner, { name: "=cmd()", dailyLimit: "10", allowlist: [] });
const pool = createPool(database.url, { maxConnections: 2 });
t.teardown(() => pool.end());

const PAYEE = `0x${"12".repeat(20)}`;
const base = Date.UTC(2026, 4, 1);
/** 60 blocked payments, three in each minute with the same timestamp. */
for (let index = 0; index < 60; index += 1)
  await pool.query(
    `INSERT INTO payments (agent_id, id, kind, status, chain_id, asset, counterparty, amount, memo, denial_code, created_at)
     VALUES ($1, $2, $3, 'blocked', $4, $5, $6, $7, $8, 'recipient_not_allowed', $9)`,
    [
      agent.id,
      `pay_${String(index).padStart(3, "0")}`,
      index % 2 === 0 ? "spend" : "x402",
      String(chain.chainId),
      chain.usdc.toLowerCase(),
      PAYEE,
      String(index + 1),
      index === 7 ? '=HYPERLINK("http://evil","x"),\n"y"' : null,
      new Date(base + Math.floor(index / 3) * 60_000),
    ],
  );

const read = async (query: string, headers: Record<string, string> = owner.headers) =>
  app.inject({ url: `/api/agents/${agent.id}/payments${query}`, headers });
interface List {
  items: { id: string; kind: string; createdAt: string }[];
  nextCursor: string | null;
}

async function all(query: string): Promise<string[]> {
  const ids: string[] = [];
  let cursor: string | null = "";
  while (cursor !== null) {
    const page: List = (
      await read(`?${query}${cursor === "" ? "" : `&cursor=${encodeURIComponent(cursor)}`}`)
    ).json<List>();
    ids.push(...page.items.map((item) => item.id));
    cursor = page.nextCursor;
  }
  return ids;
}

t.test("pages contain every payment once, newest first, while rows are added", async (t) => {
  const first = (await read("?limit=10")).json<List>();
  await pool.query(
    `INSERT INTO payments (agent_id, id, kind, status, chain_id, asset, amount, denial_code)
     VALUES ($1, 'pay_new', 'spend', 'blocked', 1, $2, 0, 'url_blocked')`,
    [agent.id, chain.usdc.toLowerCase()],
  );
  const second = (
    await read(`?limit=10&cursor=${encodeURIComponent(String(first.nextCursor))}`)
  ).json<List>();
  t.equal(new Set([...first.items, ...second.items].map((item) => item.id)).size, 20);
  const ids = await all("limit=7");
  t.equal(ids.length, 61);
  t.equal(new Set(ids).size, 61);
  t.equal(ids[0], "pay_new");
  t.equal(ids.at(-1), "pay_000");
});

t.test("filters", async (t) => {
  t.equal((await all("kind=x402&limit=100")).length, 30);
  t.equal((await all("kind=x402,spend&status=blocked,settled&limit=100")).length, 61);
  t.same(await all("status=settled"), []);
  const from = encodeURIComponent(new Date(base + 5 * 60_000).toISOString());
  const to = encodeURIComponent(new Date(base + 6 * 60_000).toISOString());
  t.same(await all(`from=${from}&to=${to}`), ["pay_017", "pay_016", "pay_015"]);
  for (const query of [
    "?limit=0",
    "?limit=101",
    "?limit=1e1",
    "?cursor=nonsense",
    "?status=lost",
    "?kind=facilitated",
    "?from=yesterday",
    "?surprise=1",
  ]) {
    const answer = await read(query);
    t.equal(answer.statusCode, 422, query);
  }
});

t.test("another owner cannot see a payment, nor learn that it exists", async (t) => {
  const otherOwner = await signIn(ctx);
  t.equal((await read("", otherOwner.headers)).statusCode, 404);
  const one = `/api/agents/${agent.id}/payments/pay_001`;
  t.equal((await app.inject({ url: one, headers: owner.headers })).statusCode, 200);
  t.equal((await app.inject({ url: one, headers: otherOwner.headers })).statusCode, 404);
  const other = await createAgent(ctx, owner);
  const crossed = `/api/agents/${other.id}/payments/pay_001`;
  t.equal((await app.inject({ url: crossed, headers: owner.headers })).statusCode, 404);
  t.equal(
    (await app.inject({ url: "/api/agents/me/payments/pay_001", headers: other.headers }))
      .statusCode,
    404,
  );
});

t.test("CSV exports all matching payments in one file", async (t) => {
  const answer = await read("?kind=x402", { ...owner.headers, accept: "text/csv" });
  t.equal(answer.statusCode, 200);
  t.match(answer.headers["content-type"], /^text\/csv/);
  t.match(answer.headers["content-disposition"], /attachment/);
  const lines = answer.body.split("\r\n");
  t.equal(lines.length, 32, "a header, thirty payments and the final line break");
  t.match(answer.body, `"'=HYPERLINK(""http://evil"",""x""),\n""y"""`);
  t.notMatch(answer.body, /(^|,|\n)=/);
  t.match(answer.body, "'=cmd()");
  const refused = await read("?from=never", { ...owner.headers, accept: "text/csv" });
  t.equal(refused.statusCode, 422);
});

t.test("no cell can start a formula, and every cell can be parsed back", async (t) => {
  fc.assert(
    fc.property(fc.string({ unit: "binary", maxLength: 20 }), (text) => {
      const cell = csvCell(text);
      const plain = cell.startsWith('"') ? cell.slice(1, -1).replaceAll('""', '"') : cell;
      if (/^\s*[=+\-@]/.test(plain)) throw new Error(`a formula: ${JSON.stringify(cell)}`);
      if (plain !== text && plain !== `'${text}`) throw new Error(`lost: ${JSON.stringify(cell)}`);
      if (!cell.startsWith('"') && /[",\r\n]/.test(cell)) throw new Error(`unquoted: ${cell}`);
    }),
    { numRuns: 5_000 },
  );
  t.equal(csvCell("=1+1"), "'=1+1");
  t.equal(csvCell("  @x"), "'  @x");
});

t.test("overview: totals, and series without gaps", async (t) => {
  const answer = await app.inject({
    url: `/api/overview?agentId=${agent.id}`,
    headers: owner.headers,
  });
  t.equal(answer.statusCode, 200, answer.body);
  const body = answer.json<{
    totals: Record<string, unknown>;
    hourly: { at: string; blocked: number }[];
    daily: { at: string }[];
  }>();
  t.match(body.totals, { balance: "0", spent24h: "0", reserved: "0", agents: 1, activeAgents: 1 });
  t.equal(body.totals["blocked24h"], 1);
  t.equal(body.hourly.length, 24);
  t.equal(body.daily.length, 7);
  t.equal(body.hourly.at(-1)?.blocked, 1, "the newest hour includes the newest payment");
  const steps = body.hourly
    .slice(1)
    .map((b, i) => Date.parse(b.at) - Date.parse(body.hourly[i]?.at ?? ""));
  t.ok(steps.every((step) => step === 3_600_000));
  await callApi(app, owner, "POST", `/api/agents/${agent.id}/archive`, {});
  const later = await app.inject({ url: "/api/overview", headers: owner.headers });
  t.match(later.json(), { totals: { blocked24h: 1, agents: 1, activeAgents: 1 } });
  t.equal(
    later.json<typeof body>().hourly.at(-1)?.blocked,
    1,
    "the day of an archived agent still counts",
  );
  const foreign = await app.inject({
    url: `/api/overview?agentId=${agent.id}`,
    headers: (await signIn(ctx)).headers,
  });
  t.equal(foreign.statusCode, 404);
});
