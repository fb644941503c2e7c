// Goal: a call without a key joins the earlier one exactly as long as that one's response was not delivered before this call came.
import { EventEmitter } from "node:events";
import t from "tap";
import {
  INTERMEDIARY,
  arrivalMs,
  LostResponses,
  type Intermediary,
} from "../../server/plugins/payments/lost-responses.ts";
import { hashBody, type IdempotencyRef } from "../../server/plugins/guardrails/types.ts";

const ROUTE = "POST /api/agents/spend";
const BODY = { recipient: "0x1", amount: "1" };
type Args = Parameters<LostResponses["refFor"]>[0];

/** The service at a time that the test sets. `earlier`: the newest call that an identical call could join. */
function scene() {
  const clock = { ms: 1_000_000 };
  const earlier: { key?: string; deliveredAgoMs?: number | null } = {};
  const approval = { key: "approval-1", isKnown: false };
  const marks: { keys: string[]; agoMs: number[]; routes: string[]; subjects: string[] }[] = [];
  const canceled: unknown[] = [];
  const warned: unknown[] = [];
  const asked: unknown[] = [];
  /** What the database does with a mark; by default it stores it. */
  const store = { mark: async () => undefined as unknown };
  const query = async (
    statement: string | { name: string; values: unknown[] },
    values: unknown[],
  ) => {
    if (typeof statement === "string") {
      canceled.push(values);
      return { rows: [] };
    }
    if (statement.name === "calls-delivered") {
      const [subjects, routes, keys, agoMs] = statement.values as [
        string[],
        string[],
        string[],
        number[],
      ];
      marks.push({ subjects, routes, keys, agoMs });
      await store.mark();
      return { rows: [] };
    }
    asked.push(statement.values);
    return { rows: earlier.key === undefined ? [] : [{ deliveredAgoMs: null, ...earlier }] };
  };
  const lost = new LostResponses({
    pool: { query } as never,
    approvals: { keyFor: async () => approval },
    warn: (error) => void warned.push(error),
    nowMs: () => clock.ms,
  });
  const connection = Object.assign(new EventEmitter(), { destroyed: false });
  const headers: Record<string, string> = {};
  const reply = { elapsedTime: 40, raw: connection, request: { headers } };
  const refFor = async (body: object = BODY): Promise<IdempotencyRef | undefined> =>
    lost.refFor({ subjectId: "agt_1", route: ROUTE, body, reply } as unknown as Args);
  const refOf = async (body?: object) => {
    const ref = await refFor(body);
    if (!ref) throw new Error("a call that pays has a key");
    return ref;
  };
  const state = { clock, earlier, approval, marks, canceled, warned, asked, store };
  return { ...state, lost, connection, headers, refFor, refOf };
}

/** An MCP client's call, which reaches the API through the MCP server of this process. */
function between() {
  const client = { isGone: false };
  const mcp: Intermediary = {
    call: "call-1",
    cameAtMs: 999_000,
    isGone: () => client.isGone,
    isCanceled: () => true,
    whenSent: () => undefined,
  };
  return { client, mcp };
}

t.test(
  "when a call came is right although the process pauses while it reads the clock",
  async (t) => {
    const cameAtMs = 1_000;
    const at = (pausesMs: number[]) => {
      let ms = cameAtMs + 40;
      const reply = {
        get elapsedTime() {
          ms += pausesMs.shift() ?? 0;
          return ms - cameAtMs;
        },
      };
      return arrivalMs(reply, () => ms);
    };
    t.equal(at([]), cameAtMs);
    t.equal(at([5]), cameAtMs, "a pause");
    t.equal(at([5, 7]), cameAtMs, "two pauses");
    t.equal(at([5, 7, 9]), cameAtMs - 9, "after three it may seem earlier, which never pays twice");
  },
);

