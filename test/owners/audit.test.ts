// Goal: an owner's actions form one unbroken hash chain that nobody can change unnoticed and third parties can
// verify.
import { Client } from "pg";
import t, { type Test } from "tap";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { migrate } from "../../server/infra/db/migrate.ts";
import { createPool } from "../../server/infra/db/pool.ts";
import { createPrisma } from "../../server/infra/db/prisma.ts";
import { noteAudit } from "../../server/plugins/audit/store.ts";
import { verifyDatabase } from "../../server/plugins/audit/verify-cli.ts";
import { verifyChain, type ChainRow } from "../../server/plugins/audit/verify.ts";
import { callApi, spendAs } from "../helpers/call.ts";
import { testApp } from "../helpers/app.ts";
import {
  asOwner,
  createAgent,
  freshNonce,
  signIn,
  siweMessage,
  verify,
  type SignedInOwner,
} from "../helpers/owner.ts";
import { emptyDatabase } from "../helpers/postgres.ts";
import { until } from "../helpers/until.ts";
import { documentedScript, rehash, rowsOf } from "./audit.helper.ts";

const ctx = await testApp(t);
const { app, database } = ctx;
const { pool } = database;

interface Order {
  message: Record<string, unknown>;
}

interface Entry {
  seq: number;
  agentId: string | null;
  action: string;
  actor: string;
  after: Record<string, unknown> | null;
  hash: string;
}

const call = (
  who: SignedInOwner,
  method: "GET" | "POST" | "PATCH" | "DELETE",
  url: string,
  body?: unknown,
) => callApi(app, who, method, url, body);

async function entriesOf(who: SignedInOwner): Promise<Entry[]> {
  const answer = await call(who, "GET", "/api/audit?limit=100");
  if (answer.statusCode !== 200) throw new Error(answer.body);
  return answer.json<{ items: Entry[] }>().items.reverse();
}

const exportOf = async (who: SignedInOwner, query = ""): Promise<string> =>
  (await call(who, "GET", `/api/audit/export${query}`)).body;

const ownerIdOf = async (who: SignedInOwner): Promise<string> =>
  (
    await pool.query<{ id: string }>("SELECT id FROM owners WHERE address = $1", [
      who.account.address.toLowerCase(),
    ])
  ).rows[0]?.id ?? "";

/** Signs in, creates and changes an agent, signs in again, and ends the other sessions: at least eight entries. */
async function history() {
  const first = await signIn(ctx);
  const agent = await createAgent(ctx, first);
  await call(first, "PATCH", `/api/agents/${agent.id}`, { name: "Renamed" });
  const url = `/api/agents/${agent.id}/keys`;
  await asOwner(app, first, { method: "POST", url, body: { label: "second" } });
  await call(first, "DELETE", `/api/agents/${agent.id}/keys/${agent.keyId}`);
  const owner = await signIn(ctx, first.account);
  await call(first, "POST", "/api/auth/logout", {});
  const other = await signIn(ctx, first.account);
  const { items } = (await call(owner, "GET", "/api/auth/sessions")).json<{
    items: { id: string; current: boolean }[];
  }>();
  for (const { id, current } of items)
    if (!current) await call(owner, "DELETE", `/api/auth/sessions/${id}`);
  t.equal((await call(other, "GET", "/api/auth/session")).statusCode, 401);
  return { owner, agent };
}

t.test("one chain has sessions, agents and keys, with actor, action and position", async (t) => {
  const { owner, agent } = await history();
  const entries = await entriesOf(owner);
  t.same(
    entries.map(({ seq, action }) => `${seq} ${action}`),
    [
      "1 session.created",
      "2 policy.signed",
      "3 agent.created",
      "4 agent.updated",
      "5 key.signed",
      "6 key.created",
      "7 key.revoked",
      "8 session.created",
      "9 session.ended",
      "10 session.created",
      "11 session.revoked",
    ],
  );
  for (const entry of entries) t.equal(entry.actor, owner.account.address);
  t.equal(entries[2]?.agentId, agent.id);

  const ofAgent = (await call(owner, "GET", `/api/agents/${agent.id}/audit`)).json<{
    items: Entry[];
  }>();
  t.same(
    ofAgent.items.map(({ seq }) => seq),
    [7, 6, 5, 4, 3, 2],
    "the agent's own list is a part of it",
  );

  const text = await exportOf(owner);
  const verdict = await verifyChain(rowsOf(text));
  t.match(verdict, { ok: true, signatures: 5, head: { seq: 11, hash: entries[10]?.hash } });
  t.equal(
    (await exportOf(owner, "?after=8")).split("\n").length,
    4,
    "the entries after a given one",
  );
  t.equal(await exportOf(owner, "?after=11"), "");
  const secrets = [owner.cookie.split("=")[1] ?? "-", agent.apiKey];
  for (const secret of secrets)
    t.notOk(text.includes(secret), "it contains no session token and no key");
});

