// Goal: a change is stored once and costs only what changed; changes have a storage quota per day, from which
// tightening ones are exempt.
import { createHash } from "node:crypto";
import t from "tap";
import { KEPT_BYTES_PER_DAY } from "../../server/plugins/orders/store.ts";
import { createPrisma } from "../../server/infra/db/prisma.ts";
import { createPool } from "../../server/infra/db/pool.ts";
import { noteAudit } from "../../server/plugins/audit/store.ts";
import { verifyDatabase } from "../../server/plugins/audit/verify-cli.ts";
import { readLine, verifyChain, type ChainRow } from "../../server/plugins/audit/verify.ts";
import { testApp, type TestApp } from "../helpers/app.ts";
import { createAgent, signIn, signOrder, type SignedInOwner } from "../helpers/owner.ts";

const service = await testApp(t);
const { database, chain } = service;
const sql = database.pool;

/** One below the maximum, so that one more fits. */
const MANY = 999;
/** The rows and audit entries of an order, without its document. */
const OVERHEAD_BYTES = 8_000;

const hashOf = (text: string): string => createHash("sha256").update(text).digest("hex");
/** Random enough not to compress well. */
const payee = (list: string, index: number) => ({
  address: `0x${hashOf(`${list} ${index}`).slice(0, 40)}`,
  label: `Supplier ${hashOf(`label ${list} ${index}`).slice(0, 12)}`,
});
const payees = (list: string, count = MANY) =>
  Array.from({ length: count }, (_one, index) => payee(list, index));

type Method = "POST" | "PUT" | "PATCH" | "DELETE";

function send(
  by: SignedInOwner,
  method: Method,
  url: string,
  body: object = {},
  { app, config }: TestApp = service,
) {
  return app.inject({
    method,
    url,
    headers: { ...by.headers, origin: config.publicUrl },
    ...(method !== "DELETE" && { payload: JSON.stringify(body) }),
  });
}

/** Signed with the owner's wallet. */
async function change(by: SignedInOwner, method: Method, url: string, body: object) {
  const prepared = await send(by, method, url, body);
  const authorization = await signOrder(by.account, prepared.json());
  if (!authorization) throw new Error(`nothing to sign: ${prepared.body.slice(0, 300)}`);
  const answer = await send(by, method, url, { ...body, authorization });
  if (answer.statusCode >= 300) throw new Error(answer.body.slice(0, 300));
  return answer;
}

/** The tables that keep the changes of owners. */
const KEPT = [
  "owner_orders",
  "audit_log",
  "allowlist_entries",
  "agents",
  "agent_wallets",
  "api_keys",
];

interface Stored {
  /** Rows in the tables that keep changes. */
  rows: number;
  /** Bytes in all tables. */
  bytes: number;
  /** The part of the bytes in documents of orders. */
  documents: number;
}

async function stored(isOnlyKept = false): Promise<Stored> {
  const { rows: tables } = await sql.query<{ name: string }>(
    "SELECT relname AS name FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace",
  );
  let [rows, bytes] = [0, 0];
  for (const { name } of tables) {
    const isKept = KEPT.includes(name);
    if (isOnlyKept && !isKept) continue;
    const { rows: found } = await sql.query<{ rows: number; bytes: number }>(
      `SELECT count(*)::int AS rows, coalesce(sum(pg_column_size(x.*)), 0)::int AS bytes FROM "${name}" x`,
    );
    rows += isKept ? (found[0]?.rows ?? 0) : 0;
    bytes += found[0]?.bytes ?? 0;
  }
  const { rows: found } = await sql.query<{ documents: number }>(
    "SELECT coalesce(sum(pg_column_size(document)), 0)::int AS documents FROM owner_orders",
  );
  return { rows, bytes, documents: found[0]?.documents ?? 0 };
}

/** The allowlist entries with the transaction that wrote them: a rewritten one differs. */
async function writtenEntries(): Promise<Set<string>> {
  const { rows } = await sql.query<{ entry: string }>(
    "SELECT concat_ws(' ', agent_id, address, site, xmin) AS entry FROM allowlist_entries",
  );
  return new Set(rows.map(({ entry }) => entry));
}

async function costOf(work: () => Promise<unknown>): Promise<Stored & { written: number }> {
  const [before, entries] = [await stored(), await writtenEntries()];
  await work();
  const [after, later] = [await stored(), await writtenEntries()];
  return {
    rows: after.rows - before.rows,
    bytes: after.bytes - before.bytes,
    documents: after.documents - before.documents,
    written: [...later].filter((entry) => !entries.has(entry)).length,
  };
}

