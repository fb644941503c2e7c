// Goal: one idempotency key makes one payment: for every state of the key a spend answers, waits, resumes or starts anew, its steps keep their order, and only final answers are kept.
import t from "tap";
import { ExactJson } from "../../server/core/exact-json.ts";
import { ApiError, type ErrorCode } from "../../server/errors.ts";
import type { IdempotencyRef } from "../../server/plugins/guardrails/types.ts";
import {
  Calls,
  hasEnded,
  type CallLimits,
  type IdempotencyRow,
  type NotReserved,
  type PaymentResult,
} from "../../server/plugins/payments/idempotency.ts";
import type { AgentReservation, PayRequest } from "../../server/plugins/payments/reserve.ts";
import { Spend } from "../../server/plugins/payments/spend.ts";
import {
  longestRelayedMs,
  PaymentSteps,
  resultOf,
  type PaymentStepsDeps,
} from "../../server/plugins/payments/steps.ts";
import type { PaymentRow } from "../../server/plugins/payments/store.ts";
import type { SettlementOutcome } from "../../server/plugins/settlement/types.ts";

const REF: IdempotencyRef = {
  subjectId: "agt_1",
  route: "POST /pay",
  key: "k",
  bodyHash: new Uint8Array(32),
};
const HASH = `0x${"ab".repeat(32)}` as const;
const PAYEE = "0x0000000000000000000000000000000000000003";
const AUTHORIZATION = {
  chainId: 1,
  asset: "0x01",
  from: "0x02",
  to: PAYEE,
  value: 1n,
  validAfter: 0n,
  validBefore: 9n,
  nonce: "0x04",
} as const;
const SETTLED: SettlementOutcome = {
  status: "settled",
  id: "pay_1",
  txHash: HASH,
  blockNumber: 1n,
  settledAt: new Date(0),
  amountAtomic: 1n,
  byOther: false,
};
const RESERVED: AgentReservation = {
  kind: "reserved",
  agentId: "agt_1",
  paymentId: "pay_2",
  authorization: AUTHORIZATION,
  cover: { kind: "policy" },
  remainingAtomic: 5n,
};
const SETTLE_WAIT_MS = 1_000;
/** Older than any request that still runs. */
const OLD = { ageSeconds: 1_000 };

interface Scene {
  /** The stored row of the key, with its response parsed. */
  key?: Partial<Omit<IdempotencyRow, "response">> & { response?: object };
  payment?: Partial<PaymentRow>;
  /** The reservation can be released, because nothing was signed. */
  isUnsigned?: boolean;
  /** Another request takes the key meanwhile. */
  isTaken?: boolean;
  reservation?: AgentReservation | NotReserved;
  outcome?: SettlementOutcome;
  steps?: Partial<PaymentStepsDeps>;
}