t.test("every change of an export is found by our check and the documented one", async (t) => {
  const { owner } = await history();
  const { owner: otherOwner } = await history();
  const rows = rowsOf(await exportOf(owner));
  const others = rowsOf(await exportOf(otherOwner));
  const head = rows.at(-1) as ChainRow;
  const noted = { seq: head.seq, hash: head.hash };
  const at = (index: number, change: (row: ChainRow) => Partial<ChainRow>): ChainRow[] =>
    rows.map((row, place) => (place === index ? { ...row, ...change(row) } : row));
  const body = (change: (text: string) => string) => (row: ChainRow) => ({
    body: change(row.body),
  });
  const otherSignature = /"signature": "(0x[0-9a-f]+)"/.exec(rows[7]?.body ?? "")?.[1] ?? "none";
  const swapped = [...rows];
  [swapped[3], swapped[4]] = [rows[4] as ChainRow, rows[3] as ChainRow];

  const cases: Record<string, { rows: ChainRow[]; seq: number; why: RegExp }> = {
    "one body": {
      rows: at(
        3,
        body((text) => text.replace("Renamed", "Renowned")),
      ),
      seq: 4,
      why: /hash/,
    },
    "one hash": { rows: at(3, () => ({ hash: "ab".repeat(32) })), seq: 4, why: /hash/ },
    "one link": {
      rows: at(3, () => ({ prevHash: "ab".repeat(32) })),
      seq: 4,
      why: /does not follow/,
    },
    "a row in the middle gone": {
      rows: rows.filter((_, index) => index !== 4),
      seq: 5,
      why: /missing/,
    },
    "two rows in another order": { rows: swapped, seq: 4, why: /missing/ },
    "the tail cut": { rows: rows.slice(0, -2), seq: 10, why: /missing/ },
    "all of it gone": { rows: [], seq: 1, why: /missing/ },
    "a signature, hashed anew": {
      rows: rehash(
        at(
          0,
          body((text) =>
            text.replace(/"signature": "0x[0-9a-f]+"/, `"signature": "${otherSignature}"`),
          ),
        ),
        0,
      ),
      seq: 1,
      why: /signature|signed by/,
    },
    "a signer, hashed anew": {
      rows: rehash(
        at(
          0,
          body((text) =>
            text.replaceAll(/"signer": "0x[0-9a-f]+"/g, `"signer": "0x${"1".repeat(40)}"`),
          ),
        ),
        0,
      ),
      seq: 1,
      why: /owner/,
    },
    "another owner's row, hashed anew": {
      rows: rehash(
        at(3, () => ({ body: others[3]?.body ?? "" })),
        3,
      ),
      seq: 4,
      why: /owner/,
    },
    "an older text, hashed anew": {
      rows: rehash(
        at(
          3,
          body((text) => text.replace("Renamed", "Renowned")),
        ),
        3,
      ),
      seq: 11,
      why: /noted/,
    },
    "the order beside an entry": {
      rows: at(1, ({ order }) => ({
        order: {
          ...(order as object),
          message: { ...(order as Order).message, dailyLimit: "1" },
        },
      })),
      seq: 2,
      why: /order/,
    },
    "an order gone": { rows: at(1, () => ({ order: undefined })), seq: 2, why: /order/ },
  };
  const script = await documentedScript(t);
  t.match(await verifyChain(rows, [noted]), { ok: true });
  t.match(await script(rows, noted), { code: 0, output: /^ok .*: 11 entries, 5 signatures/ });
  const ran = await Promise.all(
    Object.values(cases).map(async (tampered) => script(tampered.rows, noted)),
  );
  for (const [index, [what, { rows: tampered, seq, why }]] of Object.entries(cases).entries()) {
    t.match(await verifyChain(tampered, [noted]), { ok: false, seq, why }, what);
    const output = new RegExp(String.raw`^FAILED .*: entry ${seq} .*${why.source}`);
    t.match(ran[index], { code: 1, output }, `${what}: the script`);
  }
});

