// Goal: counts that are handed over are stored once, whatever fails or overlaps; the last hand-over waits for the one before.
import { setImmediate } from "node:timers/promises";
import t from "tap";
import { Counts, type Counted } from "../../server/core/counts.ts";

type Entry = { name: string };

t.test("a hand-over waits for the one that is being stored", async (t) => {
  const counts = new Counts<Entry>();
  const stored: Counted<Entry>[][] = [];
  let release: () => void = () => undefined;
  const held = new Promise<void>((resolve) => (release = resolve));
  counts.add({ name: "a" });
  const first = counts.handOver(async (batch) => {
    await held;
    stored.push(batch);
  });
  await setImmediate();
  const last = counts.handOver(async (batch) => void stored.push(batch));
  t.equal(
    counts.handOver(async () => void t.fail("a third one is not needed")),
    last,
    "at most one waits",
  );
  let hasEnded = false;
  void last.then(() => (hasEnded = true));
  for (let turn = 0; turn < 10; turn += 1) await setImmediate();
  t.notOk(hasEnded, "the process must not end yet");
  counts.add({ name: "b" }, 2);
  release();
  await Promise.all([first, last]);
  t.same(stored, [[{ name: "a", count: 1 }], [{ name: "b", count: 2 }]]);
});

t.test("what could not be stored is in the next hand-over", async (t) => {
  const counts = new Counts<Entry>();
  counts.add({ name: "a" });
  const failing = counts.handOver(() => Promise.reject(new Error("down")));
  await t.rejects(failing, { message: "down" });
  counts.add({ name: "a" });
  const stored: Counted<Entry>[] = [];
  await counts.handOver(async (batch) => void stored.push(...batch));
  t.same(stored, [{ name: "a", count: 2 }]);
});

t.test("nothing to hand over, and more than fit", async (t) => {
  const counts = new Counts<Entry>({ most: 1 });
  await counts.handOver(async () => void t.fail("nothing was counted"));
  counts.add({ name: "a" });
  counts.add({ name: "b" });
  t.ok(counts.isFull);
  await counts.handOver(async (batch) => void t.same(batch, [{ name: "a", count: 1 }]));
});