/** A spend with fakes that log their calls in order. */
function scene(given: Scene = {}) {
  const log: string[] = [];
  const kept: unknown[] = [];
  const keep = ({ statusCode, response }: { statusCode: number; response: string }) => {
    log.push("keep");
    kept.push({ statusCode, response: JSON.parse(response) as unknown });
  };
  const payments = {
    find: async () =>
      given.payment &&
      ({
        id: "pay_1",
        agentId: "agt_1",
        kind: "spend",
        ageSeconds: 0,
        ...given.payment,
      } as PaymentRow),
    markUnknown: async () => void log.push("unknown"),
    voidUnsigned: async ({ code }: { code: string }) => {
      log.push(`void ${code}`);
      return given.isUnsigned ?? true;
    },
    staleReservations: async () => [],
  };
  const calls = new Calls({
    payments,
    keys: {
      find: async () =>
        given.key && {
          isSameBody: true,
          paymentId: "pay_1",
          statusCode: null,
          ageSeconds: 0,
          isLong: false,
          ...given.key,
          response: given.key.response === undefined ? null : JSON.stringify(given.key.response),
        },
      readResponse: async () => null,
      complete: async (_ref, answer) => keep(answer),
      note: async (_ref, recorded) => void log.push(`note ${recorded}`),
      insert: async (_ref, answer) => {
        log.push(answer ? "insert" : "claim");
        if (answer && given.isTaken !== true) keep(answer);
        return given.isTaken !== true;
      },
      release: async () => void log.push("release key"),
    },
    earlierCall: async () => undefined,
    sleep: async () => undefined,
  });
  const steps = new PaymentSteps({
    payments,
    settlement: {
      wait: async () => {
        log.push("wait");
        return given.outcome ?? SETTLED;
      },
    },
    allow: async () => undefined,
    sign: async () => {
      log.push("sign");
      return "0x05";
    },
    accept: async ({ id, kind, relay, authorization }) => {
      log.push(`accept ${kind} ${id} ${relay} ${authorization.signature}`);
      return { created: true };
    },
    isReservationGone: (error) => error instanceof Error && error.message === "gone",
    settleWaitMs: SETTLE_WAIT_MS,
    fault: async (point) => void log.push(`(${point})`),
    log: { error: () => log.push("error logged"), warn: () => undefined },
    ...given.steps,
  });
  const spend = new Spend({
    calls,
    steps,
    agentReserve: {
      reserve: async () => {
        log.push("reserve");
        return given.reservation ?? RESERVED;
      },
    },
    remainingOf: async () => 7n,
    networkOf: () => "eip155:1",
    settleWaitMs: SETTLE_WAIT_MS,
  });
  const request = { payer: { id: "agt_1" }, to: PAYEE, amountAtomic: 1n, chainId: 1 };
  const run = (ref: IdempotencyRef | null = REF) =>
    spend.run({ ...request, idempotency: ref ?? undefined } as unknown as PayRequest);
  return { run, calls, steps, log, kept };
}

const PAID = [
  "reserve",
  "(reserved)",
  "sign",
  "(signed)",
  "accept spend pay_2 true 0x05",
  "(accepted)",
  "wait",
];
const bodyOf = (paymentId: string, remaining: string) => ({
  success: true,
  txHash: HASH,
  paymentId,
  recipient: PAYEE,
  amount: "0.000001",
  network: "eip155:1",
  settledAt: "1970-01-01T00:00:00.000Z",
  remaining,
});

t.test("a new key: each step once, in order, the answer stored last", async (t) => {
  const { run, log, kept } = scene();
  const body = bodyOf("pay_2", "0.000005");
  const text = JSON.stringify(body);
  t.same(await run(), { statusCode: 200, body, text, replayed: false });
  t.same(log, [...PAID, "keep"]);
  t.same(kept, [{ statusCode: 200, response: body }]);
});

t.test("without a key nothing is looked up or stored", async (t) => {
  const paid = scene({ key: { statusCode: 200, response: { old: true } } });
  t.match(await paid.run(null), { body: { success: true }, replayed: false });
  t.same(paid.log, PAID);
});

t.test("a stored answer is returned before anything else is read", async (t) => {
  const success = scene({ key: { statusCode: 200, response: { txHash: HASH } } });
  const text = `{"txHash":"${HASH}"}`;
  t.same(await success.run(), { statusCode: 200, body: { txHash: HASH }, text, replayed: true });
  t.same(success.log, [], "nothing is reserved: the chain may be down");
  const failed = scene({
    key: {
      statusCode: 502,
      response: { code: "settlement_failed", detail: "No.", extra: { reason: "r" } },
    },
  });
  await t.rejects(failed.run(), {
    code: "settlement_failed",
    message: "No.",
    extra: { reason: "r" },
    headers: { "idempotent-replayed": "true" },
  });
  t.same(failed.log, []);
});

t.test("the same key with another body is refused", async (t) => {
  const { run, log } = scene({ key: { isSameBody: false, statusCode: 200, response: {} } });
  await t.rejects(run(), { code: "idempotency_key_reused" });
  t.same(log, []);
});

t.test("the first request may still answer: come back", async (t) => {
  const running = scene({ key: {}, payment: { status: "submitted" } });
  await t.rejects(running.run(), {
    code: "idempotency_in_progress",
    extra: { paymentId: "pay_1" },
    headers: { "retry-after": "1" },
  });
  t.same(running.log, [], "nothing is released, signed or paid");
  await t.rejects(scene({ key: {} }).run(), { code: "idempotency_in_progress" }, "not visible yet");
});

