// Goal: one idempotency key makes one payment: for every state of the key the flow answers, waits, resumes or starts anew, and keeps only final answers.
import t from "tap";
import { ExactJson } from "../../server/core/exact-json.ts";
import { ApiError, type ErrorCode } from "../../server/errors.ts";
import type { IdempotencyRef } from "../../server/plugins/guardrails/types.ts";
import type { IdempotencyRow } from "../../server/plugins/payments/idempotency.ts";
import { Idempotency } from "../../server/plugins/payments/idempotency.ts";
import { PayFlow, type PayFlowDeps } from "../../server/plugins/payments/pay.ts";
import type {
  Delivered,
  PaymentPlan,
  Reservation,
} from "../../server/plugins/payments/payment-plan.ts";
import type { PaymentRow } from "../../server/plugins/payments/store.ts";
import type { SettlementOutcome } from "../../server/plugins/settlement/types.ts";

const REF: IdempotencyRef = {
  subjectId: "agt_1",
  route: "POST /pay",
  key: "k",
  bodyHash: new Uint8Array(32),
};
const HASH = `0x${"ab".repeat(32)}` as const;
const AUTHORIZATION = {
  chainId: 1,
  asset: "0x01",
  from: "0x02",
  to: "0x03",
  value: 1n,
  validAfter: 0n,
  validBefore: 9n,
  nonce: "0x04",
} as const;

interface Scene {
  /** The stored row of the key, with its response parsed. */
  key?: Partial<Omit<IdempotencyRow, "response">> & { response?: object };
  payment?: Partial<PaymentRow>;
  /** The reservation can be released, because nothing was signed. */
  isUnsigned?: boolean;
  /** Another request takes the key meanwhile. */
  isTaken?: boolean;
  reservation?: Reservation;
  delivered?: Delivered;
  outcome?: SettlementOutcome;
  deps?: Partial<PayFlowDeps>;
  plan?: Partial<PaymentPlan>;
}

/** The flow with fakes that log their calls in order. */
function scene(given: Scene = {}) {
  const log: string[] = [];
  const kept: unknown[] = [];
  const idempotency = new Idempotency({
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
    complete: async (_ref, { statusCode, response }) => {
      log.push("keep");
      kept.push({ statusCode, response: JSON.parse(response) });
    },
    note: async (_ref, recorded) => void log.push(`note ${recorded}`),
    insert: async () => {
      log.push("claim");
      return given.isTaken !== true;
    },
    release: async () => void log.push("release key"),
  });
  const flow = new PayFlow({
    idempotency,
    joining: { earlier: async () => undefined },
    settlement: {
      wait: async () => given.outcome ?? { status: "pending", id: "pay_1" },
    },
    allow: async () => undefined,
    sign: async () => {
      log.push("sign");
      return "0x05";
    },
    accept: async ({ id, kind, relay, authorization }) => {
      log.push(`submit ${kind} ${id} ${relay} ${authorization.signature}`);
      return { created: true };
    },
    isReservationGone: (error) => error instanceof Error && error.message === "gone",
    store: {
      find: async () =>
        given.payment && ({ id: "pay_1", ageSeconds: 0, ...given.payment } as PaymentRow),
      markUnknown: async () => void log.push("unknown"),
      voidUnsigned: async ({ code }) => {
        log.push(`void ${code}`);
        return given.isUnsigned ?? true;
      },
      staleReservations: async () => [],
    },
    settleWaitMs: 1_000,
    fault: async (point) => void log.push(`(${point})`),
    log: { error: () => log.push("error logged"), warn: () => undefined },
    ...given.deps,
  });
  const delivered = given.delivered ?? { kind: "done", body: { paid: true } };
  const plan: PaymentPlan = {
    agentId: "agt_1",
    kind: "spend",
    relay: true,
    reserve: async () => {
      log.push("reserve");
      return (
        given.reservation ?? {
          kind: "reserved",
          paymentId: "pay_2",
          authorization: AUTHORIZATION,
          cover: { kind: "policy" },
          deliver: async () => {
            log.push("deliver");
            return delivered;
          },
        }
      );
    },
    isOver: () => true,
    resume: async () => {
      log.push("resume");
      return delivered;
    },
    ...given.plan,
  };
  const run = (ref: IdempotencyRef | null = REF) =>
    flow.run(ref ?? undefined, async () => {
      log.push("prepare");
      return plan;
    });
  return { run, flow, log, kept };
}

const PAID = [
  "reserve",
  "(reserved)",
  "sign",
  "(signed)",
  "submit spend pay_2 true 0x05",
  "(accepted)",
  "deliver",
];
const failure = new ApiError("settlement_failed", { detail: "No.", extra: { paid: false } });

t.test("a new key: each step once, in order, the answer stored last", async (t) => {
  const { run, log, kept } = scene();
  const text = '{"paid":true}';
  t.same(await run(), { statusCode: 200, body: { paid: true }, text, replayed: false });
  t.same(log, ["prepare", ...PAID, "keep"]);
  t.same(kept, [{ statusCode: 200, response: { paid: true } }]);
});

