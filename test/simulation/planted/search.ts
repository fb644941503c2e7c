// Plays worlds with a planted defect until one of them breaks a rule because of it.
import type { MakeSimulation, Simulation } from "../simulation.ts";
import type { Order, Report } from "../worker.ts";
import { defectOf } from "./index.ts";

/** The first world that breaks with the defect and holds without it. */
export async function searchFor(
  name: string,
  {
    make,
    present,
    orders: asked,
  }: { make: MakeSimulation; present: Simulation; orders: readonly Order[] },
): Promise<Report | undefined> {
  const orders = asked.map((order) => withKinds(order, defectOf(name).only));
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

/** The order's own kinds, else those of the defect. */
const withKinds = (order: Order, only: readonly string[] = []): Order =>
  (order.only ?? []).length > 0 ? order : { ...order, only: [...only] };
