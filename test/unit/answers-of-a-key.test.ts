// Goal: what a repeated call gets for each state of its key: never a second payment, never another call's answer, and no promise that nothing keeps.
import t from "tap";
import { ApiError } from "../../server/errors.ts";
import type { IdempotencyRef } from "../../server/plugins/guardrails/types.ts";
import {
  Calls,
  JOINED,
  notKept,
  type IdempotencyRow,
  type NotReserved,
} from "../../server/plugins/payments/idempotency.ts";
import type { PaymentRow } from "../../server/plugins/payments/store.ts";

const LIMITS = { agentId: "agt_1", longestMs: 1_000 };
const KEY = { agentId: "agt_1", paymentId: "pay_1" };
const FREE = { status: 200, bytes: 2, sha256: "ab" };
const OLD = 1_000;

interface Scene {
  /** The row of the key. */
  row?: Partial<IdempotencyRow>;
  payment?: Partial<PaymentRow> | undefined;
  long?: string | null;
  /** The key of the earlier call; without it there is none. */
  earlier?: string;
}

/** The calls, with a store that logs what is asked of it. */
function scene(given: Scene = {}) {
  const { row, long = null, earlier } = given;
  const log: string[] = [];
  const calls = new Calls({
    keys: {
      find: async () =>
        row && {
          isSameBody: true,
          paymentId: "pay_1",
          statusCode: null,
          response: null,
          isLong: false,
          ageSeconds: OLD,
          ...row,
        },
      readResponse: async () => {
        log.push("read");
        return long;
      },
      complete: async ({ key }, { statusCode, response }) =>
        void log.push(`keep ${key} ${statusCode} ${response}`),
      note: async () => undefined,
      insert: async ({ key }, answer) => {
        log.push(answer ? `insert ${key}` : `claim ${key}`);
        return true;
      },
      release: async ({ key }) => void log.push(`release ${key}`),
    },
    payments: {
      find: async ({ paymentId }) => {
        log.push(`find ${paymentId}`);
        const { payment } = given;
        return (
          payment && ({ id: "pay_1", kind: "spend", ageSeconds: OLD, ...payment } as PaymentRow)
        );
      },
      markUnknown: async () => void log.push("unknown"),
      voidUnsigned: async () => true,
    },
    earlierCall: async () => earlier,
    sleep: async () => undefined,
  });
  return { calls, log };
}

const ref = (more: Partial<IdempotencyRef> = {}): IdempotencyRef => ({
  subjectId: "agt_1",
  route: "POST /pay",
  key: "own",
  bodyHash: new Uint8Array(32),
  ...more,
});
/** A call without a key of its own. */
const joining = () => ref({ joins: { cameAtMs: 0 } });

async function begin(given: Scene, of = ref(), limits: object = {}) {
  const made = scene(given);
  return { ...made, begun: await made.calls.begin(of, { ...LIMITS, ...limits }) };
}
async function callOf(of: IdempotencyRef | undefined, given: Scene = {}) {
  const { calls, log } = scene(given);
  const begun = await calls.begin(of, LIMITS);
  if (begun.kind !== "new" && begun.kind !== "signed") throw new Error(begun.kind);
  log.length = 0;
  return { call: begun.call, log };
}

t.test("a stored answer needs nothing but the key", async (t) => {
  const text = '{"paid":true}';
  const stored = await begin({ row: { statusCode: 200, response: text } });
  t.same(stored.begun, {
    kind: "answered",
    answer: { statusCode: 200, body: { paid: true }, text, replayed: true },
  });
  t.same(stored.log, []);
  const error = '{"code":"validation_failed","detail":"No.","extra":{}}';
  await t.rejects(begin({ row: { statusCode: 400, response: error } }), {
    code: "validation_failed",
    message: "No.",
  });
  await t.rejects(begin({ row: { statusCode: 200 } }), {
    code: "answer_not_kept",
    extra: { paymentId: "pay_1" },
    message: /no longer stored/,
  });
});