t.test("a call that may pay gets a key of its own, by its time on the connection", async (t) => {
  const { connection, refOf, refFor } = scene();
  const ref = await refOf();
  t.match(ref, { subjectId: "agt_1", route: ROUTE, key: /^auto-[0-9a-f-]{36}$/ });
  t.same(ref.bodyHash, hashBody(ROUTE, BODY));
  t.equal(ref.joins?.cameAtMs, 999_960, "when its first byte came, not when it is handled");
  t.not((await refOf()).key, ref.key);
  t.same(
    (await refOf({ ...BODY, reason: "for fun", requestApproval: false, dryRun: false })).bodyHash,
    ref.bodyHash,
    "fields besides the payment make no difference",
  );
  t.equal(ref.isGone?.(), false);
  connection.destroyed = true;
  t.equal(ref.isGone?.(), true);
  t.equal(ref.call, undefined, "it cannot be canceled");
  t.equal(await refFor({ ...BODY, dryRun: true }), undefined, "a dry run pays nothing");
});

t.test("a call that asks for approval", async (t) => {
  const asking = { ...BODY, requestApproval: true };
  const opened = scene();
  t.match(await opened.refOf(asking), { key: "approval-1", joins: {} }, "a new request");
  t.same(opened.asked, [], "no earlier call is looked for");
  const known = scene();
  known.approval.isKnown = true;
  const ref = await known.refOf(asking);
  t.equal(ref.key, "approval-1", "the repeat of a request that is known");
  t.equal(ref.joins, undefined, "is an ordinary call with that key");
  t.same(known.asked, [["agt_1", ROUTE, Buffer.from(hashBody(ROUTE, BODY))]]);
  t.equal(known.connection.listenerCount("finish"), 0);
  known.earlier.key = "auto-0";
  const paid = await known.refOf(asking);
  t.match(paid.key, /^auto-/, "paid before without it, and that response is not delivered");
  t.ok(paid.joins);
  const plain = scene();
  plain.approval.isKnown = true;
  t.match(await plain.refOf(), { key: /^auto-/, joins: {} }, "one that does not ask");
});

t.test("a call through the MCP server is its client's call", async (t) => {
  const { lost, headers, connection, refOf } = scene();
  const { client, mcp } = between();
  lost.intermediaries.set("secret", mcp);
  t.equal((await refOf()).call, undefined, "not named by the request");
  headers[INTERMEDIARY] = "secret";
  t.equal(lost.intermediaryOf({ headers }), mcp);
  const listening = connection.listenerCount("finish");
  const ref = await refOf();
  t.match(ref, { call: "call-1", joins: { cameAtMs: 999_000 } });
  t.equal(ref.isCanceled?.(), true);
  t.equal(mcp.ref, ref, "delivered with the MCP server's own response");
  t.equal(connection.listenerCount("finish"), listening, "not with the inner one");
  t.equal(ref.isGone?.(), false);
  client.isGone = true;
  t.equal(ref.isGone?.(), true);
});

t.test("which earlier call is joined", async (t) => {
  const { clock, earlier, lost, refOf } = scene();
  const ref = await refOf();
  let isGone = false;
  const joined = async (cameAtMs: number) => {
    const joins: NonNullable<IdempotencyRef["joins"]> = { cameAtMs };
    const key = await lost.earlierCall({ ...ref, isGone: () => isGone }, joins);
    return { key, deliveredKey: joins.deliveredKey };
  };
  t.same(await joined(clock.ms), { key: undefined, deliveredKey: undefined }, "there is none");
  earlier.key = "auto-0";
  t.same(await joined(clock.ms), { key: "auto-0", deliveredKey: undefined }, "not delivered");
  // Another process delivered it, at the latest 20 ms before its mark.
  earlier.deliveredAgoMs = 100;
  const delivered = { key: undefined, deliveredKey: "auto-0" };
  t.same(await joined(clock.ms - 120), delivered, "delivered before this call came");
  t.same(await joined(clock.ms - 121), { key: "auto-0", deliveredKey: undefined }, "after it came");
  isGone = true;
  const late = { key: "auto-0", deliveredKey: undefined };
  t.same(await joined(clock.ms), late, "a client that has left may have repeated it elsewhere");
});

/** A call that was answered under its own key. */
async function answered(made: ReturnType<typeof scene>, body?: object): Promise<IdempotencyRef> {
  const ref = await made.refOf(body);
  if (ref.joins) ref.joins.answeredBy = ref.key;
  return ref;
}