t.test("without a key nothing is looked up or stored", async (t) => {
  const paid = scene({ key: { statusCode: 200, response: { old: true } } });
  t.match(await paid.run(null), { body: { paid: true }, replayed: false });
  t.same(paid.log, ["prepare", ...PAID]);
  const free = scene({ reservation: { kind: "free", body: { free: true } } });
  t.match(await free.run(null), { body: { free: true } });
  t.same(free.log, ["prepare", "reserve"]);
});

t.test("a stored answer is returned before anything else is read", async (t) => {
  const success = scene({ key: { statusCode: 200, response: { txHash: HASH } } });
  const text = `{"txHash":"${HASH}"}`;
  t.same(await success.run(), { statusCode: 200, body: { txHash: HASH }, text, replayed: true });
  t.same(success.log, [], "not even prepared: the chain may be down");
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
  const running = scene({
    key: {},
    payment: { status: "submitted" },
    plan: { isOver: () => false },
  });
  await t.rejects(running.run(), {
    code: "idempotency_in_progress",
    extra: { paymentId: "pay_1" },
    headers: { "retry-after": "1" },
  });
  t.same(running.log, ["prepare"], "nothing is released, signed or paid");
  await t.rejects(scene({ key: {} }).run(), { code: "idempotency_in_progress" }, "not visible yet");
});

t.test("it stopped before it signed: released, and paid anew once", async (t) => {
  const { run, log } = scene({ key: {}, payment: { status: "reserved" } });
  t.match(await run(), { replayed: false });
  t.same(log, ["prepare", "void not_signed", ...PAID, "keep"]);
});

t.test("it was signed meanwhile: the next request finds it, never paid twice", async (t) => {
  const { run, log } = scene({ key: {}, payment: { status: "reserved" }, isUnsigned: false });
  await t.rejects(run(), { code: "idempotency_in_progress" });
  t.same(log, ["prepare", "void not_signed"]);
});

t.test("a retry starts from the response that the first request recorded", async (t) => {
  const { run, flow, log } = scene({
    key: { response: { shown: { bytes: 5 } } },
    payment: { status: "unknown" },
    plan: {
      resume: async (_payment, recorded) => {
        log.push(JSON.stringify(recorded));
        return { kind: "done", body: { paid: true } };
      },
    },
  });
  await flow.note(REF, { shown: new ExactJson("1.0") });
  await flow.note(undefined, { shown: 1 });
  t.match(await run(), { replayed: true });
  t.same(log, ['note {"shown":1.0}', "prepare", '{"shown":{"bytes":5}}', "keep"]);
});

t.test("a free answer leaves its key unused", async (t) => {
  const { run, log } = scene({ reservation: { kind: "free_not_stored", body: { cached: true } } });
  t.match(await run(), { statusCode: 200, body: { cached: true }, replayed: false });
  t.same(log, ["prepare", "reserve"]);
});

for (const status of ["submitted", "unknown", "settled", "voided"] as const)
  t.test(`it left a payment that is ${status}: resumed`, async (t) => {
    const { run, log } = scene({ key: {}, payment: { status } });
    t.match(await run(), { replayed: true });
    t.same(log, ["prepare", "resume", "keep"]);
  });

t.test("it stopped where nothing was to be paid: the key is free again", async (t) => {
  const { run, log } = scene({ key: { paymentId: null } });
  await run();
  t.same(log, ["prepare", "release key", ...PAID, "keep"]);
});

t.test("unknown is never stored, a failure is; the afterwards step runs last", async (t) => {
  const unknown = new ApiError("payment_status_unknown");
  for (const [kind, error, steps] of [
    ["unknown", unknown, ["unknown", "afterwards"]],
    ["failed", failure, ["keep", "afterwards"]],
  ] as const) {
    const made = scene({
      delivered: { kind, error, afterwards: async () => void made.log.push("afterwards") },
    });
    await t.rejects(made.run(), { code: error.code });
    t.same(made.log, ["prepare", ...PAID, ...steps], kind);
  }
});

t.test("a stored failure is returned as the same error", async (t) => {
  const { run, kept } = scene({ delivered: { kind: "failed", error: failure } });
  await t.rejects(run(), failure);
  t.same(kept, [
    {
      statusCode: 502,
      response: { code: "settlement_failed", detail: "No.", extra: { paid: false } },
    },
  ]);
});

