// Goal: a call that joins an earlier one with its key polls until that one has ended and returns its outcome, whatever happens between two polls.
import t from "tap";
import { awaitEarlierCall } from "../../server/plugins/payments/joining.ts";

const REF = { subjectId: "agt_1", route: "spend", key: "call" };
type Statuses = ("reserved" | "submitted" | "voided" | undefined)[];

/** Each poll finds the next of these statuses. */
function scene(statuses: Statuses, { isReleased = false } = {}) {
  const log: string[] = [];
  const left = [...statuses];
  const joins = { cameAtMs: 0, isGone: () => false };
  const run = () =>
    awaitEarlierCall(
      {
        idempotency: {
          currentRow: async () => ({
            paymentId: "pay_1",
            statusCode: null,
            response: null,
            isLong: false,
          }),
          responseOf: async () => null,
          replay: () => {
            throw new Error("nothing is kept");
          },
        },
        store: {
          find: async () => {
            const status = left.length > 1 ? left.shift() : left[0];
            log.push(`find ${status}`);
            return status && { id: "pay_1", status };
          },
        },
        voidAbandoned: async () => {
          log.push("release");
          return isReleased;
        },
        finish: async () => {
          log.push("tell");
          return { statusCode: 200, body: { paid: true }, replayed: true };
        },
      } as unknown as Parameters<typeof awaitEarlierCall>[0],
      {
        held: REF,
        joins,
        prepare: async () => ({
          isOver: () => true,
          resume: async () => {
            log.push("resume");
            return { kind: "done", body: { paid: true } };
          },
        }),
      } as unknown as Parameters<typeof awaitEarlierCall>[1],
    );
  return { run, log };
}

t.test("it stopped before signing: released, and no response for this call", async (t) => {
  const { run, log } = scene(["reserved"], { isReleased: true });
  t.equal(await run(), undefined);
  t.same(log, ["find reserved", "release"]);
});

t.test("another call released it first: the next poll finds that", async (t) => {
  const { run, log } = scene(["reserved", "voided"]);
  t.equal(await run(), undefined);
  t.same(log, ["find reserved", "release", "find voided"], "never resumed");
});

t.test("it was signed after all: the next poll finds it and its outcome is returned", async (t) => {
  const { run, log } = scene(["reserved", "submitted"]);
  t.match(await run(), { body: { paid: true } });
  t.match(log, ["find reserved", "release", "find submitted", "resume"]);
});

t.test("neither for a while: it pauses between two polls", async (t) => {
  const { run, log } = scene(["reserved", "reserved", "reserved", "voided"]);
  let ticks = 0;
  const counting = setInterval(() => (ticks += 1), 10);
  await run();
  clearInterval(counting);
  t.equal(log.filter((line) => line === "release").length, 3);
  t.ok(ticks > 0, "other work could run");
});
