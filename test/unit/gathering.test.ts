// Goal: concurrent requests share calls: one that comes alone does not wait, a burst is gathered, and each gets its own result.
import { setImmediate, setTimeout as sleep } from "node:timers/promises";
import t from "tap";
import { Coalescer } from "../../server/core/shared-answers.ts";

/** The groups in which requests were sent. */
function recorded(options: { maxBatch: number; maxInFlight: number; gatherMs?: number }) {
  const groups: number[][] = [];
  const shared = new Coalescer<number, number>(async (items) => {
    groups.push(items);
    return items.map((item) => item * 10);
  }, options);
  return { groups, shared };
}

t.test("a request that comes alone is sent at once, also one after another", async (t) => {
  const { groups, shared } = recorded({ maxBatch: 10, maxInFlight: 1, gatherMs: 60_000 });
  t.equal(await shared.fetch(1), 10);
  t.equal(await shared.fetch(2), 20);
  t.same(groups, [[1], [2]]);
});

t.test("after a shared call, requests are gathered; a full group does not wait", async (t) => {
  const { groups, shared } = recorded({ maxBatch: 2, maxInFlight: 1, gatherMs: 60_000 });
  t.same(await Promise.all([shared.fetch(1), shared.fetch(2)]), [10, 20]);
  const third = shared.fetch(3);
  for (let turn = 0; turn < 10; turn += 1) await setImmediate();
  t.same(groups, [[1, 2]], "it waits for others");
  t.same(await Promise.all([third, shared.fetch(4)]), [30, 40]);
  t.same(groups, [
    [1, 2],
    [3, 4],
  ]);
});

t.test("after a burst a request that comes alone does not wait", async (t) => {
  const { groups, shared } = recorded({ maxBatch: 10, maxInFlight: 1, gatherMs: 1 });
  await Promise.all([shared.fetch(1), shared.fetch(2)]);
  // Real time, longer than a burst lasts with this gathering time; a longer wait changes nothing.
  await sleep(20);
  const waiting = shared.fetch(3);
  await setImmediate();
  t.same(groups.at(-1), [3], "sent after one turn of the event loop");
  t.equal(await waiting, 30);
});

t.test("the gathering ends by itself", async (t) => {
  const { groups, shared } = recorded({ maxBatch: 10, maxInFlight: 1, gatherMs: 1 });
  await Promise.all([shared.fetch(1), shared.fetch(2)]);
  t.equal(await shared.fetch(3), 30);
  t.same(groups, [[1, 2], [3]]);
});