interface Entry {
  action: string;
  before: { payees?: { address: string }[] } | null;
  after: {
    payees?: { address: string }[];
    added?: number;
    removed?: number;
    order?: string;
  } | null;
}

async function entriesOf(by: SignedInOwner, agentId: string): Promise<Entry[]> {
  const url = `/api/agents/${agentId}/audit?limit=100`;
  const answer = await service.app.inject({ url, headers: by.headers });
  return answer.json<{ items: Entry[] }>().items;
}

const ownerIdOf = async (by: SignedInOwner): Promise<string> => {
  const found = await sql.query<{ id: string }>("SELECT id FROM owners WHERE address = $1", [
    by.account.address.toLowerCase(),
  ]);
  return found.rows[0]?.id ?? "";
};

/** Leaves so many bytes of the owner's daily quota. */
const leaveRoom = async (by: SignedInOwner, bytes: number): Promise<void> => {
  await sql.query(
    `INSERT INTO owner_quotas (owner_id, full_at) VALUES ($1, clock_timestamp() + interval '24 hours' * $2)
     ON CONFLICT (owner_id) DO UPDATE SET full_at = EXCLUDED.full_at`,
    [await ownerIdOf(by), 1 - bytes / KEPT_BYTES_PER_DAY],
  );
};

t.test("a change of a thousand payees stores one document and the difference", async (t) => {
  const owner = await signIn(service);
  let id = "";
  const made = await costOf(async () => {
    ({ id } = await createAgent(service, owner, { allowlist: payees("a") }));
  });
  const listed = MANY * 300;
  t.ok(made.bytes - made.documents < OVERHEAD_BYTES + listed, `created: ${JSON.stringify(made)}`);
  const { rows } = await sql.query<{ bytes: number }>(
    "SELECT coalesce(sum(pg_column_size(l.*)), 0)::int AS bytes FROM audit_log l WHERE agent_id = $1",
    [id],
  );
  t.ok((rows[0]?.bytes ?? Infinity) < OVERHEAD_BYTES, "the audit log has no copy of the list");

  const url = `/api/agents/${id}/allowlist`;
  const changes: [string, Method, string, object][] = [
    ["one more", "POST", url, payee("b", 0)],
    ["one other", "PUT", url, { allowlist: [...payees("a", MANY - 1), payee("b", 1)] }],
    ["a limit", "PATCH", `/api/agents/${id}`, { dailyLimit: "12" }],
  ];
  for (const [what, method, path, body] of changes) {
    const cost = await costOf(() => change(owner, method, path, body));
    t.comment(`${what}: ${JSON.stringify(cost)}`);
    t.ok(cost.written <= 1, `${what}: ${cost.written} payees written`);
    // The payee, the order, and two audit entries.
    t.ok(cost.rows <= 4, `${what}: ${cost.rows} rows`);
    t.ok(cost.bytes - cost.documents < OVERHEAD_BYTES, `${what}: the document is stored once`);
  }

  const all = await costOf(() => change(owner, "PUT", url, { allowlist: payees("c") }));
  t.equal(all.rows, 3, "one order and two entries instead of a thousand");
  t.ok(all.bytes - all.documents < OVERHEAD_BYTES, `all payees: ${JSON.stringify(all)}`);
  const [entry] = await entriesOf(owner, id);
  t.match(entry, {
    action: "allowlist.replaced",
    before: null,
    after: { added: MANY, removed: MANY },
  });
  t.match(entry?.after?.order, /^0x[0-9a-f]{64}$/, "the order that lists them all");
});

t.test("the audit log lists few payees, and all of them when no order does", async (t) => {
  const owner = await signIn(service);
  const { id } = await createAgent(service, owner, { allowlist: payees("a", 300) });
  const url = `/api/agents/${id}/allowlist`;
  await change(owner, "PUT", url, { allowlist: [payee("b", 1), ...payees("a", 299)] });
  const addresses = (list: { address: string }[] | undefined) =>
    list?.map(({ address }) => address.toLowerCase());
  const [signed] = await entriesOf(owner, id);
  t.same(addresses(signed?.before?.payees), [payee("a", 299).address]);
  t.same(addresses(signed?.after?.payees), [payee("b", 1).address]);
  t.equal((await send(owner, "PUT", url, { allowlist: [payee("b", 1)] })).statusCode, 200);
  const [removed] = await entriesOf(owner, id);
  t.equal(
    removed?.before?.payees?.length,
    299,
    "removed without a signature: only the audit log lists them",
  );
  t.same(removed?.after, { removed: 299 });
});