t.test("an entry that needs a signed order is refused without one", async (t) => {
  const { owner } = await history();
  const rows = rowsOf(await exportOf(owner));
  for (const [gone, seq] of [
    [1, 2],
    [4, 5],
  ] as const) {
    const forged = rows
      .filter((_, index) => index !== gone)
      .map((row, index) => ({
        ...row,
        seq: index + 1,
        body: row.body.replace(/"seq": \d+/, `"seq": ${index + 1}`),
      }));
    t.match(await verifyChain(rehash(forged, 0)), {
      ok: false,
      seq,
      why: /without a signed order/,
    });
  }
});

const prismaOf = (t: Test, url: string) => {
  const own = createPool(url, { maxConnections: 5 });
  const prisma = createPrisma(own);
  t.teardown(async () => {
    await prisma.$disconnect();
    await own.end();
  });
  return prisma;
};

t.test("the rows are checked: a change with triggers disabled is found", async (t) => {
  const { owner } = await history();
  const id = await ownerIdOf(owner);
  const prisma = prismaOf(t, database.url);
  const checked = async () => {
    const output: string[] = [];
    const ok = await verifyDatabase(prisma, { owner: id, noted: [] }, (line) => output.push(line));
    return `${ok} ${output[0]}`;
  };
  t.match(await checked(), /^true ok .*: 11 entries, 5 signatures/);
  const own = await database.pool.connect();
  /** As an intruder with the rights of the database's owner. */
  const tampered = async (sql: string) => {
    await own.query("ALTER TABLE audit_log DISABLE TRIGGER audit_log_kept");
    await own.query("CREATE TABLE kept_log AS SELECT * FROM audit_log");
    await own.query(sql.replace("$1", `'${id}'`));
    const result = await checked();
    await own.query("DELETE FROM audit_log");
    await own.query("INSERT INTO audit_log SELECT * FROM kept_log");
    await own.query("DROP TABLE kept_log");
    await own.query("ALTER TABLE audit_log ENABLE ALWAYS TRIGGER audit_log_kept");
    return result;
  };
  try {
    const cases: [string, RegExp][] = [
      [
        "UPDATE audit_log SET body = replace(body, 'Renamed', 'Renowned') WHERE owner_id = $1",
        /^false FAILED .*: entry 4 .*hash/,
      ],
      [
        "UPDATE audit_log SET hash = sha256('x') WHERE owner_id = $1 AND seq = 4",
        /^false FAILED .*: entry 4 .*hash/,
      ],
      [
        "DELETE FROM audit_log WHERE owner_id = $1 AND seq = 5",
        /^false FAILED .*: entry 5 is missing/,
      ],
      [
        "DELETE FROM audit_log WHERE owner_id = $1 AND seq > 9",
        /^false FAILED .*: entry 10 is missing/,
      ],
      [
        "UPDATE audit_log SET action = 'agent.paused' WHERE owner_id = $1 AND seq = 4",
        /^false FAILED .*: entry 4 .*columns/,
      ],
      [
        "UPDATE audit_log SET agent_id = NULL WHERE owner_id = $1 AND seq = 2",
        /^false FAILED .*: entry 2 .*columns/,
      ],
      [
        'UPDATE owner_orders SET document = document || \'{"dailyLimit":"1"}\' WHERE owner_id = $1',
        /^false FAILED .*: entry 2 .*order/,
      ],
    ];
    for (const [sql, expected] of cases) t.match(await tampered(sql), expected, sql);
  } finally {
    own.release();
  }
});