t.test("a long answer waits for memory", async (t) => {
  const row = { statusCode: 200, isLong: true };
  const long = '{"text":"long"}';
  const without = await begin({ row, long });
  t.match(without.begun, { answer: { body: { text: "long" } } });
  t.same(without.log, ["read"]);
  const order: string[] = [];
  await begin({ row, long }, ref({ room: async () => void order.push("room") }));
  t.same(order, ["room"]);
  const full = ref({ room: () => Promise.reject(new Error("full")) });
  await t.rejects(begin({ row, long }, full), {
    code: "idempotency_in_progress",
    extra: { paymentId: "pay_1" },
    cause: { message: "full" },
  });
  const note = await begin({
    row: { isLong: true },
    long: '{"shown":1}',
    payment: { status: "unknown" },
  });
  t.match(note.begun, { kind: "signed", storedNote: { shown: 1 } });
});

t.test("what an earlier request without an answer has left", async (t) => {
  const cases: [string, Partial<PaymentRow>, string][] = [
    ["released before it was signed", { status: "voided", failureCode: "not_signed" }, "new"],
    ["it failed on the chain", { status: "voided", failureCode: "expired" }, "signed"],
    ["it settled", { status: "settled", failureCode: "not_signed" }, "signed"],
    ["nobody knows", { status: "unknown", failureCode: null }, "signed"],
  ];
  for (const [what, payment, kind] of cases) {
    const { begun } = await begin({ row: {}, payment });
    t.equal(begun.kind, kind, what);
    if (begun.kind === "signed") t.equal(begun.storedNote, undefined);
  }
  const claiming = { longestClaimMs: 5_000 };
  const claimed = (ageSeconds: number) =>
    begin({ row: { paymentId: null, ageSeconds } }, ref(), claiming);
  await t.rejects(claimed(5), { code: "idempotency_in_progress", extra: { paymentId: null } });
  await t.rejects(claimed(5.001), { code: "answer_not_kept" });
  const free = await begin({ row: { paymentId: null } });
  t.equal(free.begun.kind, "new");
  t.same(free.log, ["release own"], "no payment is looked up");
});

t.test("a call that joins an earlier one", async (t) => {
  const alone = await begin({ row: { statusCode: 200, response: "{}" } }, joining());
  t.match(alone.begun, { kind: "new", call: { ref: { key: "own" } } }, "there is no earlier one");
  const answered = joining();
  const joined = await begin({ earlier: "e", row: { statusCode: 200, response: "{}" } }, answered);
  t.match(joined.begun, { kind: "answered", answer: { joined: true, replayed: true } });
  t.equal(answered.joins?.answeredBy, "e");
  const free = { paymentId: null, statusCode: 200, response: JSON.stringify({ freeAnswer: FREE }) };
  t.match(
    (await begin({ earlier: "e", row: free }, joining())).begun,
    { kind: "new" },
    "it was free",
  );
  const unseen = await begin({ earlier: "e", row: { statusCode: 200, response: "{}" } }, joining());
  t.same(unseen.log, ["find pay_1"], "its payment is not visible: the answer is");
  await t.rejects(
    begin({ earlier: "e", row: { statusCode: 200 }, payment: { status: "settled" } }, joining()),
    { code: "answer_not_kept", extra: { ...JOINED, paymentId: "pay_1" } },
  );
  const broken = begin({ earlier: "e", row: { statusCode: 200, response: "{" } }, joining());
  await t.rejects(broken, { name: "SyntaxError" }, "a fault of ours is not marked as an answer");
});

t.test("nothing was reserved", async (t) => {
  const inProgress: NotReserved = { kind: "in_progress", paymentId: "pay_2" };
  const replay = (response: string): NotReserved => ({
    kind: "replay",
    statusCode: 200,
    response,
    paymentId: null,
  });
  const { call: implicit } = await callOf(joining());
  t.equal(implicit.notReserved(inProgress), undefined, "an identical call was first: it is joined");
  t.equal(implicit.notReserved(replay("{}")), undefined);
  for (const of of [ref(), undefined]) {
    const { call } = await callOf(of);
    t.throws(() => call.notReserved(inProgress), { code: "idempotency_in_progress" });
    t.match(call.notReserved(replay('{"a":"b"}')), { body: { a: "b" }, replayed: true });
    t.throws(() => call.notReserved(replay(JSON.stringify({ freeAnswer: FREE }))), {
      code: "answer_not_kept",
      extra: { freeAnswer: FREE, paid: false },
    });
  }
  t.match(notKept(FREE, "Why."), { message: "Why.", extra: { paid: false } });
  t.not(notKept(FREE).message, "Why.");
  t.ok(notKept(FREE).message);
});

