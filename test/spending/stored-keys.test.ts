// Goal: the row of a key keeps the first response for the one caller and call it belongs to, and is freed only while nothing can have moved.
import { randomBytes } from "node:crypto";
import t from "tap";
import { createPool } from "../../server/infra/db/pool.ts";
import type { IdempotencyRef } from "../../server/plugins/guardrails/types.ts";
import {
  findKeyOfPayment,
  findPaidAnswer,
  KeyStore,
} from "../../server/plugins/payments/idempotency.ts";
import {
  cancelCall,
  forgetDelivered,
  LostResponses,
  UNDELIVERED_BYTES,
} from "../../server/plugins/payments/lost-responses.ts";
import { testDatabase } from "../helpers/postgres.ts";
import { ASSET, CHAIN_ID, PAYEE, seedAgent } from "./guardrails-sql.helper.ts";

const database = await testDatabase(t);
const pool = createPool(database.url, { maxConnections: 3 });
t.teardown(() => pool.end());

const ROUTE = "POST /api/agents/x402-fetch";
const LONG = "x".repeat(64 * 1024 + 1);
const keys = new KeyStore(pool);
const newAgent = async () => (await seedAgent(pool, { dailyLimit: 100n })).agentId;

interface KeyRow {
  payment_id?: string;
  status_code?: number;
  response?: string;
  implicit?: boolean;
  call?: string;
  told_call?: string;
  /** How long ago it was written. */
  minutes?: number;
}

/** A key with this row. */
async function keyOf(agentId: string, row: KeyRow = {}): Promise<IdempotencyRef> {
  const ref = {
    subjectId: agentId,
    route: ROUTE,
    key: randomBytes(8).toString("hex"),
    bodyHash: randomBytes(32),
  };
  await pool.query(
    `INSERT INTO idempotency_keys (subject_id, route, key, body_hash, payment_id, status_code, response, implicit,
                                   call, told_call, created_at, updated_at)
     SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, at, at FROM (SELECT now() - $11 * interval '1 minute' AS at) w`,
    [
      ref.subjectId,
      ref.route,
      ref.key,
      ref.bodyHash,
      row.payment_id ?? null,
      row.status_code ?? null,
      row.response ?? null,
      row.implicit ?? false,
      row.call ?? null,
      row.told_call ?? null,
      row.minutes ?? 0,
    ],
  );
  return ref;
}

async function payment(
  agentId: string,
  id: string,
  { status = "submitted", kind = "x402", minutes = 0 } = {},
): Promise<void> {
  const proof = status === "settled" ? `0x${"ab".repeat(32)}` : null;
  await pool.query(
    `INSERT INTO payments (agent_id, id, kind, status, chain_id, asset, counterparty, amount, nonce, tx_hash, block_number,
                           settled_at, created_at)
     SELECT $1, $2, $3, $4, $5, $6, $7, 1, $8, $9::text, 1, CASE WHEN $9::text IS NOT NULL THEN at END, at
       FROM (SELECT clock_timestamp() - $10 * interval '1 minute' AS at) w`,
    [
      agentId,
      id,
      kind,
      status,
      CHAIN_ID,
      ASSET,
      PAYEE,
      `0x${randomBytes(32).toString("hex")}`,
      proof,
      minutes,
    ],
  );
}

const responseOf = async (ref: IdempotencyRef) => (await keys.find(ref))?.response;

t.test("a key that is claimed belongs to its caller, route and body", async (t) => {
  const ref = { subjectId: "agt_1", route: ROUTE, key: "k", bodyHash: randomBytes(32) };
  t.equal(await keys.find(ref), undefined);
  t.equal(await keys.insert(ref), true);
  t.equal(await keys.insert(ref, { statusCode: 200, response: "{}" }), false, "it is taken");
  const row = await keys.find(ref);
  t.match(row, {
    isSameBody: true,
    paymentId: null,
    statusCode: null,
    response: null,
    isLong: false,
  });
  t.ok(row && row.ageSeconds >= 0 && row.ageSeconds < 60);
  t.match(await keys.find({ ...ref, bodyHash: randomBytes(32) }), { isSameBody: false });
  for (const other of [{ subjectId: "agt_2" }, { route: "POST /api/agents/spend" }, { key: "l" }])
    t.equal(await keys.find({ ...ref, ...other }), undefined, JSON.stringify(other));
  const free = { ...ref, key: "free" };
  t.equal(await keys.insert(free, { statusCode: 200, response: "{}" }), true);
  t.match(await keys.find(free), { statusCode: 200, response: "{}" });
});

t.test("the first response stays", async (t) => {
  const agent = await newAgent();
  const [ref, neighbour] = [await keyOf(agent), await keyOf(agent)];
  await keys.note(ref, "note 1");
  await keys.note(ref, "note 2");
  t.match(await keys.find(ref), { statusCode: null, response: "note 1" });
  await keys.complete(ref, { statusCode: 502, response: "first" });
  await keys.complete(ref, { statusCode: 200, response: "second" });
  await keys.note(ref, "note 3");
  t.match(await keys.find(ref), { statusCode: 502, response: "first" });
  t.match(await keys.find(neighbour), { statusCode: null, response: null }, "of another key");
});