t.test("no role can change an entry: triggers and grants stop them", async (t) => {
  await history();
  const attempts = [
    "UPDATE audit_log SET body = body",
    "DELETE FROM audit_log WHERE false",
    "TRUNCATE audit_log",
    "DELETE FROM audit_heads WHERE false",
    "TRUNCATE audit_heads CASCADE",
  ];
  for (const sql of attempts) await t.rejects(pool.query(sql), /append-only/, sql);
  for (const sql of ["UPDATE audit_log SET body = body", "DELETE FROM audit_log"]) {
    const client = await pool.connect();
    await client.query("SET session_replication_role = replica");
    await t.rejects(client.query(sql), /append-only/, `${sql} in replication mode`);
    client.release(true);
  }

  // A role that owns its database, migrates it and serves from it, as in a managed Postgres.
  const url = new URL(await emptyDatabase(t));
  const name = url.pathname.slice(1);
  await pool.query(`CREATE ROLE ${name} LOGIN PASSWORD 'p'`);
  await pool.query(`ALTER DATABASE ${name} OWNER TO ${name}`);
  url.username = name;
  url.password = "p";
  await migrate({ connectionString: url.href });
  const client = new Client({ connectionString: url.href });
  await client.connect();
  await client.query(
    "INSERT INTO owners (id, address) VALUES ('own_1', '0x' || repeat('1', 40)); INSERT INTO audit_notes (owner_id, actor, action) VALUES ('own_1', 'a', 'b')",
  );
  const { rows } = await client.query("SELECT seq::int FROM audit_log");
  t.same(rows, [{ seq: 1 }], "it can insert");
  for (const sql of attempts) await t.rejects(client.query(sql), /permission denied/, sql);
  await client.end();
});

t.test("two replicas that write in parallel make one unbroken chain", async (t) => {
  const other = await testApp(t, { database, chain: ctx.chain });
  const owner = await signIn(ctx);
  const agents = await Promise.all([createAgent(ctx, owner), createAgent(ctx, owner)]);
  const both = [ctx, other];
  // Each replica has its own origin, and so its own session.
  const sessions = [owner, await signIn(other, owner.account)];
  // A request that finds the agent's lock busy gets 503 and is repeated.
  const rename = async (n: number): Promise<number> => {
    for (;;) {
      const { statusCode } = await (both[n % 2] ?? ctx).app.inject({
        method: "PATCH",
        url: `/api/agents/${agents[(n >> 1) % 2]?.id}`,
        headers: sessions[n % 2]?.headers ?? {},
        payload: JSON.stringify({ name: `Name ${n}` }),
      });
      if (statusCode !== 503) return statusCode;
    }
  };
  const answers = await Promise.all(Array.from({ length: 24 }, async (_, n) => rename(n)));
  for (const status of answers) t.equal(status, 200);
  const entries = await entriesOf(owner);
  t.equal(entries.filter(({ action }) => action === "agent.updated").length, 24);
  t.match(await verifyChain(rowsOf(await exportOf(owner))), { ok: true, head: { seq: 30 } });
});

t.test("no deadlock: the chain's head is locked last", async (t) => {
  const owner = await signIn(ctx);
  const agent = await createAgent(ctx, owner);
  const ownerId = await ownerIdOf(owner);
  const prisma = prismaOf(t, database.url);
  const note = {
    ownerId,
    agentId: agent.id,
    actor: owner.account.address,
    action: "agent.updated",
    before: null,
    after: null,
    requestId: "r",
  } as const;
  const lock = `SELECT 1 FROM agents WHERE id = '${agent.id}' FOR UPDATE`;
  let release = (): void => undefined;
  const held = new Promise<void>((resolve) => (release = resolve));
  const noteFirst = prisma.$transaction(async (tx) => {
    await noteAudit(tx, note);
    await held;
    await tx.$queryRawUnsafe(lock);
  });
  const lockFirst = prisma.$transaction(async (tx) => {
    await tx.$queryRawUnsafe(lock);
    await noteAudit(tx, note);
    release();
  });
  await Promise.all([noteFirst, lockFirst]);
  t.match(await verifyChain(rowsOf(await exportOf(owner))), { ok: true, head: { seq: 5 } });
  const { rows } = await pool.query("SELECT count(*)::int AS left FROM audit_notes");
  t.same(rows, [{ left: 0 }]);

  await t.rejects(
    prisma.$transaction(async (tx) => {
      await noteAudit(tx, note);
      throw new Error("undone");
    }),
  );
  t.equal((await entriesOf(owner)).length, 5, "a change that was rolled back is not in it");
});

