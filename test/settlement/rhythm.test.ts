// Goal: when the next blocks are due is known from few of them, though the first ones are seen late by what they are learned in.
import t from "tap";
import { BlockSchedule } from "../../server/infra/chain/block-schedule.ts";

const SAID_MS = 1_000;
/** How late each block was seen, and how long before that it may have been there: in long steps at first, then in short ones. */
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
/** Sooner than its moment by more, and a block is asked for once more in vain. */
const TOO_SOON_MS = 25;

function heard(blockMs: number, sights: readonly { seenAfterMs: number; lateMs: number }[]) {
  const rhythm = new BlockSchedule(SAID_MS);
  sights.forEach(({ seenAfterMs, lateMs }, at) =>
    rhythm.observe(BigInt(at), at * blockMs + seenAfterMs, lateMs),
  );
  return rhythm;
}

/** How long after it came each of the next blocks is held to be due. */
function offs(rhythm: BlockSchedule, blockMs: number, from: number) {
  return [from, from + 1, from + 4].map((at) => (rhythm.dueOf(BigInt(at)) ?? NaN) - at * blockMs);
}

t.test("blocks that come as they are said to, from three seen late", async (t) => {
  for (const off of offs(heard(SAID_MS, LEARNED), SAID_MS, LEARNED.length))
    t.ok(Math.abs(off) < TOO_SOON_MS, `${String(off)} ms off`);
});

t.test("blocks that come slower, or faster, than they are said to", async (t) => {
  const sights = [...LEARNED, ...SHARP];
  for (const blockMs of [940, 1_070])
    for (const off of offs(heard(blockMs, sights), blockMs, sights.length))
      t.ok(Math.abs(off) < TOO_SOON_MS, `${String(blockMs)} ms: ${String(off)} ms off`);
});

t.test("blocks that come at any time have none", async (t) => {
  const rhythm = new BlockSchedule(SAID_MS);
  for (const [at, ms] of [0, 900, 1_100, 3_400, 3_500].entries())
    rhythm.observe(BigInt(at), ms, 25);
  t.equal(rhythm.dueOf(6n), undefined);
  t.equal(rhythm.intervalMs, undefined);
});

t.test("one that comes late moves none of those after it", async (t) => {
  const LATE_MS = 130;
  for (const blockMs of [SAID_MS, 940, 1_070])
    for (const late of [4, 7, 11]) {
      const sights = [...LEARNED, ...SHARP, ...SHARP, ...SHARP].map(
        ({ seenAfterMs, lateMs }, at) => ({
          seenAfterMs: at === late ? LATE_MS + seenAfterMs : seenAfterMs,
          lateMs,
        }),
      );
      const rhythm = heard(blockMs, sights.slice(0, Math.max(late + 1, 6)));
      for (const off of offs(rhythm, blockMs, Math.max(late + 1, 6)))
        t.ok(
          Math.abs(off) < TOO_SOON_MS,
          `${String(blockMs)} ms, the ${String(late)}th late: ${String(off)} ms off`,
        );
    }
});

t.test("a chain that keeps other moments from some block on", async (t) => {
  const MOVED_MS = 130;
  for (const blockMs of [SAID_MS, 940, 1_070]) {
    const before = [...LEARNED, ...SHARP, ...SHARP, ...SHARP, ...SHARP];
    const after = SHARP.map((sight) => ({
      ...sight,
      seenAfterMs: MOVED_MS + sight.seenAfterMs,
    }));
    const rhythm = heard(blockMs, [...before, ...after]);
    for (const off of offs(rhythm, blockMs, before.length + after.length))
      t.ok(
        Math.abs(off - MOVED_MS) < TOO_SOON_MS,
        `${String(blockMs)} ms: ${String(off - MOVED_MS)} ms off`,
      );
  }
});