t.test("only a key of the caller's own is claimed, and only a claimed one released", async (t) => {
  for (const of of [joining(), undefined]) {
    const { call, log } = await callOf(of);
    await call.claim();
    await call.unclaim();
    await call.failClaimed(new ApiError("upstream_timeout"), () => true);
    t.match(await call.finishFree({ free: true }, FREE), { body: { free: true }, replayed: false });
    t.same(log, [], "nothing is stored");
  }
  const { call, log } = await callOf(ref());
  await call.unclaim();
  await call.failClaimed(new ApiError("upstream_timeout"), () => true);
  t.same(log, []);
  await call.claim();
  await call.unclaim();
  await call.unclaim();
  t.same(log, ["claim own", "release own"], "once");
});

t.test("a stored failure asks for no retry", async (t) => {
  const keptFor = async (error: ApiError) => {
    const { call, log } = await callOf(ref());
    await call.claim();
    await call.failClaimed(error, () => true);
    return log.at(-1) ?? "";
  };
  t.match(await keptFor(new ApiError("upstream_timeout")), /"code":"upstream_timeout"/);
  const limited = await keptFor(new ApiError("rate_limited"));
  t.match(limited, /"code":"answer_not_kept"/);
  t.match(limited, /"paid":false/);
});

t.test("what is kept under which key", async (t) => {
  const error = new ApiError("settlement_failed", { extra: { reason: "r" } });
  const done = { kind: "done", body: { paid: true } } as const;
  const failed = { kind: "failed", error } as const;
  const text = '{"paid":true}';
  const kept = `keep own 200 ${text}`;
  const failure = `keep own ${error.status} ${JSON.stringify({ code: error.code, detail: error.message, extra: { reason: "r" } })}`;
  const cases: [string, IdempotencyRef | undefined, boolean | undefined, string[], string[]][] = [
    ["a key of its own", ref(), undefined, [kept], [failure]],
    ["the same, in the ledger", ref(), true, [kept], [failure]],
    ["no key, no other record", joining(), undefined, [kept], [failure]],
    ["no key, but the ledger tells it", joining(), true, [], []],
    ["no key at all", undefined, undefined, [], []],
  ];
  for (const [what, of, isInLedger, ofDone, ofFailed] of cases) {
    const how = isInLedger === undefined ? {} : { isInLedger };
    const good = await callOf(of);
    const answer = good.call.answer(await good.call.keep(KEY, done, how));
    t.match(answer, { statusCode: 200, body: { paid: true }, replayed: false }, what);
    t.equal(answer.text, ofDone.length > 0 ? text : undefined);
    t.same(good.log, ofDone, what);
    t.equal(of?.joins?.answeredBy, of?.joins ? "own" : undefined, "delivered once it is sent");
    const bad = await callOf(of);
    t.same(await bad.call.keep(KEY, failed, how), failed);
    t.same(bad.log, ofFailed, what);
  }
  const of = joining();
  const { call, log } = await callOf(of);
  const unknown = await call.keep(KEY, { kind: "unknown", error });
  t.throws(() => call.answer(unknown), error);
  t.same(log, ["unknown"], "an unknown outcome is not stored");
  t.equal(of.joins?.answeredBy, undefined, "and is no delivery");
});

t.test("who pays itself after the earlier call failed", async (t) => {
  const failed = { kind: "failed", error: new ApiError("settlement_failed") } as const;
  const done = { kind: "done", body: {} } as const;
  const given: Scene = { earlier: "e", row: {}, payment: { status: "submitted" } };
  const begun = await scene(given).calls.begin(joining(), LIMITS);
  if (begun.kind !== "signed") throw new Error(begun.kind);
  const { call } = begun;
  t.equal(await call.mustPayItself(KEY, failed), false, "that payment may still be mined");
  given.payment = undefined;
  t.equal(await call.mustPayItself(KEY, failed), false, "it is not visible");
  given.payment = { status: "voided" };
  t.equal(await call.mustPayItself(KEY, failed), true);
  t.equal(await call.mustPayItself(KEY, done), false);
  t.throws(() => call.answer(failed), {
    code: "settlement_failed",
    extra: JOINED,
    headers: { "idempotent-replayed": "true" },
  });
  const alone = await callOf(ref(), { payment: { status: "voided" } });
  t.equal(await alone.call.mustPayItself(KEY, failed), false, "it joined none: its own failure");
  t.same(alone.log, []);
});
