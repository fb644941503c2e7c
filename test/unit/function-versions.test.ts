// Goal: no payment is accepted while the database's functions are older than this build, and two builds do not keep replacing each other's functions.
import t from "tap";
import type { InstalledFunctions } from "../../server/infra/db/functions.ts";
import { FunctionsWatch } from "../../server/infra/functions.ts";

function watch() {
  const world = { installed: "own" as InstalledFunctions, nowMs: 0, canInstall: true };
  const installs: number[] = [];
  const watched = new FunctionsWatch({
    read: async () => world.installed,
    reinstall: async () => {
      installs.push(world.nowMs);
      if (world.canInstall) world.installed = "own";
      return ["purser_emit"];
    },
    nowMs: () => world.nowMs,
    onReinstalled: () => undefined,
  });
  return { world, installs, watched };
}

t.test("own and newer functions serve, older ones do not", async (t) => {
  const { world, watched } = watch();
  for (const installed of ["own", "newer"] as const) {
    world.installed = installed;
    await watched.check();
    t.doesNotThrow(() => watched.assertInstalled(), installed);
  }
  world.installed = "older";
  await watched.check();
  t.throws(() => watched.assertInstalled(), { code: "service_unavailable" });
});

t.test("a newer build's functions are never replaced", async (t) => {
  const { world, watched, installs } = watch();
  world.installed = "newer";
  await watched.repair();
  t.same(installs, []);
});

t.test("older functions are replaced at once, and at most once a minute", async (t) => {
  const { world, watched, installs } = watch();
  for (const nowMs of [0, 1_000, 59_000, 60_000, 61_000]) {
    world.nowMs = nowMs;
    world.installed = "older";
    await watched.repair();
    const isInstalled = installs.at(-1) === nowMs;
    t[isInstalled ? "doesNotThrow" : "throws"](() => watched.assertInstalled());
  }
  t.same(installs, [0, 60_000]);
});

t.test("payments stay refused where the functions could not be installed", async (t) => {
  const { world, watched } = watch();
  world.installed = "older";
  world.canInstall = false;
  await watched.repair();
  t.throws(() => watched.assertInstalled(), { code: "service_unavailable" });
});
