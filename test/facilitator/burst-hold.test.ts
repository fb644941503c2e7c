// Goal: a payment alone waits for nobody; those of a burst are checked together and go on together, and none waits for long.
import { setImmediate as turn, setTimeout as sleep } from "node:timers/promises";
import t from "tap";
import { BurstHold } from "../../server/plugins/facilitator/admission.ts";
import { until } from "../helpers/until.ts";

const BURST = 60;
const MAX_HOLD_MS = 400;

/** As the settler takes a payment through; tells when it was checked with how many others, and when it went on. */
async function pass(hold: BurstHold, check: () => Promise<void>, passed: string[]): Promise<void> {
  await hold.enter();
  await hold.during(check);
  passed.push("checked");
  await hold.quiet();
  passed.push("on");
}

t.test("alone, and with a few others now and then", async (t) => {
  const hold = new BurstHold(MAX_HOLD_MS);
  for (let time = 0; time < 5; time += 1) {
    t.equal(hold.enter(), undefined, "it does not even wait for a turn of the loop");
    await hold.during(async () => undefined);
    const isFirst = Promise.race([hold.quiet().then(() => true), turn().then(() => false)]);
    t.equal(await isFirst, true, "nor when it was checked");
    await sleep(20);
  }
});

/** How many groups a burst was checked in, and in what waves it went on. */
async function burst(): Promise<{ groups: number; waves: number[] }> {
  const hold = new BurstHold(MAX_HOLD_MS);
  let groups = 0;
  let shared: Promise<void> | undefined;
  // Whoever asks in one turn of the loop shares the answer, as questions to the chain do.
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
  const waves = passed
    .join()
    .split("checked")
    .map((wave) => wave.split("on").length - 1);
  return { groups, waves: waves.filter((size) => size > 0) };
}

t.test("a burst is checked in few groups, and most of it goes on together", async (t) => {
  // A machine that does something else for a moment splits it: not every time.
  const bursts = [];
  for (let time = 0; time < 5; time += 1) bursts.push(await burst());
  const groups = bursts.map((one) => one.groups);
  t.ok(Math.min(...groups) < BURST / 6, `${groups.join()} groups`);
  // The first are not a burst yet.
  const largest = bursts.map(({ waves }) => Math.max(...waves));
  t.ok(Math.max(...largest) > BURST / 2, bursts.map(({ waves }) => waves.join()).join("; "));
});

t.test("whoever is checked does not wait until nobody comes any more", async (t) => {
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
  t.pass("it went on while others came");
});

t.test("nor for one whose check never ends", async (t) => {
  const hold = new BurstHold(50);
  void hold.during(() => new Promise<void>(() => undefined));
  await hold.quiet();
  t.pass("it went on");
});
