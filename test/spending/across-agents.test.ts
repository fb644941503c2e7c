// Goal: an owner's sums, lists and exports agree with one another and with the ledger, whatever became of the payments,
// and never contain a row of another owner.
import { execFile } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import t, { type Test } from "tap";
import { getAddress } from "viem";
import { parseDecimal } from "../../server/core/money.ts";
import type { Spending } from "../../server/schemas/spending.ts";
import { callApi } from "../helpers/call.ts";
import { testApp } from "../helpers/app.ts";
import { createAgent, signIn, type SignedInOwner } from "../helpers/owner.ts";
import { pythonWith } from "../helpers/python.ts";
import { Random } from "../helpers/random.ts";
import { isFullTier } from "../helpers/tier.ts";
import {
  DAY_MS,
  FIRST_BLOCK,
  makeHistory,
  siteOf,
  spentOf,
  writeHistory,
  type HistoryRow,
} from "./history.helper.ts";

const ctx = await testApp(t, { timings: { searchMs: 300 } });
const { app, database } = ctx;
const seed = Number(process.env["SEED"] ?? 20261127);
const random = new Random(seed);
const owner = await signIn(ctx);
const stranger = await signIn(ctx);
const mine = [
  await createAgent(ctx, owner, {
    name: "=cmd()",
    allowlist: [{ address: `0x${"a1".repeat(20)}`, label: "Weather" }],
  }),
  await createAgent(ctx, owner, { name: "Twin" }),
  await createAgent(ctx, owner, { name: "Twin" }),
];
const theirs = await createAgent(ctx, stranger, { name: "Not yours" });

/** Twenty days up to the midnight before this one. */
const END = Math.floor(Date.now() / DAY_MS) * DAY_MS - DAY_MS;
const SPAN = { from: END - 20 * DAY_MS, to: END };
const history = makeHistory(random, mine, SPAN, 400);
await writeHistory(ctx, history);
const foreign = makeHistory(random, [theirs], SPAN, 40);
for (const row of foreign.rows) row.id = `${row.id}x`;
await writeHistory(ctx, { ...foreign, refunds: [] });

const dayOf = (ms: number): string => new Date(ms).toISOString().slice(0, 10);
/** A part of the history, so that rows before and after it exist. */
const FROM = dayOf(SPAN.from + 5 * DAY_MS);
const TO = dayOf(END - 3 * DAY_MS);
const isIn = ({ settled_at }: HistoryRow): boolean =>
  settled_at !== null && settled_at >= FROM && settled_at < TO;

const atomic = (text: string): bigint => {
  const parsed = parseDecimal(text.replace("-", ""));
  if (!parsed.ok) throw new Error(`not an amount: ${text}`);
  return text.startsWith("-") ? -parsed.atomic : parsed.atomic;
};

async function get<T>(url: string, caller: SignedInOwner = owner): Promise<T> {
  const answer = await callApi(app, caller, "GET", url);
  if (answer.statusCode !== 200) throw new Error(`${url}: ${answer.statusCode} ${answer.body}`);
  return answer.json<T>();
}
const text = async (url: string, caller: SignedInOwner = owner): Promise<string> => {
  const answer = await callApi(app, caller, "GET", url);
  if (answer.statusCode !== 200) throw new Error(`${url}: ${answer.statusCode} ${answer.body}`);
  return answer.body;
};

interface Sums {
  charged: bigint;
  refunded: bigint;
  payments: number;
}
const KEYS: Record<Spending["by"], (row: HistoryRow, moved: HistoryRow) => string | null> = {
  payee: ({ counterparty }) => getAddress(counterparty),
  site: siteOf,
  agent: ({ agent_id }) => agent_id,
  task: ({ task_id }) => task_id,
  day: (_row, { settled_at }) => String(settled_at).slice(0, 10),
};

function expected(by: Spending["by"], isWanted: (row: HistoryRow) => boolean = () => true) {
  const sums = new Map<string | null, Sums>();
  const add = (key: string | null, more: Sums): void => {
    const one = sums.get(key) ?? { charged: 0n, refunded: 0n, payments: 0 };
    sums.set(key, {
      charged: one.charged + more.charged,
      refunded: one.refunded + more.refunded,
      payments: one.payments + more.payments,
    });
  };
  for (const row of history.rows) {
    const spent = spentOf(row);
    if (spent === undefined || !isIn(row) || !isWanted(row)) continue;
    add(KEYS[by](row, row), { charged: spent, refunded: 0n, payments: spent > 0n ? 1 : 0 });
  }
  for (const { arrived, of } of history.refunds)
    if (isIn(arrived) && isWanted(of))
      add(KEYS[by](of, arrived), { charged: 0n, refunded: BigInt(arrived.amount), payments: 0 });
  return sums;
}

