// Plays worlds with a planted defect until one of them breaks a rule because of it.
import type { MakeSimulation, Simulation } from "../simulation.ts";
import type { Order, Report } from "../worker.ts";

/** The first world that breaks with the defect and holds without it. */
export async function searchFor(
  name: string,
  {
    make,
    present,
    orders,
  }: { make: MakeSimulation; present: Simulation; orders: readonly Order[] },
): Promise<Report | undefined> {
  const simulation = await make(name);
  let found: Report | undefined;
  await simulation.playAll(orders, async (report) => {
    if (report.broken.length === 0 || found) return !found;
    const { broken } = await present.play({ seed: report.seed, only: orders[0]?.only ?? [] });
    if (broken.length === 0) found ??= report;
    return !found;
  });
  await simulation.close();
  return found;
}