t.test("a withdrawal has two entries: the signed order, and the settlement", async (t) => {
  const owner = await signIn(ctx);
  const agent = await createAgent(ctx, owner);
  await ctx.chain.mint(agent.walletAddress, 5_000_000n);
  const url = `/api/agents/${agent.id}/withdrawals`;
  const prepared = (await call(owner, "POST", `${url}/prepare`, { amount: "2" })).json<{
    order: Record<string, string>;
    typedData: Parameters<typeof owner.account.signTypedData>[0];
  }>();
  const signature = await owner.account.signTypedData(prepared.typedData);
  const answer = await call(owner, "POST", url, { order: prepared.order, signature });
  t.equal(answer.statusCode, 200, answer.body);
  await until(async () => (await entriesOf(owner)).at(-1)?.action === "withdrawal.settled");
  const { txHash, paymentId } = answer.json<{ txHash: string; paymentId: string }>();
  const [ordered, settled] = (await entriesOf(owner)).slice(-2);
  t.match(ordered, {
    action: "withdrawal.ordered",
    actor: owner.account.address,
    agentId: agent.id,
  });
  t.match(ordered?.after, { paymentId, amountAtomic: "2000000", nonce: prepared.order["nonce"] });
  t.match(settled?.after, { paymentId, txHash });

  const rows = rowsOf(await exportOf(owner));
  t.match(await verifyChain(rows), { ok: true, signatures: 3 });
  const changed = (from: string | RegExp, to: string) =>
    rehash(
      rows.map((row) => (row.seq === 4 ? { ...row, body: row.body.replace(from, to) } : row)),
      3,
    );
  const amount = changed('"amount": "2.00 USDC"', '"amount": "3.00 USDC"');
  t.match(await verifyChain(amount), { ok: false, seq: 4, why: /order/ });
  const parsed = JSON.parse(rows[3]?.body ?? "{}") as Record<string, unknown>;
  const bare = rehash(
    rows.map((row) =>
      row.seq === 4 ? { ...row, body: JSON.stringify({ ...parsed, proof: null }) } : row,
    ),
    3,
  );
  t.match(await verifyChain(bare), { ok: false, seq: 4, why: /without a signature/ });
});

t.test("a payment does not wait for the audit log", async (t) => {
  const owner = await signIn(ctx);
  const payee = privateKeyToAccount(generatePrivateKey()).address;
  const agent = await createAgent(ctx, owner, { allowlist: [payee] });
  await ctx.chain.mint(agent.walletAddress, 5_000_000n);
  const holder = await pool.connect();
  await holder.query("BEGIN");
  await holder.query("SELECT 1 FROM audit_heads WHERE owner_id = $1 FOR UPDATE", [
    await ownerIdOf(owner),
  ]);
  const answer = await spendAs(app, agent, { recipient: payee, amount: "1" });
  await holder.query("ROLLBACK");
  holder.release();
  t.equal(answer.statusCode, 200, answer.body);
});

t.test("a denied action is audited for the affected owner, with a limit per hour", async (t) => {
  const owner = await signIn(ctx);
  const agent = await createAgent(ctx, owner);
  const thief = await signIn(ctx);
  const actions = async (who: SignedInOwner) => (await entriesOf(who)).map(({ action }) => action);

  t.equal(
    (await call(thief, "PATCH", `/api/agents/${agent.id}`, { dailyLimit: "99" })).statusCode,
    404,
  );
  await until(async () => (await actions(owner)).includes("agent.refused"));
  const refused = (await entriesOf(owner)).at(-1);
  t.match(refused, {
    actor: thief.account.address,
    agentId: agent.id,
    after: { method: "PATCH", route: "/api/agents/:id" },
  });
  t.same(
    await actions(thief),
    ["session.created"],
    "the attacker gets no hint that the agent exists",
  );

  const order = {
    wallet: agent.walletAddress,
    to: thief.account.address,
    asset: ctx.config.networks[0].usdc.address,
    amount: "1",
    nonce: `0x${"1".repeat(64)}`,
    deadline: String(Math.floor(Date.now() / 1000) + 600),
  };
  const signature = `0x${"11".repeat(65)}`;
  const url = `/api/agents/${agent.id}/withdrawals`;
  t.equal((await call(owner, "POST", url, { order, signature })).statusCode, 401);
  await until(async () => (await actions(owner)).includes("signature.refused"));

  for (let tried = 0; tried < 22; tried += 1) {
    const nonce = await freshNonce(app);
    const message = siweMessage(ctx, { nonce, address: owner.account.address });
    const answer = await verify(ctx, {
      message,
      signature: await thief.account.signMessage({ message }),
    });
    t.ok([401, 429].includes(answer.statusCode));
    if (answer.statusCode === 429) await pool.query("DELETE FROM rate_buckets");
  }
  const signIns = (await actions(owner)).filter((action) => action === "session.refused");
  t.equal(signIns.length, 20, "third parties cannot fill an owner's audit log");
  t.match(await verifyChain(rowsOf(await exportOf(owner))), { ok: true });
});