const read = ({ charged, refunded, payments }: Spending["total"]): Sums => ({
  charged: atomic(charged),
  refunded: atomic(refunded),
  payments,
});
const total = (sums: Iterable<Sums>): Sums =>
  [...sums].reduce(
    (sum, one) => ({
      charged: sum.charged + one.charged,
      refunded: sum.refunded + one.refunded,
      payments: sum.payments + one.payments,
    }),
    { charged: 0n, refunded: 0n, payments: 0 },
  );

async function allPages(query: string, t: Test): Promise<Map<string | null, Sums>> {
  const found = new Map<string | null, Sums>();
  let cursor: string | null = "";
  while (cursor !== null) {
    const page: Spending = await get(
      `/api/spending?${query}${cursor === "" ? "" : `&cursor=${cursor}`}`,
    );
    for (const item of page.items) {
      t.notOk(found.has(item.key), "no row twice");
      found.set(item.key, read(item));
    }
    const seen = total(found.values());
    const rest = page.others ? read(page.others) : total([]);
    t.same(total([seen, rest]), read(page.total), "the rows and the others are the total");
    cursor = page.nextCursor;
  }
  return found;
}

t.test(`sums, seed ${seed}`, async (t) => {
  for (const by of ["payee", "site", "agent", "task", "day"] as const) {
    const found = await allPages(
      `by=${by}&from=${FROM}&to=${TO}&limit=${by === "payee" ? 2 : 100}`,
      t,
    );
    t.same(found, expected(by), by);
    const amounts = [...found.values()].map(({ charged }) => charged);
    if (by === "day") t.same([...found.keys()], sorted(found.keys()).reverse());
    else
      t.same(
        amounts,
        [...amounts].sort((a, b) => (a < b ? 1 : -1)),
        "the largest first",
      );
  }
  const agentId = mine[1]?.id ?? "";
  t.same(
    await allPages(`by=day&from=${FROM}&to=${TO}&agentId=${agentId}&site=api.example.com`, t),
    expected("day", (row) => row.agent_id === agentId && siteOf(row) === "https://api.example.com"),
    "with filters",
  );
  const page: Spending = await get(`/api/spending?by=payee&from=${FROM}&to=${TO}`);
  const isOpen = ({ kind, status, created_at }: HistoryRow): boolean =>
    ["spend", "x402"].includes(kind) &&
    ["unknown", "submitted"].includes(status) &&
    created_at < TO;
  t.equal(page.open.payments, history.rows.filter(isOpen).length);
  t.equal(
    page.chargeNotKnown,
    history.rows.filter((row) => row.failure_code === "charge_not_known" && isIn(row)).length,
  );
  t.equal(
    page.items.find(({ key }) => key?.startsWith("0xa1") || key?.startsWith("0xA1"))?.name,
    "Weather",
  );
});

t.test(
  "a payment that a reorganisation took back is not spent, until it is paid again",
  async (t) => {
    const row = history.rows.find(
      (one) => one.kind === "spend" && one.status === "settled" && isIn(one),
    );
    if (!row) throw new Error("no such payment");
    const url = `/api/spending?by=agent&from=${FROM}&to=${TO}`;
    const before = read((await get<Spending>(url)).total);
    const correct = async (settlement: object): Promise<void> => {
      await database.pool.query(
        "SELECT purser_payment_corrected($1, $2, 'test', jsonb_populate_record(NULL::settlements, $3))",
        [row.agent_id, row.id, JSON.stringify(settlement)],
      );
    };
    await correct({ status: "submitted" });
    const between = await get<Spending>(url);
    t.equal(read(between.total).charged, before.charged - BigInt(row.amount));
    const { settled_at, tx_hash, block_number } = row;
    await correct({ status: "settled", settled_at, tx_hash, block_number, value: row.amount });
    t.same(read((await get<Spending>(url)).total), before);
  },
);

const sorted = (texts: Iterable<unknown>): string[] =>
  [...texts].map(String).sort((a, b) => (a < b ? -1 : 1));