t.test("an address at hundreds of sites is changed at one, and removed in one entry", async (t) => {
  const owner = await signIn(service);
  const { address } = payee("a", 1);
  const at = (index: number) => ({ address, site: `https://s${index}.example`, dailyLimit: "5" });
  const allowlist = Array.from({ length: 500 }, (_one, index) => at(index));
  const { id } = await createAgent(service, owner, { allowlist });
  const url = `/api/agents/${id}/allowlist`;
  const lowered = await costOf(() => send(owner, "POST", url, { ...at(7), dailyLimit: "4" }));
  t.equal(lowered.written, 1, "one of 500");
  const entries = (await entriesOf(owner, id)).length;
  t.equal((await send(owner, "DELETE", `${url}/${address}`)).statusCode, 200);
  const after = await entriesOf(owner, id);
  t.equal(after.length, entries + 1);
  t.match(after[0], { action: "allowlist.removed", after: { removed: 500 } });
  t.equal(after[0]?.before?.payees?.length, 500);
});

t.test("unsigned requests for orders store no documents", async (t) => {
  const owner = await signIn(service);
  const cost = await costOf(async () => {
    for (let count = 0; count < 3; count += 1)
      await send(owner, "POST", "/api/agents", {
        name: "a",
        dailyLimit: "1",
        allowlist: payees("a"),
      });
  });
  t.equal(cost.rows, 3);
  t.ok(cost.bytes < OVERHEAD_BYTES, JSON.stringify(cost));
});

t.test("the daily quota holds across replicas", async (t) => {
  const other = await testApp(t, { database, chain });
  const owner = await signIn(service);
  const agents = [];
  for (let index = 0; index < 4; index += 1)
    agents.push(await createAgent(service, owner, { allowlist: payees(`q${index}`) }));
  const wanted = [];
  for (const [index, { id }] of agents.entries()) {
    const url = `/api/agents/${id}/allowlist`;
    const body = payee("new", index);
    const authorization = await signOrder(
      owner.account,
      (await send(owner, "POST", url, body)).json(),
    );
    if (!authorization) throw new Error("nothing to sign");
    wanted.push({ url, body: { ...body, authorization }, id });
  }
  const bytes = 8_192 + Buffer.byteLength(JSON.stringify(wanted[0]?.body.authorization.order));
  // Half an order short: its room becomes free only after minutes.
  await leaveRoom(owner, 2.5 * bytes);
  const before = await stored();
  const answers = await Promise.all(
    wanted.map(async ({ url, body }, index) => {
      const answer = await send(owner, "POST", url, body, index % 2 === 0 ? service : other);
      // On a slow machine one request may wait too long for the other: 503 means that nothing was changed.
      const again = () => send(owner, "POST", url, body);
      return answer.statusCode === 503 ? again() : answer;
    }),
  );
  const statuses = answers.map(({ statusCode }) => statusCode).toSorted((a, b) => a - b);
  t.same(statuses, [201, 201, 429, 429], "two fit into the quota");
  const after = await stored();
  t.equal(
    after.rows - before.rows,
    2 * 4,
    "the refused ones wrote nothing: two payees, two orders, four entries",
  );
  const refused = answers.findIndex(({ statusCode }) => statusCode === 429);
  const refusal = answers[refused];
  t.match(refusal?.json(), { code: "rate_limited", detail: /Nothing was changed/ });
  t.ok(Number(refusal?.headers["retry-after"]) > 60, "Retry-After is the time until it fits");
  const next = wanted[refused];
  if (!next) throw new Error("none was refused");
  const early = await send(owner, "PATCH", `/api/agents/${next.id}`, { dailyLimit: "99" }, other);
  t.equal(early.statusCode, 429, "refused before the owner signs");
  t.notOk("order" in early.json<object>());
  await leaveRoom(owner, 2 * bytes);
  t.equal((await send(owner, "POST", next.url, next.body)).statusCode, 201, "it fits later");
});