t.test("it stopped before it signed: released, and paid anew once", async (t) => {
  const { run, log } = scene({ key: {}, payment: { status: "reserved", ...OLD } });
  t.match(await run(), { replayed: false });
  t.same(log, ["void not_signed", ...PAID, "keep"]);
});

t.test("it was signed meanwhile: the next request finds it, never paid twice", async (t) => {
  const payment = { status: "reserved", ...OLD } as const;
  const { run, log } = scene({ key: {}, payment, isUnsigned: false });
  await t.rejects(run(), { code: "idempotency_in_progress" });
  t.same(log, ["void not_signed"]);
});

t.test("a later request gets what the first one stored before its answer", async (t) => {
  const payment = { status: "unknown", kind: "x402", delivered: true } as const;
  const { calls, log } = scene({ key: { response: { shown: { bytes: 5 } } }, payment });
  const begun = await calls.begin(REF, { agentId: "agt_1", longestMs: 1_000 });
  if (begun.kind !== "signed") throw new Error(begun.kind);
  t.same(begun.storedNote, { shown: { bytes: 5 } });
  await begun.call.note({ shown: new ExactJson("1.0") });
  t.same(log, ['note {"shown":1.0}']);
  const unkeyed = await calls.begin(undefined, { agentId: "agt_1", longestMs: 1_000 });
  if (unkeyed.kind === "new") await unkeyed.call.note({ shown: 1 });
  t.equal(log.length, 1, "without a key nothing is stored");
});

for (const status of ["submitted", "unknown", "settled", "voided"] as const)
  t.test(`it left a payment that is ${status}: only its outcome is awaited`, async (t) => {
    const payment = { status, amountAtomic: 1n, chainId: 1n, ...OLD };
    const { run, log } = scene({ key: {}, payment });
    t.match(await run(), { replayed: true, body: bodyOf("pay_1", "0.000007") });
    t.same(log, ["wait", "keep"]);
  });

t.test("unknown is never stored, a failure is", async (t) => {
  const unknown = scene({ outcome: { status: "pending", id: "pay_2" } });
  await t.rejects(unknown.run(), { code: "payment_status_unknown" });
  t.same(unknown.log, [...PAID, "unknown"]);
  const failed = scene({
    outcome: { status: "expired", id: "pay_2", reason: "expired", message: "Too late." },
  });
  await t.rejects(failed.run(), { code: "settlement_failed" });
  t.same(failed.log, [...PAID, "keep"]);
  t.match(failed.kept, [
    { statusCode: 502, response: { code: "settlement_failed", extra: { reason: "expired" } } },
  ]);
});

const CLAIMING: CallLimits = { agentId: "agt_1", longestMs: 1_000, longestClaimMs: 5_000 };
const newCall = async ({ calls }: Pick<ReturnType<typeof scene>, "calls">, ref = REF) => {
  const begun = await calls.begin(ref, CLAIMING);
  if (begun.kind !== "new") throw new Error(begun.kind);
  return begun.call;
};

t.test("a request that may have effects takes the key first, and is sent once", async (t) => {
  const free = scene();
  const call = await newCall(free);
  await call.claim();
  t.match(await call.finishFree({ free: true }), { body: { free: true } });
  t.same(free.log, ["claim", "keep"]);

  const taken = scene({ isTaken: true });
  await t.rejects((await newCall(taken)).claim(), { code: "idempotency_in_progress" });

  for (const [code, last] of [
    ["upstream_timeout", "keep"],
    ["url_blocked", "release key"],
  ] as const) {
    const failed = scene();
    const claimed = await newCall(failed);
    await claimed.claim();
    await claimed.failClaimed(new ApiError(code), (error) => error.code === "upstream_timeout");
    t.same(failed.log, ["claim", last], code);
  }
  const broken = scene();
  const unexpected = await newCall(broken);
  await unexpected.claim();
  await unexpected.failClaimed(new Error("bug"), () => true);
  t.same(broken.log, ["claim"], "how far it came is unknown: the key stays claimed");

  const paying = scene();
  const released = await newCall(paying);
  await released.claim();
  await released.unclaim();
  await released.failClaimed(new ApiError("upstream_timeout"), () => true);
  t.same(paying.log, ["claim", "release key"], "a later failure does not touch the key");
});