/** Cells of a CSV file with quoted cells. */
function parseCsv(csv: string): Record<string, string>[] {
  const lines = [...csv.matchAll(/((?:"(?:[^"]|"")*"|[^",\r\n]*)(?:,|\r\n))/g)];
  const rows: string[][] = [[]];
  for (const [cell] of lines) {
    const value = cell.replace(/(,|\r\n)$/, "");
    rows.at(-1)?.push(value.startsWith('"') ? value.slice(1, -1).replaceAll('""', '"') : value);
    if (cell.endsWith("\r\n")) rows.push([]);
  }
  const [names = [], ...rest] = rows.slice(0, -1);
  return rest.map((cells) => Object.fromEntries(names.map((name, n) => [name, cells[n] ?? ""])));
}

const sumOf = (
  lines: Record<string, string>[],
  isWanted: (line: Record<string, string>) => boolean,
) => lines.filter(isWanted).reduce((sum, line) => sum + atomic(line["amount"] ?? ""), 0n);

t.test(
  "the CSV of a month has every movement once, and its totals are those of the sums",
  async (t) => {
    const csv = await text(`/api/exports/movements.csv?from=${FROM}&to=${TO}`);
    const lines = parseCsv(csv);
    const moved = history.rows.filter(
      (row) =>
        row.status === "settled" &&
        isIn(row) &&
        (row.ceiling === null || BigInt(row.charged ?? 0) > 0n),
    );
    t.same(sorted(lines.map(({ id }) => id)), sorted(moved.map(({ id }) => id)));
    const { total: sums }: Spending = await get(`/api/spending?by=payee&from=${FROM}&to=${TO}`);
    t.equal(
      sumOf(lines, ({ category }) => category === "payment"),
      -atomic(sums.charged),
    );
    t.equal(
      sumOf(lines, ({ category }) => category === "refund"),
      atomic(sums.refunded),
    );
    t.ok(sumOf(lines, ({ category }) => category === "refund") > 0n);
    const taskOf = new Map(moved.map(({ id, task_id }) => [id, task_id ?? ""]));
    for (const { id = "", task, category } of lines)
      if (category !== "refund") t.equal(task, taskOf.get(id));
    for (const category of ["withdrawal", "channel deposit", "channel return", "funding"])
      t.ok(
        lines.some((line) => line["category"] === category),
        category,
      );
    t.ok(
      lines.every(({ fee }) => fee === ""),
      "no fee is invented",
    );
    for (const line of lines)
      for (const [name, cell] of Object.entries(line))
        if (name !== "amount") t.notMatch(cell, /^[\s]*[=+\-@]/, "no cell starts a formula");
    t.match(csv, /^-?\d/m);
    const one = await text(
      `/api/exports/movements.csv?from=${FROM}&to=${TO}&agentId=${mine[1]?.id}`,
    );
    t.ok(parseCsv(one).every(({ agentId }) => agentId === mine[1]?.id));
  },
);

interface Entry {
  date: string;
  postings: { account: string; atomic: bigint }[];
}

/** What is needed of beancount's format: entries with their postings, opened accounts, asserted balances. */
function parseBooks(file: string) {
  const opened = new Set<string>();
  const balances = new Map<string, bigint>();
  const entries: Entry[] = [];
  for (const line of file.split("\n")) {
    const open = /^\S+ open (\S+) USDC$/.exec(line);
    const balance = /^\S+ balance (\S+) (-?[\d.]+) ~ 0 USDC$/.exec(line);
    const entry = /^(\d{4}-\d\d-\d\d) \*( "(?:[^"\\]|\\["\\])*"){1,2}$/.exec(line);
    const posting = /^ {2}([A-Z]\S+) {2}(-?[\d.]+) USDC$/.exec(line);
    if (open?.[1]) opened.add(open[1]);
    else if (balance?.[1]) balances.set(balance[1], atomic(balance[2] ?? ""));
    else if (entry?.[1]) entries.push({ date: entry[1], postings: [] });
    else if (posting?.[1])
      entries.at(-1)?.postings.push({ account: posting[1], atomic: atomic(posting[2] ?? "") });
    else if (!/^(;.*|option .*| {2}[a-z-]+: "(?:[^"\\]|\\["\\])*"|)$/.test(line))
      throw new Error(`a line: ${line}`);
  }
  return { opened, balances, entries };
}

const BOOKS = `/api/exports/ledger.beancount?from=${FROM}&to=${TO}`;