t.test("only a key without a payment and a response is released", async (t) => {
  const agent = await newAgent();
  const claimed = await keyOf(agent);
  const kept = [
    await keyOf(agent),
    await keyOf(agent, { payment_id: "pay_1" }),
    await keyOf(agent, { status_code: 200, response: "{}" }),
  ];
  for (const ref of [claimed, ...kept.slice(1)]) await keys.release(ref);
  t.equal(await keys.find(claimed), undefined);
  for (const ref of kept) t.ok(await keys.find(ref));
});

t.test("a response of more than 64 KiB is read on its own", async (t) => {
  const agent = await newAgent();
  const short = await keyOf(agent, { response: LONG.slice(1) });
  t.match(await keys.find(short), { isLong: false, response: LONG.slice(1) });
  const long = await keyOf(agent, { response: LONG });
  t.match(await keys.find(long), { isLong: true, response: null });
  t.equal(await keys.readResponse(long), LONG);
  t.equal(await keys.readResponse({ ...long, key: "other" }), null);
  t.equal(await keys.readResponse(await keyOf(agent)), null);
});

t.test("the stored response of a paid call", async (t) => {
  const agent = await newAgent();
  const paid = { payment_id: "pay_1", status_code: 200 };
  const body = '{"paid":true}';
  const cases: [string, KeyRow, boolean][] = [
    ["paid", { ...paid, response: body }, true],
    ["it runs", { payment_id: "pay_1", response: body }, false],
    ["it failed", { ...paid, status_code: 502, response: body }, false],
    ["it was free", { status_code: 200, response: body }, false],
    ["it is not kept", paid, false],
  ];
  for (const [what, row, isFound] of cases) {
    const found = await findPaidAnswer(pool, await keyOf(agent, row));
    t.same(found, isFound ? { paid: true } : undefined, what);
  }
  const nobody = { subjectId: agent, route: ROUTE, key: "other", bodyHash: randomBytes(32) };
  t.equal(await findPaidAnswer(pool, nobody), undefined);

  const room: string[] = [];
  const makeRoom = async (): Promise<void> => void room.push("room");
  const short = await keyOf(agent, { ...paid, response: body });
  await findPaidAnswer(pool, { ...short, room: makeRoom });
  t.same(room, [], "a short one needs no room");
  const long = await keyOf(agent, { ...paid, response: `{"text":"${LONG}"}` });
  t.same(await findPaidAnswer(pool, { ...long, room: makeRoom }), { text: LONG });
  t.same(room, ["room"]);
  t.same(await findPaidAnswer(pool, long), { text: LONG });
  const full = () => Promise.reject(new Error("full"));
  await t.rejects(findPaidAnswer(pool, { ...long, room: full }), { message: "full" });
});

t.test("the key of the call that made a payment", async (t) => {
  const [agent, other] = [await newAgent(), await newAgent()];
  await payment(agent, "pay_1", { minutes: 60 });
  await payment(agent, "pay_spend", { minutes: 60, kind: "spend" });
  const find = (paymentId: string, agentId = agent, route = ROUTE) =>
    findKeyOfPayment(pool, { agentId, paymentId, route });
  t.equal(await find("pay_1"), undefined, "its key is no longer stored");
  await keyOf(agent, { payment_id: "pay_1", minutes: 66 });
  t.equal(await find("pay_1"), undefined, "claimed too long before it");
  const { key } = await keyOf(agent, { payment_id: "pay_1", minutes: 61 });
  await keyOf(agent, { payment_id: "pay_1", minutes: 59 });
  await keyOf(agent, { payment_id: "pay_2", minutes: 60.5 });
  await keyOf(agent, { payment_id: "pay_spend", minutes: 61 });
  t.equal(await find("pay_1"), key);
  t.equal(await find("pay_1", agent, "POST /api/agents/spend"), undefined);
  t.equal(await find("pay_1", other), undefined);
  t.equal(await find("pay_spend"), undefined, "no fetch");
});

const lost = new LostResponses({
  pool,
  approvals: { keyFor: () => Promise.reject(new Error("not asked")) },
  warn: (error) => t.fail(String(error)),
  nowMs: () => performance.now(),
});
const joins = (cameAtMs: number) => ({ cameAtMs, isGone: () => false });
const marksOf = async (agentId: string) => {
  const { rows } = await pool.query<{ key: string; told_call: string | null; ago: number }>(
    `SELECT key, told_call, extract(epoch FROM now() - told_at)::float8 AS ago FROM idempotency_keys
      WHERE subject_id = $1 AND told_at IS NOT NULL ORDER BY told_at`,
    [agentId],
  );
  return rows;
};

