// Goal: the block schedule predicts the next blocks from few observations, although the first ones are late.
import t from "tap";
import { BlockSchedule } from "../../server/infra/chain/block-schedule.ts";

const CONFIGURED_MS = 1_000;
/** How long after its time each block was seen, and the uncertainty of that: long polling intervals at first, then short ones. */
const LEARNED = [
  { seenAfterMs: 88, lateMs: 101 },
  { seenAfterMs: 68, lateMs: 99 },
  { seenAfterMs: 19, lateMs: 98 },
];
const SHARP = [
  { seenAfterMs: 14, lateMs: 25 },
  { seenAfterMs: 20, lateMs: 25 },
  { seenAfterMs: 8, lateMs: 25 },
];
/** A prediction that is early by more than this costs one polling call in vain. */
const TOO_SOON_MS = 25;

function scheduleFrom(
  blockMs: number,
  observations: readonly { seenAfterMs: number; lateMs: number }[],
) {
  const schedule = new BlockSchedule(CONFIGURED_MS);
  observations.forEach(({ seenAfterMs, lateMs }, at) =>
    schedule.observe(BigInt(at), at * blockMs + seenAfterMs, lateMs),
  );
  return schedule;
}

/** The difference between prediction and real time for some of the next blocks. */
function offs(schedule: BlockSchedule, blockMs: number, from: number) {
  return [from, from + 1, from + 4].map((at) => (schedule.dueOf(BigInt(at)) ?? NaN) - at * blockMs);
}

t.test("blocks at the configured interval, from three late observations", async (t) => {
  for (const off of offs(scheduleFrom(CONFIGURED_MS, LEARNED), CONFIGURED_MS, LEARNED.length))
    t.ok(Math.abs(off) < TOO_SOON_MS, `${String(off)} ms off`);
});

t.test("blocks slower or faster than configured", async (t) => {
  const observations = [...LEARNED, ...SHARP];
  for (const blockMs of [940, 1_070])
    for (const off of offs(scheduleFrom(blockMs, observations), blockMs, observations.length))
      t.ok(Math.abs(off) < TOO_SOON_MS, `${String(blockMs)} ms: ${String(off)} ms off`);
});

t.test("irregular blocks have no schedule", async (t) => {
  const schedule = new BlockSchedule(CONFIGURED_MS);
  for (const [at, ms] of [0, 900, 1_100, 3_400, 3_500].entries())
    schedule.observe(BigInt(at), ms, 25);
  t.equal(schedule.dueOf(6n), undefined);
  t.equal(schedule.intervalMs, undefined);
});

t.test("one late block does not move the prediction of later ones", async (t) => {
  const LATE_MS = 130;
  for (const blockMs of [CONFIGURED_MS, 940, 1_070])
    for (const late of [4, 7, 11]) {
      const observations = [...LEARNED, ...SHARP, ...SHARP, ...SHARP].map(
        ({ seenAfterMs, lateMs }, at) => ({
          seenAfterMs: at === late ? LATE_MS + seenAfterMs : seenAfterMs,
          lateMs,
        }),
      );
      const schedule = scheduleFrom(blockMs, observations.slice(0, Math.max(late + 1, 6)));
      for (const off of offs(schedule, blockMs, Math.max(late + 1, 6)))
        t.ok(
          Math.abs(off) < TOO_SOON_MS,
          `${String(blockMs)} ms, the ${String(late)}th late: ${String(off)} ms off`,
        );
    }
});

t.test("a chain that shifts its schedule from some block on", async (t) => {
  const MOVED_MS = 130;
  for (const blockMs of [CONFIGURED_MS, 940, 1_070]) {
    const before = [...LEARNED, ...SHARP, ...SHARP, ...SHARP, ...SHARP];
    const after = SHARP.map((observation) => ({
      ...observation,
      seenAfterMs: MOVED_MS + observation.seenAfterMs,
    }));
    const schedule = scheduleFrom(blockMs, [...before, ...after]);
    for (const off of offs(schedule, blockMs, before.length + after.length))
      t.ok(
        Math.abs(off - MOVED_MS) < TOO_SOON_MS,
        `${String(blockMs)} ms: ${String(off - MOVED_MS)} ms off`,
      );
  }
});