t.test(
  "double entries: every one balances, and the accounts end where the ledger does",
  async (t) => {
    const file = await text(BOOKS);
    t.notMatch(file, /^2026-01-01 open Assets:Evil/m, "a memo adds no line");
    t.match(file, /^ {2}task: "report-1"$/m);
    const { opened, balances, entries } = parseBooks(file);
    const ends = new Map<string, bigint>();
    for (const { postings, date } of entries) {
      t.equal(
        postings.reduce((sum, one) => sum + one.atomic, 0n),
        0n,
      );
      t.ok(date >= FROM && date < TO, date);
      for (const { account, atomic: moved } of postings) {
        if (!opened.has(account)) t.fail(`${account} is not opened`);
        ends.set(account, (ends.get(account) ?? 0n) + moved);
      }
    }
    for (const agent of mine) {
      const rows = history.rows.filter(
        (row) =>
          row.agent_id === agent.id && row.status === "settled" && String(row.settled_at) < TO,
      );
      const wallet = rows
        .filter(({ ceiling }) => ceiling === null)
        .reduce(
          (sum, { kind, amount }) => sum + (kind === "incoming" ? 1n : -1n) * BigInt(amount),
          0n,
        );
      const isOf = (account: string): boolean => account.endsWith(agent.id.slice(-8));
      const find = (start: string): bigint =>
        [...ends].find(([account]) => account.startsWith(start) && isOf(account))?.[1] ?? 0n;
      t.equal(find("Assets:Purser:"), wallet);
      const channel = rows.reduce((sum, row) => {
        if (row.kind === "deposit") return sum + BigInt(row.amount);
        if (row.ceiling !== null) return sum - BigInt(row.charged ?? 0);
        return row.kind === "incoming" && row.counterparty.startsWith("0x4020")
          ? sum - BigInt(row.amount)
          : sum;
      }, 0n);
      t.equal(find("Assets:Channels:"), channel);
    }
    const spent: Spending = await get(`/api/spending?by=payee&from=${FROM}&to=${TO}`);
    const expenses = [...ends].filter(([account]) => account.startsWith("Expenses:"));
    t.equal(
      expenses.reduce((sum, [, one]) => sum + one, 0n),
      atomic(spent.total.charged) - atomic(spent.total.refunded),
    );
    t.equal(balances.size, 0, "nothing is asserted that the chain did not prove");
  },
);

t.test("a balance is asserted only if the chain proves it", async (t) => {
  const { pool } = database;
  const agent = await createAgent(ctx, owner, { name: "Proven" });
  const url = `${BOOKS}&agentId=${agent.id}`;
  const made = makeHistory(random, [agent], SPAN, 30);
  const rows = made.rows.filter(({ status, ceiling }) => status === "settled" && ceiling === null);
  await writeHistory(ctx, { rows: rows.map((row) => ({ ...row, id: `${row.id}p` })), refunds: [] });
  const balance = rows.reduce(
    (sum, { kind, amount }) => sum + (kind === "incoming" ? 1n : -1n) * BigInt(amount),
    10n ** 9n,
  );
  const first = {
    ...rows[0],
    id: "pay_first",
    kind: "incoming",
    counterparty: `0x${"fe".repeat(20)}`,
  };
  const funding = {
    ...first,
    amount: String(10n ** 9n),
    created_at: FROM,
    settled_at: FROM,
    url: null,
  } as HistoryRow;
  await writeHistory(ctx, { rows: [{ ...funding, tx_hash: `0x${"5a".repeat(32)}` }], refunds: [] });
  const stored = (block: number, atomicBalance: bigint) =>
    pool.query(
      `INSERT INTO ledger_balances (chain_id, wallet, balance, block_number) VALUES ($1, $2, $3, $4)
       ON CONFLICT (chain_id, wallet) DO UPDATE SET balance = $3, block_number = $4`,
      [ctx.chain.chainId, agent.walletAddress.toLowerCase(), String(atomicBalance), block],
    );
  // The first read remembers where the chain is. The second compares the ledger with a new block.
  while (await app.reconciliation.read(ctx.chain.chainId));
  await ctx.chain.testClient.mine({ blocks: 3 });
  while (await app.reconciliation.read(ctx.chain.chainId));
  t.match(await text(url), /was not compared with the chain/, "no balance was read");
  await stored(2 * FIRST_BLOCK, balance);
  const { balances } = parseBooks(await text(url));
  const late = rows.filter(({ settled_at }) => String(settled_at) >= TO);
  t.ok(late.length > 0 && late.length < rows.length);
  const atEnd = late.reduce(
    (sum, { kind, amount }) => sum - (kind === "incoming" ? 1n : -1n) * BigInt(amount),
    balance,
  );
  t.same([...balances.values()], [atEnd], "what moved after the end is not in it");
  await stored(2 * FIRST_BLOCK, balance + 1n);
  t.match(await text(url), /does not have all movements/);
  await stored(FIRST_BLOCK, balance);
  t.match(await text(url), /was not compared with the chain/);
  await stored(2 * FIRST_BLOCK, balance);
  await pool.query(
    `INSERT INTO payments (agent_id, id, kind, status, chain_id, asset, counterparty, amount, nonce, created_at)
     SELECT agent_id, 'pay_open', 'spend', 'unknown', chain_id, asset, counterparty, 1, $2, $3 FROM payments WHERE agent_id = $1 LIMIT 1`,
    [agent.id, `0x${"11".repeat(32)}`, FROM],
  );
  t.match(await text(url), /is not decided yet/);
  await pool.query("DELETE FROM payments WHERE agent_id = $1", [agent.id]);
});

