// `npm run simulate`: plays worlds by their seeds.
//
//   npm run simulate -- --seeds 1000            the seeds 1 to 1000; prints those that break a rule
//   npm run simulate -- --seeds 1000 --from 500 from another seed on
//   npm run simulate -- --seed 17               one seed, step by step
//   npm run simulate -- --shrink 17             what the failure of this seed needs, as a plan to keep
//   npm run simulate -- --kept NAME             a plan of test/simulation/kept
//   npm run simulate -- --only seller,crash     other worlds, with these kinds of actors and faults only
//   npm run simulate -- --seeds 100 --list      a line for each seed
//   npm run simulate -- --plant NAME            with a known past defect in the service; or several names, or all
//   npm run simulate -- --plant NAME --seed 17  the same, one seed, step by step
import { parseArgs } from "node:util";
import { DEFECTS } from "./planted/index.ts";
import { searchFor } from "./planted/search.ts";
import { withSimulations, type MakeSimulation } from "./simulation.ts";
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

/** One that is more often wrong has the same cause. */
const MOST_BROKEN = 20;

const single = singleOrder();

process.exitCode = await withSimulations(single ? 1 : Number(values.workers ?? 2), (make) => {
  if (single) return one(() => make(values.plant), single);
  return values.plant === undefined ? many(make) : planted(make);
});

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

async function one(make: MakeSimulation, order: Order): Promise<number> {
  const simulation = await make();
  const report = await simulation.play(order);
  for (const line of report.trace) console.log(line);
  for (const line of report.logs) console.log(line);
  show(report);
  if (order.isShrunk) console.log(JSON.stringify({ story: "", plan: report.plan }, null, 2));
  return report.broken.length > 0 ? 1 : 0;
}

function orders(): Order[] {
  const from = Number(values.from);
  return Array.from({ length: Number(values.seeds) }, (_, index) => ({
    seed: from + index,
    only: namesIn(values.only),
  }));
}

async function many(make: MakeSimulation): Promise<number> {
  const simulation = await make();
  const begunMs = performance.now();
  const sums = { played: 0, broken: 0, cpuMs: 0, statements: 0 };
  await simulation.playAll(orders(), (report) => {
    sums.played += 1;
    sums.cpuMs += report.cpuMs;
    sums.statements += report.statements;
    if (report.broken.length > 0) sums.broken += 1;
    if (values.list || report.broken.length > 0) show(report);
    return sums.broken < MOST_BROKEN;
  });
  const tookMs = performance.now() - begunMs;
  const each = (sum: number): string => (sum / sums.played).toFixed(0);
  console.log(
    `${sums.played} worlds in ${(tookMs / 1_000).toFixed(1)} s, ${sums.broken} broken (each ${each(tookMs)} ms, ${each(sums.cpuMs)} ms of CPU beside Postgres, ${each(sums.statements)} statements)`,
  );
  return sums.broken > 0 ? 1 : 0;
}

async function planted(make: MakeSimulation): Promise<number> {
  const present = await make();
  const names = values.plant === "all" ? DEFECTS.map(({ name }) => name) : namesIn(values.plant);
  let missed = 0;
  for (const name of names) {
    const found = await searchFor(name, { make, present, orders: orders() });
    if (!found) missed += 1;
    console.log(
      found
        ? `${name}: found by seed ${found.seed} (${found.broken[0]?.slice(0, 120)})`
        : `${name}: not found in ${values.seeds} worlds`,
    );
  }
  return missed > 0 ? 1 : 0;
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
