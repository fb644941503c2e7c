// Goal: every planted defect is found by the worlds of its first thousand seeds, so the simulation would find others like it.
// Tier: full (thousands of worlds, half an hour).
// Limit: 240 minutes.
// Own process (it starts a Postgres and Node processes of its own).
import t from "tap";
import { DEFECTS } from "./planted/index.ts";
import { searchFor } from "./planted/search.ts";
import { withSimulations } from "./simulation.ts";

const orders = Array.from({ length: 1_000 }, (_, index) => ({ seed: index + 1 }));
const WORKERS = 2;

await withSimulations(WORKERS, async (make) => {
  const present = await make();
  for (const { name, story } of DEFECTS)
    await t.test(name, async (t) => {
      const found = await searchFor(name, { make, present, orders });
      t.ok(found, story);
      if (found) t.comment(`seed ${found.seed}: ${found.broken[0]}`);
    });
});