t.test("this process knows its own deliveries by its own clock", async (t) => {
  const made = scene();
  const { clock, connection, earlier, lost, marks } = made;
  const ref = await answered(made);
  t.equal(marks.length, 0);
  connection.emit("finish");
  clock.ms += 7;
  await lost.end();
  t.same(marks, [{ subjects: ["agt_1"], routes: [ROUTE], keys: [ref.key], agoMs: [7] }]);
  earlier.key = ref.key;
  earlier.deliveredAgoMs = 5_000;
  clock.ms += 3_000;
  const joins = (cameAtMs: number) => ({ cameAtMs });
  t.equal(await lost.earlierCall(ref, joins(999_999)), ref.key, "it came before the last byte");
  t.equal(await lost.earlierCall(ref, joins(1_000_000)), undefined, "it came with the last byte");
});

t.test("an error, or a response that is not kept, is no delivery", async (t) => {
  const made = scene();
  const ref = await made.refOf();
  made.connection.emit("finish");
  made.lost.noteDelivered({ ...ref, joins: undefined });
  await made.lost.end();
  t.same(made.marks, []);
});

t.test("a mark that is being stored while the row is read", async (t) => {
  const made = scene();
  const { clock, earlier, lost, store, asked } = made;
  const ref = await answered(made);
  let stored: () => void = () => undefined;
  store.mark = () => new Promise<undefined>((resolve) => (stored = () => resolve(undefined)));
  lost.noteDelivered(ref);
  earlier.key = ref.key;
  const joins = { cameAtMs: clock.ms + 1 };
  await new Promise((resolve) => setImmediate(resolve));
  const looking = lost.earlierCall(ref, joins);
  await new Promise((resolve) => setImmediate(resolve));
  t.equal(asked.length, 1, "it waits for the mark");
  earlier.deliveredAgoMs = 0;
  stored();
  t.equal(await looking, undefined, "and looks again");
  t.equal(asked.length, 2);
});

t.test("a mark that was stored in the instant in which the row is read", async (t) => {
  const made = scene();
  const { clock, earlier, lost, asked } = made;
  const ref = await answered(made);
  lost.noteDelivered(ref);
  await lost.end();
  earlier.key = ref.key;
  Object.defineProperty(earlier, "deliveredAgoMs", {
    enumerable: true,
    get: () => (asked.length === 1 ? null : 0),
  });
  const joins = { cameAtMs: clock.ms + 1 };
  t.equal(await lost.earlierCall(ref, joins), undefined, "the row is from before: it looks again");
});

t.test("a mark that could not be stored: the call is joined, and it is logged", async (t) => {
  const made = scene();
  const { clock, earlier, lost, store, asked, warned } = made;
  const ref = await answered(made);
  store.mark = () => Promise.reject(new Error("read-only"));
  lost.noteDelivered(ref);
  await lost.end();
  t.match(warned, [{ message: "read-only" }]);
  earlier.key = ref.key;
  clock.ms += 1;
  t.equal(await lost.earlierCall(ref, { cameAtMs: clock.ms }), ref.key);
  t.equal(asked.length, 1);
});

t.test(
  "a call that can be canceled is marked under the same lock as its cancellation",
  async (t) => {
    const made = scene();
    const { lost, marks, canceled } = made;
    const ref = { ...(await answered(made)), call: "call-1" };
    lost.noteDelivered(ref);
    await lost.end();
    t.same(canceled, [["agt_1", ROUTE, ref.key, "call-1", 0]]);
    t.same(marks, []);
  },
);

t.test("deliveries of the last minute are remembered", async (t) => {
  const made = scene();
  const { clock, earlier, lost } = made;
  const isKnown = async (ref: IdempotencyRef): Promise<boolean> => {
    // Only this process knows that the response was delivered after the call came.
    earlier.key = ref.key;
    earlier.deliveredAgoMs = 10_000_000;
    return (await lost.earlierCall(ref, { cameAtMs: 0 })) !== undefined;
  };
  const refs = [];
  for (const afterMs of [0, 1, 59_999]) {
    clock.ms += afterMs;
    const ref = await answered(made);
    refs.push(ref);
    lost.noteDelivered(ref);
  }
  await lost.end();
  t.same(await Promise.all(refs.map(isKnown)), [false, true, true], "the first is a minute old");
});