const python = isFullTier
  ? await pythonWith(["beancount==3.2.3"], (clean) => t.teardown(clean))
  : { missing: "it is part of the full tier" };
const missing = "missing" in python && `beancount: ${python.missing}`;

t.test("beancount accepts the file", { skip: missing }, async (t) => {
  const bin = "bin" in python ? python.bin : "";
  const folder = await mkdtemp(join(tmpdir(), "purser-books-"));
  t.teardown(() => rm(folder, { recursive: true, force: true }));
  const check = async (content: string): Promise<string> => {
    const path = join(folder, "ledger.beancount");
    await writeFile(path, content);
    const run = promisify(execFile)(join(bin, "bean-check"), [path]);
    return run.then(
      () => "",
      (error: unknown) => (error as { stderr: string }).stderr,
    );
  };
  const file = await text(BOOKS);
  t.equal(await check(file), "");
  const [wallet] = [...parseBooks(file).opened].filter((name) => name.startsWith("Assets:Purser"));
  t.match(await check(`${file}\n${TO} balance ${wallet} 0.000001 ~ 0 USDC\n`), /Balance failed/);
});

t.test("search over all agents", async (t) => {
  interface Page {
    items: { id: string; agentId: string; amount: string }[];
    nextCursor: string | null;
  }
  const ids = async (query: string, caller = owner): Promise<string[]> => {
    const all: string[] = [];
    let cursor: string | null = "";
    while (cursor !== null) {
      const page: Page = await get(
        `/api/payments?limit=50&${query}${cursor === "" ? "" : `&cursor=${cursor}`}`,
        caller,
      );
      all.push(...page.items.map(({ id }) => id));
      cursor = page.nextCursor;
    }
    return all;
  };
  const idsOf = (isWanted: (row: HistoryRow) => unknown): string[] =>
    history.rows
      .filter(isWanted)
      .sort((a, b) => {
        const later = a.created_at < b.created_at || (a.created_at === b.created_at && a.id < b.id);
        return later ? 1 : -1;
      })
      .map(({ id }) => id);
  t.same(
    await ids(""),
    idsOf(() => true),
    "all of them, newest first",
  );
  t.same(
    await ids("search=100%25"),
    idsOf(({ memo }) => memo?.includes("100%")),
    "no wildcard",
  );
  t.same(
    await ids("task=report-2"),
    idsOf(({ task_id }) => task_id === "report-2"),
  );
  t.same(
    await ids("search=THING+sure"),
    idsOf(({ memo }) => memo?.includes("sure_thing")),
  );
  t.same(
    await ids("search=a-b.example"),
    idsOf(({ url }) => url?.includes("a-b.example")),
  );
  const paid = history.rows.find(({ tx_hash, kind }) => tx_hash !== null && kind === "spend");
  t.same(await ids(`search=${paid?.tx_hash?.toUpperCase().replace("0X", "0x")}`), [paid?.id]);
  t.same(await ids(`search=${paid?.id}`), [paid?.id]);
  const payee = String(paid?.counterparty);
  t.same(
    await ids(`search=${getAddress(payee)}`),
    idsOf(({ counterparty }) => counterparty === payee),
  );
  const cost = ({ charged, amount }: HistoryRow): bigint => BigInt(charged ?? amount);
  t.same(
    await ids("minAmount=1&maxAmount=2"),
    idsOf((row) => cost(row) >= 10n ** 6n && cost(row) <= 2n * 10n ** 6n),
  );
  const exact = String(Number(paid?.amount) / 1_000_000);
  t.ok((await ids(`amount=${exact}`)).includes(String(paid?.id)));
  t.ok((await ids(`search=${exact}`)).includes(String(paid?.id)));
  t.same(
    await ids(
      `status=settled&kind=x402&site=127.0.0.1:8080&agentId=${mine[0]?.id}&from=${FROM}&to=${TO}`,
    ),
    idsOf(
      (row) =>
        row.status === "settled" &&
        row.kind === "x402" &&
        siteOf(row) === "http://127.0.0.1:8080" &&
        row.agent_id === mine[0]?.id &&
        row.created_at >= FROM &&
        row.created_at < TO,
    ),
  );
});

