// `npm run simulate`: plays worlds by their seeds.
//
//   npm run simulate -- --seeds 1000            the seeds 1 to 1000; prints those that break a rule
//   npm run simulate -- --seeds 1000 --from 500 from another seed on
//   npm run simulate -- --seed 17               one seed, step by step
//   npm run simulate -- --shrink 17             what the failure of this seed needs, as a plan to keep
//   npm run simulate -- --kept NAME             a plan of test/simulation/kept
//   npm run simulate -- --only seller,crash     other worlds, with these kinds of actors and faults only
//   npm run simulate -- --seeds 100 --list      a line for each seed
//   npm run simulate -- --plant NAME            with a known past defect in the service
import { parseArgs } from "node:util";
import { withSimulation, type Simulation } from "./simulation.ts";
import { keptPlan } from "./kept.ts";
import type { Order, Report } from "./worker.ts";

const { values } = parseArgs({
  options: {
    seeds: { type: "string", default: "100" },
    from: { type: "string", default: "1" },
    seed: { type: "string" },
    shrink: { type: "string" },
    kept: { type: "string" },
    only: { type: "string" },
    plant: { type: "string" },
    workers: { type: "string" },
    brief: { type: "boolean", default: false },
    list: { type: "boolean", default: false },
  },
});

const single = singleOrder();

process.exitCode = await withSimulation(
  {
    ...(values.plant !== undefined && { plant: values.plant }),
    workers: single ? 1 : Number(values.workers ?? 2),
  },
  (simulation) => (single ? one(simulation, single) : many(simulation)),
);

function namesIn(list: string | undefined): string[] {
  return (list ?? "").split(",").filter(Boolean);
}

function singleOrder(): Order | undefined {
  const { seed, shrink, kept } = values;
  const isTraced = !values.brief;
  if (kept !== undefined) {
    const { plan } = keptPlan(kept);
    return { seed: plan.seed, plan, isTraced };
  }
  const only = namesIn(values.only);
  if (shrink !== undefined) return { seed: Number(shrink), only, isShrunk: true };
  return seed === undefined ? undefined : { seed: Number(seed), only, isTraced };
}

async function one(simulation: Simulation, order: Order): Promise<number> {
  const report = await simulation.play(order);
  for (const line of report.trace) console.log(line);
  for (const line of report.logs) console.log(line);
  show(report);
  if (order.isShrunk) console.log(JSON.stringify({ story: "", plan: report.plan }, null, 2));
  return report.broken.length > 0 ? 1 : 0;
}

async function many(simulation: Simulation): Promise<number> {
  const count = Number(values.seeds);
  const from = Number(values.from);
  const begunMs = performance.now();
  let failed = 0;
  let played = 0;
  let cpuMs = 0;
  let statements = 0;
  let virtualMs = 0;
  let first: number | undefined;
  await simulation.playAll(
    Array.from({ length: count }, (_, index) => ({
      seed: from + index,
      only: namesIn(values.only),
    })),
    (report) => {
      played += 1;
      cpuMs += report.cpuMs;
      statements += report.statements;
      virtualMs += report.virtualMs;
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
    `${played} worlds in ${seconds.toFixed(1)} s (${((1_000 * seconds) / played).toFixed(0)} ms each, ${(cpuMs / played).toFixed(0)} ms of CPU beside Postgres, ${(statements / played).toFixed(0)} statements in ${(virtualMs / played / 1_000).toFixed(0)} s), ${failed} broken`,
  );
  if (values.plant !== undefined)
    console.log(
      first === undefined
        ? `${values.plant}: not found`
        : `${values.plant}: found by seed ${first}`,
    );
  return failed > 0 ? 1 : 0;
}

function show({ seed, broken, plan, virtualMs, events, cpuMs }: Report): void {
  const kinds = [...plan.actors, ...plan.faults, ...(plan.night?.actors ?? [])].map(
    ({ kind }) => kind,
  );
  console.log(
    `seed ${seed}: ${broken.length === 0 ? "holds" : "BROKEN"} (${kinds.join(", ")}; ${events} events in ${(virtualMs / 1_000).toFixed(0)} s, ${cpuMs.toFixed(0)} ms of CPU)`,
  );
  for (const text of broken) console.log(`  ${text}`);
  if (broken.length > 0) console.log(`  see it: npm run simulate -- --seed ${seed}`);
}
