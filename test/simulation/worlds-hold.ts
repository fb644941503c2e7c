// Plays the worlds of some seeds: no rule may be broken in them.
import type { Test } from "tap";
import type { Simulation } from "./simulation.ts";
import type { Report } from "./worker.ts";

/** More of them have the same cause. */
const MOST_BROKEN = 5;

const textOf = ({ seed, broken }: Report): string =>
  `${broken.join("\n")}\nsee it: npm run simulate -- --seed ${seed}`;

export async function expectWorldsHold(
  t: Test,
  simulation: Simulation,
  { from, count }: { from: number; count: number },
): Promise<void> {
  const broken: Report[] = [];
  const kinds = new Set<string>();
  await simulation.playAll(
    Array.from({ length: count }, (_, index) => ({ seed: from + index })),
    (report) => {
      for (const { kind } of [...report.plan.actors, ...report.plan.faults]) kinds.add(kind);
      if (report.broken.length > 0) broken.push(report);
      return broken.length < MOST_BROKEN;
    },
  );
  t.same(broken.map(textOf), []);
  t.ok(kinds.size > 20, "they have actors and faults of many kinds");
}