t.test("another owner's rows never appear", async (t) => {
  const isForeign = /pay_h\d+x|Not yours/;
  for (const url of [
    "/api/payments?limit=100",
    "/api/payments?limit=100&search=forecast",
    `/api/spending?by=agent&from=${FROM}&to=${TO}`,
    `/api/exports/movements.csv?from=${FROM}&to=${TO}`,
    BOOKS,
  ]) {
    t.notMatch(await text(url), isForeign, url);
    const seen = await text(url, stranger);
    t.match(seen, isForeign, url);
    t.notMatch(seen, /pay_h\d+["\s,]|=cmd|Twin/, url);
    const named = `${url}&agentId=${theirs.id}`;
    t.equal((await callApi(app, owner, "GET", named)).statusCode, 404, named);
  }
  const [one] = foreign.rows;
  const found = await get<{ items: unknown[] }>(`/api/payments?search=${one?.nonce}`);
  t.same(found.items, []);
  const saved = await callApi(app, owner, "POST", "/api/spending/filters", {
    name: "Mine",
    filter: {},
  });
  const { id } = saved.json<{ id: string }>();
  t.same((await get<{ items: unknown[] }>("/api/spending/filters", stranger)).items, []);
  const removed = await callApi(app, stranger, "DELETE", `/api/spending/filters/${id}`);
  t.equal(removed.statusCode, 404);
});

t.test("refusals: what is not understood, and what would take too long", async (t) => {
  for (const [url, code] of [
    ["/api/payments?payee=0x12", "invalid_address"],
    ["/api/payments?minAmount=1e3", "invalid_amount"],
    ["/api/payments?cursor=x", "validation_failed"],
    ["/api/spending?by=payee&cursor=x", "validation_failed"],
    ["/api/spending?by=memo", "validation_failed"],
    [`/api/exports/movements.csv?from=${TO}&to=${FROM}`, "validation_failed"],
    ["/api/exports/movements.csv?from=2026-02-31&to=2026-13-01", "validation_failed"],
  ])
    t.match((await callApi(app, owner, "GET", String(url))).json(), { code }, String(url));
  // A statement that waits is one that takes long.
  const client = await database.pool.connect();
  await client.query("BEGIN; LOCK TABLE payments IN ACCESS EXCLUSIVE MODE");
  try {
    for (const url of [
      "/api/payments?search=word",
      `/api/spending?by=payee&from=${FROM}&to=${TO}`,
      BOOKS,
    ]) {
      const answer = await callApi(app, owner, "GET", url);
      t.match(answer.json(), { code: "too_much_to_read", status: 422 }, url);
    }
  } finally {
    await client.query("ROLLBACK");
    client.release();
  }
});

t.test("saved filters: one of a name, and at most 50", async (t) => {
  const save = (name: string, filter: unknown) =>
    callApi(app, owner, "POST", "/api/spending/filters", { name, filter });
  const list = async () =>
    (await get<{ items: { id: string; name: string; filter: unknown }[] }>("/api/spending/filters"))
      .items;
  for (const { id } of await list())
    await callApi(app, owner, "DELETE", `/api/spending/filters/${id}`);
  const filter = { search: "forecast", period: "last-month", agentId: mine[0]?.id };
  t.equal((await save("  Weather ", { site: "x" })).statusCode, 200);
  t.match((await save("Weather", filter)).json(), { name: "Weather", filter });
  t.match(await list(), [{ name: "Weather", filter }]);
  t.equal((await save("Weather", { surprise: 1 })).statusCode, 422);
  t.equal((await save("   ", {})).statusCode, 422);
  const answers = await Promise.all(Array.from({ length: 52 }, (_, n) => save(`n${n}`, {})));
  t.equal(answers.filter(({ statusCode }) => statusCode === 200).length, 49);
  t.match(answers.find(({ statusCode }) => statusCode !== 200)?.json(), {
    code: "too_many_filters",
  });
  t.equal((await list()).length, 50);
});