t.test("a claim without an answer: in progress, then lost, and never sent again", async (t) => {
  const running = scene({ key: { paymentId: null, ageSeconds: 4 } });
  await t.rejects(running.calls.begin(REF, CLAIMING), { code: "idempotency_in_progress" });
  const dead = scene({ key: { paymentId: null, ageSeconds: 6 } });
  await t.rejects(dead.calls.begin(REF, CLAIMING), {
    code: "answer_not_kept",
    extra: { paid: false },
  });
  t.same(dead.log, []);
});

t.test("it stopped where nothing was to be paid: the key is free again", async (t) => {
  const { run, log } = scene({ key: { paymentId: null, ageSeconds: 100 } });
  t.match(await run(), { body: { success: true }, replayed: false });
  t.same(log, ["release key", ...PAID, "keep"]);
});

t.test("a free response is stored by the request that took the key", async (t) => {
  const digest = { status: 200, bytes: 2, sha256: "ab" };
  const mine = scene();
  t.match(await (await newCall(mine)).finishFree({ free: true }, digest), { body: { free: true } });
  t.same(mine.log, ["insert", "keep"]);
  t.same(mine.kept, [{ statusCode: 200, response: { freeAnswer: digest } }]);
  const other = scene({ isTaken: true });
  t.match(await (await newCall(other)).finishFree({ free: true }), { body: { free: true } });
  t.same(other.log, ["insert"], "the other request's answer is not overwritten");
  const later = scene({
    key: { paymentId: null, statusCode: 200, response: { freeAnswer: digest } },
  });
  t.same(await later.calls.begin(REF, CLAIMING), { kind: "free", freeResponse: digest });
});

t.test("a reservation that was refused", async (t) => {
  const denied = new ApiError("daily_limit_exceeded");
  const cases: [NotReserved, { code: ErrorCode }][] = [
    [{ kind: "denied", error: denied }, { code: "daily_limit_exceeded" }],
    [{ kind: "in_progress", paymentId: "pay_3" }, { code: "idempotency_in_progress" }],
    [{ kind: "key_reused" }, { code: "idempotency_key_reused" }],
    [{ kind: "canceled" }, { code: "call_canceled" }],
  ];
  for (const [reservation, error] of cases) {
    const { run, log } = scene({ reservation });
    await t.rejects(run(), error);
    t.same(log, ["reserve"], `${reservation.kind}: nothing signed, nothing kept`);
  }
  const asked = scene({ reservation: { kind: "approval_requested", body: { approvalId: "a" } } });
  t.match(await asked.run(), { statusCode: 202, body: { approvalId: "a" }, replayed: false });
  t.same(asked.log, ["reserve"]);
  const text = '{"b": 1e400, "a": 1.0}';
  const replay = scene({
    reservation: { kind: "replay", statusCode: 200, response: text, paymentId: null },
  });
  t.match(await replay.run(), {
    statusCode: 200,
    body: { a: { text: "1.0" } },
    text,
    replayed: true,
  });
});

t.test("a canceled call reserves nothing, and signs nothing", async (t) => {
  const before = scene();
  await t.rejects(before.run({ ...REF, isCanceled: () => true }), { code: "call_canceled" });
  t.same(before.log, []);
  let looks = 0;
  const during = scene();
  const isCanceled = (): boolean => (looks += 1) > 1;
  await t.rejects(during.run({ ...REF, isCanceled }), { code: "call_canceled" });
  t.same(during.log, ["reserve", "(reserved)", "void not_signed"]);
});

t.test("signing fails: the budget is released at once", async (t) => {
  const broken = scene({ steps: { sign: () => Promise.reject(new Error("no key")) } });
  await t.rejects(broken.run(), { message: "no key" });
  t.same(broken.log, ["reserve", "(reserved)", "void not_signed"]);
});

