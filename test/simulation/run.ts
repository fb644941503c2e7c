// `npm run simulate`: plays worlds by their seeds.
//
//   npm run simulate -- --seeds 1000            the seeds 1 to 1000; prints those that break a rule
//   npm run simulate -- --seeds 1000 --from 500 from another seed on
//   npm run simulate -- --seed 17               one seed, step by step
//   npm run simulate -- --seed 17 --without 2,5 the same without these items of its plan
//   npm run simulate -- --only seller,crash     other worlds, with these kinds of actors and faults only
//   npm run simulate -- --seeds 100 --list      a line for each seed
//   npm run simulate -- --plant NAME            with a known past defect in the service
import { parseArgs } from "node:util";
import { withSimulation, type Simulation } from "./simulation.ts";
import type { Report } from "./worker.ts";

const { values } = parseArgs({
  options: {
    seeds: { type: "string", default: "100" },
    from: { type: "string", default: "1" },
    seed: { type: "string" },
    without: { type: "string" },
    only: { type: "string" },
    plant: { type: "string" },
    workers: { type: "string" },
    brief: { type: "boolean", default: false },
    list: { type: "boolean", default: false },
  },
});

process.exitCode = await withSimulation(
  {
    ...(values.plant !== undefined && { plant: values.plant }),
    workers: values.seed === undefined ? Number(values.workers ?? 2) : 1,
  },
  (simulation) =>
    values.seed === undefined ? many(simulation) : one(simulation, Number(values.seed)),
);

function namesIn(list: string | undefined): string[] {
  return (list ?? "").split(",").filter(Boolean);
}

async function one(simulation: Simulation, seed: number): Promise<number> {
  const without = namesIn(values.without).map(Number);
  const report = await simulation.play({
    seed,
    without,
    only: namesIn(values.only),
    isTraced: !values.brief,
  });
  for (const line of report.trace) console.log(line);
  for (const line of report.logs) console.log(line);
  show(report);
  return report.broken.length > 0 ? 1 : 0;
}

async function many(simulation: Simulation): Promise<number> {
  const count = Number(values.seeds);
  const from = Number(values.from);
  const begunMs = performance.now();
  let failed = 0;
  let played = 0;
  let cpuMs = 0;
  let first: number | undefined;
  await simulation.playAll(
    Array.from({ length: count }, (_, index) => ({
      seed: from + index,
      only: namesIn(values.only),
    })),
    (report) => {
      played += 1;
      cpuMs += report.cpuMs;
      if (values.list && report.broken.length === 0) show(report);
      if (report.broken.length === 0) return true;
      failed += 1;
      first ??= report.seed;
      show(report);
      // With a planted defect one is enough.
      return values.plant === undefined && failed < 20;
    },
  );
  const seconds = (performance.now() - begunMs) / 1_000;
  console.log(
    `${played} worlds in ${seconds.toFixed(1)} s (${((1_000 * seconds) / played).toFixed(0)} ms each, ${(cpuMs / played).toFixed(0)} ms of CPU beside Postgres), ${failed} broken`,
  );
  if (values.plant !== undefined)
    console.log(
      first === undefined
        ? `${values.plant}: not found`
        : `${values.plant}: found by seed ${first}`,
    );
  return failed > 0 ? 1 : 0;
}

function show({ seed, broken, actors, faults, virtualMs, events, cpuMs }: Report): void {
  console.log(
    `seed ${seed}: ${broken.length === 0 ? "holds" : "BROKEN"} (${[...actors, ...faults].join(", ")}; ${events} events in ${(virtualMs / 1_000).toFixed(0)} s, ${cpuMs.toFixed(0)} ms of CPU)`,
  );
  for (const text of broken) console.log(`  ${text}`);
  if (broken.length > 0) console.log(`  see it: npm run simulate -- --seed ${seed}`);
}
