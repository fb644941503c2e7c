// Goal: a call that joins an earlier one looks until that one has ended and returns its outcome, also if its state changes between two looks.
import t from "tap";
import { Calls } from "../../server/plugins/payments/idempotency.ts";
import type { PaymentRow } from "../../server/plugins/payments/store.ts";

type Status = PaymentRow["status"];

/** Each look finds the next of these statuses. */
function scene(
  statuses: Status[],
  { isReleased = false, isGone = false, ageSeconds = 60, statusCode = null as number | null } = {},
) {
  const log: string[] = [];
  const left = [...statuses];
  const joins: { cameAtMs: number; answeredBy?: string } = { cameAtMs: 0 };
  const ref = {
    subjectId: "agt_1",
    route: "spend",
    key: "own",
    bodyHash: new Uint8Array(32),
    isGone: () => isGone,
    joins,
  };
  const calls = new Calls({
    keys: {
      find: async ({ key }) => {
        t.equal(key, "earlier");
        return {
          isSameBody: true,
          paymentId: "pay_1",
          statusCode,
          response:
            statusCode === null ? null : '{"code":"upstream_error","detail":"No.","extra":{}}',
          isLong: false,
          ageSeconds,
        };
      },
      readResponse: async () => null,
      complete: async ({ key }) => void log.push(`keep ${key}`),
      note: async () => undefined,
      insert: async () => true,
      release: async () => undefined,
    },
    payments: {
      find: async () => {
        const status = left.length > 1 ? left.shift() : left[0];
        log.push(`find ${status}`);
        return { id: "pay_1", kind: "spend", status, ageSeconds } as PaymentRow;
      },
      markUnknown: async () => void log.push("unknown"),
      voidUnsigned: async () => {
        log.push("release");
        return isReleased;
      },
    },
    earlierCall: async () => "earlier",
    sleep: async (ms) => void log.push(`pause ${ms}`),
  });
  const begin = () => calls.begin(ref, { agentId: "agt_1", longestMs: 16_000 });
  return { begin, log, joins };
}

t.test("it stopped before signing: released, and this call pays itself", async (t) => {
  const { begin, log } = scene(["reserved"], { isReleased: true });
  const begun = await begin();
  t.match(begun, { kind: "new", call: { ref: { key: "own" } } });
  t.same(log, ["find reserved", "release"]);
});

t.test("another call released it first: the next look finds that", async (t) => {
  const { begin, log } = scene(["reserved", "voided"]);
  t.match(await begin(), { kind: "new" });
  t.same(
    log,
    ["find reserved", "release", "pause 60", "find voided"],
    "its failure is not returned",
  );
});

t.test("it was signed after all: its outcome is returned, kept under its key", async (t) => {
  const { begin, log, joins } = scene(["reserved", "submitted"]);
  const begun = await begin();
  if (begun.kind !== "signed") throw new Error(begun.kind);
  const { call } = begun;
  const key = { agentId: "agt_1", paymentId: "pay_1" };
  const kept = await call.keep(key, { kind: "done", body: { paid: true } }, { isInLedger: true });
  t.match(call.answer(kept), { body: { paid: true }, replayed: true, joined: true });
  t.same(log.slice(-2), ["find submitted", "keep earlier"]);
  t.equal(joins.answeredBy, "earlier", "its delivery is recorded for the earlier call");
});

t.test("it moved nothing after all: this call pays itself", async (t) => {
  const { begin, log } = scene(["submitted", "voided"]);
  const begun = await begin();
  if (begun.kind !== "signed") throw new Error(begun.kind);
  const failed = { kind: "failed", error: new Error("no") } as never;
  t.ok(await begun.call.mustPayItself({ agentId: "agt_1", paymentId: "pay_1" }, failed));
  t.same(log, ["find submitted", "find voided"]);
});

t.test("it still runs: looks less and less often, until the client is gone", async (t) => {
  const { begin, log } = scene(["submitted", "submitted", "submitted", "settled"], {
    ageSeconds: 1,
  });
  t.match(await begin(), { kind: "signed" });
  t.same(
    log.filter((line) => line.startsWith("pause")),
    ["pause 60", "pause 90", "pause 135"],
  );
  const gone = scene(["submitted"], { ageSeconds: 1, isGone: true });
  await t.rejects(gone.begin(), { code: "idempotency_in_progress" });
  t.same(gone.log, ["find submitted"]);
});

t.test("it failed without moving anything: its stored error is not returned", async (t) => {
  t.match(await scene(["voided"], { statusCode: 502 }).begin(), { kind: "new" });
  await t.rejects(scene(["settled"], { statusCode: 502 }).begin(), {
    code: "upstream_error",
    extra: { replayed: true },
  });
});