t.test("a request that may have effects takes the key first, and is sent once", async (t) => {
  const actsOn = (code: string) => ({
    isSentOnce: { mayHaveActed: (error: ApiError) => error.code === code, longestMs: 5_000 },
  });
  const free = scene({
    reservation: { kind: "free", body: { free: true } },
    plan: actsOn("upstream_timeout"),
  });
  t.match(await free.run(), { body: { free: true } });
  t.same(free.log, ["prepare", "claim", "reserve", "keep"]);
  const taken = scene({ isTaken: true, plan: actsOn("upstream_timeout") });
  await t.rejects(taken.run(), { code: "idempotency_in_progress" });
  t.same(taken.log, ["prepare", "claim"]);
  for (const [code, last] of [
    ["upstream_timeout", "keep"],
    ["url_blocked", "release key"],
  ] as const) {
    const reserve = () => Promise.reject(new ApiError(code));
    const failed = scene({ plan: { ...actsOn("upstream_timeout"), reserve } });
    await t.rejects(failed.run(), { code });
    t.same(failed.log, ["prepare", "claim", last], code);
  }
  const running = { key: { paymentId: null, ageSeconds: 4 }, plan: actsOn("") };
  await t.rejects(scene(running).run(), { code: "idempotency_in_progress" });
  const dead = scene({ ...running, key: { paymentId: null, ageSeconds: 6 } });
  await t.rejects(dead.run(), { code: "answer_not_kept", extra: { paid: false } });
  t.same(dead.log, ["prepare"], "not sent again");
  const keyless = scene({ plan: actsOn("upstream_timeout") });
  await keyless.run(null);
  t.same(keyless.log, ["prepare", ...PAID]);
});

t.test("a free response is stored by the request that took the key", async (t) => {
  const reservation = { kind: "free", body: { free: true } } as const;
  const mine = scene({ reservation });
  t.match(await mine.run(), { body: { free: true }, replayed: false });
  t.same(mine.log, ["prepare", "reserve", "claim", "keep"]);
  const other = scene({ reservation, isTaken: true });
  t.match(await other.run(), { body: { free: true } });
  t.same(
    other.log,
    ["prepare", "reserve", "claim"],
    "the other request's answer is not overwritten",
  );
});

t.test("a reservation that was refused", async (t) => {
  const denied = new ApiError("daily_limit_exceeded");
  const cases: [Reservation, { code: ErrorCode }][] = [
    [{ kind: "denied", error: denied }, { code: "daily_limit_exceeded" }],
    [{ kind: "in_progress", paymentId: "pay_3" }, { code: "idempotency_in_progress" }],
    [{ kind: "key_reused" }, { code: "idempotency_key_reused" }],
  ];
  for (const [reservation, error] of cases) {
    const { run, log } = scene({ reservation });
    await t.rejects(run(), error);
    t.same(log, ["prepare", "reserve"], `${reservation.kind}: nothing signed, nothing kept`);
  }
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

t.test("signing fails: the budget is released at once", async (t) => {
  const broken = scene({ deps: { sign: () => Promise.reject(new Error("no key")) } });
  await t.rejects(broken.run(), { message: "no key" });
  t.same(broken.log, ["prepare", "reserve", "(reserved)", "void not_signed"]);
});

t.test("the sweep released it first: nothing to release, and nothing was paid", async (t) => {
  const swept = scene({ deps: { accept: () => Promise.reject(new Error("gone")) } });
  await t.rejects(swept.run(), { code: "service_unavailable" });
  t.same(swept.log, ["prepare", "reserve", "(reserved)", "sign", "(signed)"]);
});

t.test("an authorization that exists already is never delivered", async (t) => {
  const { run, log } = scene({ deps: { accept: async () => ({ created: false }) } });
  await t.rejects(run(), /exists already/);
  t.notOk(log.includes("deliver"));
});

t.test("a payment relayed by our engine returns its proof", async (t) => {
  const settled = {
    id: "pay_1",
    txHash: HASH,
    blockNumber: 1n,
    settledAt: new Date(0),
    amountAtomic: 1n,
  };
  const resultOf = (outcome: SettlementOutcome) =>
    scene({ outcome }).flow.settled("pay_1", ({ txHash }) => ({ txHash }));
  t.same(await resultOf({ status: "settled", byOther: false, ...settled }), {
    kind: "done",
    body: { txHash: HASH },
  });
  t.match(await resultOf({ status: "pending", id: "pay_1", txHash: HASH }), {
    kind: "unknown",
    error: { code: "payment_status_unknown", extra: { paymentId: "pay_1", txHash: HASH } },
  });
  for (const status of ["failed", "expired"] as const)
    t.match(await resultOf({ status, id: "pay_1", reason: "expired", message: "Too late." }), {
      kind: "failed",
      error: {
        code: "settlement_failed",
        message: /Too late\. The budget is free again\./,
        extra: { txHash: null, reason: "expired" },
      },
    });
});

t.test("when an earlier request counts as over", async (t) => {
  const { flow } = scene();
  for (const status of ["reserved", "submitted"] as const) {
    t.equal(flow.isDecided({ status, ageSeconds: 16 }), false, `${status}, it may still run`);
    t.equal(flow.isDecided({ status, ageSeconds: 16.1 }), true, `${status}, beyond its waits`);
  }
  for (const status of ["settled", "voided", "unknown"] as const)
    t.equal(flow.isDecided({ status, ageSeconds: 0 }), true, status);
});

t.test("the sweep continues until a batch is not full", async (t) => {
  const batches = [200, 200, 3];
  let at = 0;
  const { flow, log } = scene({
    deps: {
      store: {
        find: async () => undefined,
        markUnknown: async () => undefined,
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
    await flow.sweepUnsigned({ olderThanSeconds: 60 }),
    400,
    "one of each batch was signed meanwhile",
  );
  t.same(log, []);
});