t.test("stopping an agent and withdrawing need no quota", async (t) => {
  const owner = await signIn(service);
  const agent = await createAgent(service, owner, { allowlist: payees("t") });
  const url = `/api/agents/${agent.id}`;
  await chain.mint(agent.walletAddress, 5_000_000n);
  // Well below zero: otherwise the duration of the test would free enough for a small change.
  await leaveRoom(owner, -KEPT_BYTES_PER_DAY);

  const refused: [string, Method, string, object][] = [
    ["raised", "PATCH", url, { dailyLimit: "99" }],
    ["one more payee", "POST", `${url}/allowlist`, payee("u", 1)],
    ["a new key", "POST", `${url}/keys`, {}],
    ["a new agent", "POST", "/api/agents", { name: "a", dailyLimit: "1" }],
    ["another name", "PATCH", url, { name: "Renamed" }],
    [
      "other labels",
      "PUT",
      `${url}/allowlist`,
      { allowlist: payees("t").map(({ address }) => ({ address, label: "x" })) },
    ],
  ];
  const before = await stored(true);
  for (const [what, method, path, body] of refused)
    t.match((await send(owner, method, path, body)).json(), { code: "rate_limited" }, what);
  t.same(await stored(true), before, "nothing was written");

  const tightened: [string, Method, string, object][] = [
    ["lowered", "PATCH", url, { dailyLimit: "1" }],
    ["one payee removed", "DELETE", `${url}/allowlist/${payee("t", 3).address}`, {}],
    ["one payee lowered", "POST", `${url}/allowlist`, { ...payee("t", 4), dailyLimit: "1" }],
    ["all but one removed", "PUT", `${url}/allowlist`, { allowlist: [payee("t", 5)] }],
    ["ended", "PATCH", url, { expiresAt: "2020-01-01T00:00:00Z" }],
    ["paused", "PATCH", url, { status: "paused" }],
    ["the key revoked", "DELETE", `${url}/keys/${agent.keyId}`, {}],
  ];
  for (const [what, method, path, body] of tightened) {
    const answer = await send(owner, method, path, body);
    t.ok(answer.statusCode < 300, `${what}: ${answer.body.slice(0, 200)}`);
  }
  const bulk = (await entriesOf(owner, agent.id)).find(
    ({ action, after }) => action === "allowlist.replaced" && (after?.removed ?? 0) > 1,
  );
  t.match(
    bulk,
    { before: null, after: { removed: MANY - 2 } },
    "only counted, as there is no room for the list",
  );

  const prepared = (
    await send(owner, "POST", `${url}/withdrawals/prepare`, { amount: "max" })
  ).json();
  const withdrawal = await signOrder(owner.account, prepared);
  const out = await send(owner, "POST", `${url}/withdrawals`, { ...withdrawal });
  t.match(out.json(), { success: true }, "withdrawn");
});

t.test("changes without a signature can use only half of the daily quota", async (t) => {
  const owner = await signIn(service);
  const { id } = await createAgent(service, owner, { allowlist: payees("h") });
  const url = `/api/agents/${id}`;
  const relabelled = payees("h").map(({ address }) => ({ address, label: "Other" }));
  await leaveRoom(owner, KEPT_BYTES_PER_DAY / 2 + 100_000);
  t.equal((await send(owner, "PATCH", url, { name: "Renamed" })).statusCode, 200);
  const refused = await send(owner, "PUT", `${url}/allowlist`, { allowlist: relabelled });
  t.match(refused.json(), { code: "rate_limited" }, "the labels before and after are 400 kB");
  await change(owner, "PUT", `${url}/allowlist`, { allowlist: [...relabelled, payee("i", 1)] });
});

t.test("entries of both formats verify, and an export has each document once", async (t) => {
  const owner = await signIn(service);
  const { id } = await createAgent(service, owner, { allowlist: payees("v", 200) });
  const url = `/api/agents/${id}/allowlist`;
  const pool = createPool(database.url, { maxConnections: 2, applicationName: "test" });
  t.teardown(() => pool.end());
  const db = createPrisma(pool);
  const ownerId = await ownerIdOf(owner);
  // In the format of the previous version: the whole list, before and after.
  const listed = (await service.app.inject({ url: `/api/agents/${id}`, headers: owner.headers }))
    .json()
    .allowlist.map(({ createdAt: _createdAt, ...terms }: { createdAt: string }) => terms);
  await noteAudit(db, {
    ownerId,
    agentId: id,
    actor: owner.account.address.toLowerCase(),
    action: "allowlist.replaced",
    before: { allowlist: listed },
    after: { allowlist: listed },
    requestId: "req_old",
  });
  await change(owner, "PUT", url, { allowlist: payees("w", 200) });
  await change(owner, "PUT", url, { allowlist: [...payees("w", 199), payee("x", 1)] });
  await send(owner, "DELETE", `${url}/${payee("w", 7).address}`);

  const output: string[] = [];
  t.ok(
    await verifyDatabase(db, { owner: ownerId, noted: [] }, (line) => output.push(line)),
    output.join("\n"),
  );
  const text = (await service.app.inject({ url: "/api/audit/export", headers: owner.headers }))
    .body;
  const rows = text
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => readLine(line) as ChainRow);
  t.match(await verifyChain(rows), { ok: true });
  t.equal(rows.filter(({ order }) => order !== undefined).length, 3, "one document for each order");
  const inBodies = rows.filter(({ body }) => body.toLowerCase().includes(payee("w", 8).address));
  t.equal(inBodies.length, 0, "the content of an order is not repeated in the entries");
});