t.test("delivered responses, each at its time", async (t) => {
  const agent = await newAgent();
  const implicit = { implicit: true, payment_id: "pay_1" };
  await payment(agent, "pay_1");
  const refs = [];
  for (let index = 0; index < 3; index += 1) refs.push(await keyOf(agent, implicit));
  const explicit = await keyOf(agent, { payment_id: "pay_1" });
  const delivered = (ref: IdempotencyRef) =>
    lost.noteDelivered({ ...ref, joins: { ...joins(0), answeredBy: ref.key } });
  for (const ref of [...refs.slice(0, 2), explicit]) delivered(ref);
  await lost.end();
  const marks = await marksOf(agent);
  t.same(
    marks.map(({ key }) => key).toSorted(),
    refs
      .slice(0, 2)
      .map(({ key }) => key)
      .toSorted(),
  );
  t.ok(
    marks.every(({ ago }) => ago >= 0 && ago < 60),
    "a call with a key of its own has no mark",
  );
  const [first, , last] = refs;
  if (!first || !last) throw new Error("three calls");
  t.equal(await lost.earlierCall(last, joins(0)), last.key, "it is not delivered");
  t.equal(await lost.earlierCall(first, joins(performance.now())), undefined);
  t.equal(await lost.earlierCall(first, joins(0)), first.key, "it came before the delivery");
  const neighbours = [{ subjectId: "agt_x" }, { route: "x" }, { bodyHash: randomBytes(32) }];
  for (const other of neighbours)
    t.equal(await lost.earlierCall({ ...last, ...other }, joins(0)), undefined);
});

t.test("a cancellation comes before or after the delivery", async (t) => {
  const agent = await newAgent();
  await payment(agent, "pay_1");
  const one = await keyOf(agent, { implicit: true, payment_id: "pay_1", call: "c1" });
  const two = await keyOf(agent, { implicit: true, payment_id: "pay_1", call: "c2" });
  const delivered = async (ref: IdempotencyRef, call: string) => {
    lost.noteDelivered({ ...ref, call, joins: { ...joins(0), answeredBy: ref.key } });
    await lost.end();
  };
  await delivered(one, "c1");
  t.match(await marksOf(agent), [{ key: one.key, told_call: "c1" }]);
  await cancelCall(pool, agent, "c1");
  t.same(await marksOf(agent), [], "the client says that it did not get it");
  await cancelCall(pool, agent, "c2");
  await delivered(two, "c2");
  t.same(await marksOf(agent), [], "canceled before");
});

const undeliveredBytes = async (agent: string) =>
  (await pool.query<{ bytes: number; releaseInSeconds: number }>(UNDELIVERED_BYTES, [agent]))
    .rows[0] ?? { bytes: -1, releaseInSeconds: -1 };

t.test("responses that are kept only for an identical call", async (t) => {
  const [agent, other] = [await newAgent(), await newAgent()];
  t.same(await undeliveredBytes(agent), { bytes: 0, releaseInSeconds: 60 });
  const response = randomBytes(500).toString("base64");
  const implicit = { implicit: true, status_code: 200, response };
  const kept: KeyRow[] = [
    { status_code: 200, response },
    { ...implicit, call: "c1" },
    { ...implicit, told_call: "c1" },
    { implicit: true, status_code: 200 },
  ];
  const others = [await keyOf(other, implicit)];
  for (const row of kept) others.push(await keyOf(agent, { ...row, minutes: 20 }));
  t.match(await undeliveredBytes(agent), { bytes: 0, releaseInSeconds: 60 });
  await keyOf(agent, { ...implicit, minutes: 3 });
  const { bytes, releaseInSeconds } = await undeliveredBytes(agent);
  t.ok(bytes >= response.length, `${bytes} bytes`);
  t.ok(releaseInSeconds > 400 && releaseInSeconds <= 480, `free in ${releaseInSeconds} s`);

  await payment(agent, "pay_open", { minutes: 20 });
  await payment(agent, "pay_late", { status: "settled", minutes: 10 });
  await payment(agent, "pay_past", { status: "settled", minutes: 12 });
  const old = { ...implicit, minutes: 12 };
  const joinable = [
    await keyOf(agent, { ...implicit, minutes: 10 }),
    await keyOf(agent, { ...old, payment_id: "pay_open" }),
    await keyOf(agent, { ...old, payment_id: "pay_late" }),
  ];
  const over = await keyOf(agent, { ...old, payment_id: "pay_past" });
  await pool.query(
    `INSERT INTO idempotency_keys (subject_id, route, key, body_hash, status_code, response, implicit, updated_at)
     SELECT $1, 'bulk', n::text, sha256(''), 200, 'r', TRUE, now() - interval '12 minutes' FROM generate_series(1, 500) n`,
    [agent],
  );
  await forgetDelivered(pool);
  const { rows } = await pool.query(
    "SELECT count(*)::int AS left FROM idempotency_keys WHERE route = 'bulk' AND response IS NOT NULL",
  );
  t.same(rows, [{ left: 0 }], "more than one batch");
  t.match(await keys.find(over), { statusCode: 200, response: null }, "the key itself stays");
  for (const ref of joinable) t.equal(await responseOf(ref), response);
  for (const [index, ref] of others.slice(0, 4).entries())
    t.equal(await responseOf(ref), response, `${index}`);
});
