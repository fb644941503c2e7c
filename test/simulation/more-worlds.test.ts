// Goal: in more worlds with crashes and faults no rule about money is broken.
// Tier: full (a minute or two of worlds).
// Own process (it starts a Postgres and Node processes of its own).
import { availableParallelism } from "node:os";
import t from "tap";
import { withSimulations } from "./simulation.ts";
import { expectWorldsHold } from "./worlds-hold.ts";

/** After those of `worlds.test.ts`. */
const FROM = 101;
const SEEDS = 100;

await withSimulations(Math.min(availableParallelism(), 4), async (make) => {
  const simulation = await make();
  await t.test(`${SEEDS} more worlds`, (t) =>
    expectWorldsHold(t, simulation, { from: FROM, count: SEEDS }),
  );
});
