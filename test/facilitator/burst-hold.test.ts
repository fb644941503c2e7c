// Goal: a single payment does not wait; payments of a burst are checked and continue together, and none waits for
// long.
import { setImmediate as turn, setTimeout as sleep } from "node:timers/promises";
import t from "tap";
import { BurstHold } from "../../server/plugins/facilitator/admission.ts";
import { until } from "../helpers/until.ts";

const BURST = 60;
const MAX_HOLD_MS = 400;

/** Passes a payment through like the settler, and records when it was checked and when it continued. */
async function pass(hold: BurstHold, check: () => Promise<void>, passed: string[]): Promise<void> {
  await hold.enter();
  await hold.during(check);
  passed.push("checked");
  await hold.quiet();
  passed.push("on");
}

t.test("a single payment, and a few now and then", async (t) => {
  const hold = new BurstHold(MAX_HOLD_MS);
  for (let time = 0; time < 5; time += 1) {
    t.equal(hold.enter(), undefined, "it does not wait even one turn of the event loop");
    await hold.during(async () => undefined);
    const isFirst = Promise.race([hold.quiet().then(() => true), turn().then(() => false)]);
    t.equal(await isFirst, true, "nor after its check");
    await sleep(20);
  }
});

/** The number of groups in which a burst was checked, and the sizes of the groups in which it continued. */
async function burst(): Promise<{ groups: number; continued: number[] }> {
  const hold = new BurstHold(MAX_HOLD_MS);
  let groups = 0;
  let shared: Promise<void> | undefined;
  // Checks in the same turn of the event loop share one result, as batched chain reads do.
  const check = async (): Promise<void> => {
    if (!shared) {
      groups += 1;
      shared = sleep(1).then(() => void (shared = undefined));
    }
    await shared;
  };
  const passed: string[] = [];
  const all: Promise<void>[] = [];
  for (let index = 0; index < BURST; index += 1) {
    all.push(pass(hold, check, passed));
    if (index % 3 === 0) await sleep(1);
  }
  await Promise.all(all);
  const continued = passed
    .join()
    .split("checked")
    .map((group) => group.split("on").length - 1);
  return { groups, continued: continued.filter((size) => size > 0) };
}

t.test("a burst is checked in few groups, and most of it continues together", async (t) => {
  // A busy machine may split a burst, but not every time.
  const bursts = [];
  for (let time = 0; time < 5; time += 1) bursts.push(await burst());
  const groups = bursts.map((one) => one.groups);
  t.ok(Math.min(...groups) < BURST / 6, `${groups.join()} groups`);
  // The first payments are not a burst yet.
  const largest = bursts.map(({ continued }) => Math.max(...continued));
  t.ok(
    Math.max(...largest) > BURST / 2,
    bursts.map(({ continued }) => continued.join()).join("; "),
  );
});

t.test("a checked payment continues while others keep arriving", async (t) => {
  const hold = new BurstHold(600_000);
  let came = 0;
  const coming = setInterval(() => {
    came += 1;
    void pass(hold, () => sleep(2), []);
  }, 1);
  const hasCome = (more: number): Promise<void> => {
    const from = came;
    return until(() => came >= from + more);
  };
  await hasCome(20);
  await hold.during(async () => undefined);
  await hold.quiet();
  await hasCome(1);
  clearInterval(coming);
  t.pass("it continued while others arrived");
});

t.test("a check that never ends holds up no other payment for long", async (t) => {
  const hold = new BurstHold(50);
  void hold.during(() => new Promise<void>(() => undefined));
  await hold.quiet();
  t.pass("it continued");
});
