// Goal: concurrent requests share calls: one that comes alone is sent at once, those that come while calls are in flight are sent together, and each gets its own result.
import { setImmediate } from "node:timers/promises";
import t from "tap";
import { Coalescer } from "../../server/core/shared-answers.ts";

/** The groups in which requests were sent. Each call ends when its `release` is called. */
function recorded(options: { maxBatch: number; maxInFlight: number }) {
  const groups: number[][] = [];
  const releases: (() => void)[] = [];
  const shared = new Coalescer<number, number>(async (items) => {
    groups.push(items);
    await new Promise<void>((resolve) => releases.push(resolve));
    if (items.includes(0)) throw new Error("the call failed");
    return items.map((item) => item * 10);
  }, options);
  const release = async () => {
    releases.shift()?.();
    await setImmediate();
    await setImmediate();
  };
  return { groups, shared, release };
}

t.test("requests of one turn share a call; later ones wait for a free call", async (t) => {
  const { groups, shared, release } = recorded({ maxBatch: 2, maxInFlight: 1 });
  const first = [shared.fetch(1), shared.fetch(2), shared.fetch(3)];
  await setImmediate();
  t.same(groups, [[1, 2]], "no larger than a group may be");
  const fourth = shared.fetch(4);
  await setImmediate();
  t.same(groups, [[1, 2]], "one call at a time");
  await release();
  t.same(groups, [
    [1, 2],
    [3, 4],
  ]);
  await release();
  t.same(await Promise.all([...first, fourth]), [10, 20, 30, 40]);
});

t.test("a request that comes alone is sent at once, also after a shared call", async (t) => {
  const { groups, shared, release } = recorded({ maxBatch: 10, maxInFlight: 1 });
  const both = Promise.all([shared.fetch(1), shared.fetch(2)]);
  await setImmediate();
  await release();
  t.same(await both, [10, 20]);
  const third = shared.fetch(3);
  await setImmediate();
  t.same(groups, [[1, 2], [3]]);
  await release();
  t.equal(await third, 30);
});

t.test("a call that fails fails its own requests, and no others", async (t) => {
  const { shared, release } = recorded({ maxBatch: 2, maxInFlight: 1 });
  const results = Promise.allSettled([shared.fetch(0), shared.fetch(1), shared.fetch(2)]);
  await setImmediate();
  await release();
  await release();
  t.match(await results, [
    { status: "rejected" },
    { status: "rejected" },
    { status: "fulfilled", value: 20 },
  ]);
});