t.test("the sweep released it first: nothing to release, and nothing was paid", async (t) => {
  const swept = scene({ steps: { accept: () => Promise.reject(new Error("gone")) } });
  await t.rejects(swept.run(), { code: "service_unavailable" });
  t.same(swept.log, ["reserve", "(reserved)", "sign", "(signed)"]);
});

t.test("the database's answer is lost: the payment's row decides", async (t) => {
  const steps = { accept: () => Promise.reject(new Error("connection lost")) };
  const lost = (status: PaymentRow["status"]) =>
    scene({ steps, isUnsigned: false, payment: { status } });
  t.match(await lost("submitted").run(null), { body: { success: true } });
  await t.rejects(lost("reserved").run(null), { code: "payment_status_unknown" });
  await t.rejects(lost("voided").run(null), { code: "service_unavailable" }, "by somebody else");
  await t.rejects(scene({ steps }).run(null), { message: "connection lost" }, "released");
});

t.test("an authorization that exists already is never awaited", async (t) => {
  const { run, log } = scene({ steps: { accept: async () => ({ created: false }) } });
  await t.rejects(run(), /exists already/);
  t.notOk(log.includes("wait"));
  // Its reservation was released meanwhile, and the permit paid for another request: their authorizations are the same.
  const late = scene({
    steps: { accept: async () => ({ created: false }) },
    isUnsigned: false,
    payment: { status: "voided" },
  });
  await t.rejects(late.run(), { code: "service_unavailable" });
});

t.test("a payment relayed by our engine returns its proof", async (t) => {
  const resultFor = (outcome: SettlementOutcome): PaymentResult =>
    resultOf("pay_1", outcome, ({ txHash }) => ({ txHash }));
  t.same(resultFor(SETTLED), { kind: "done", body: { txHash: HASH } });
  t.match(resultFor({ status: "pending", id: "pay_1", txHash: HASH }), {
    kind: "unknown",
    error: { code: "payment_status_unknown", extra: { paymentId: "pay_1", txHash: HASH } },
  });
  for (const status of ["failed", "expired"] as const)
    t.match(resultFor({ status, id: "pay_1", reason: "expired", message: "Too late." }), {
      kind: "failed",
      error: {
        code: "settlement_failed",
        message: /Too late\. The budget is free again\./,
        extra: { txHash: null, reason: "expired" },
      },
    });
});

t.test("when an earlier request counts as over", async (t) => {
  const longestMs = longestRelayedMs(SETTLE_WAIT_MS);
  const spent = { kind: "spend", delivered: null } as const;
  for (const status of ["reserved", "submitted"] as const) {
    t.notOk(hasEnded({ ...spent, status, ageSeconds: 16 }, longestMs), `${status}: may still run`);
    t.ok(hasEnded({ ...spent, status, ageSeconds: 16.1 }, longestMs), `${status}: too long ago`);
  }
  for (const status of ["settled", "voided", "unknown"] as const)
    t.ok(hasEnded({ ...spent, status, ageSeconds: 0 }, longestMs), status);
  const fetched = { kind: "x402", status: "settled", ageSeconds: 0 } as const;
  t.notOk(hasEnded({ ...fetched, delivered: null }, longestMs), "a fetch: not recorded yet");
  t.ok(hasEnded({ ...fetched, delivered: false }, longestMs), "a fetch: recorded");
});

t.test("the sweep continues until a batch is not full", async (t) => {
  const batches = [200, 200, 3];
  let at = 0;
  const { steps, log } = scene({
    steps: {
      payments: {
        find: async () => undefined,
        voidUnsigned: async ({ paymentId }) => paymentId !== "pay_0",
        staleReservations: async () =>
          Array.from({ length: batches[at++] ?? 0 }, (_, index) => ({
            agentId: "agt_1",
            paymentId: `pay_${index}`,
          })),
      },
    },
  });
  t.equal(
    await steps.sweepUnsigned({ olderThanSeconds: 60 }),
    400,
    "one of each batch was signed meanwhile",
  );
  t.same(log, []);
});
