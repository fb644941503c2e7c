// Measures the servers alternately and several times, so that other load on the machine affects all of them
// equally, and builds the figures.
import { NAMES, type Figure, type Name } from "./context.ts";

export const ROUNDS = Number(process.env["BENCH_ROUNDS"] ?? "3");

export type Samples<Measured> = Partial<Record<Name, Measured[]>> & { ours: Measured[] };

/** Measures each server in each round; each round starts with a different one. */
export async function inRounds<Measured>(
  { servers }: { servers: Partial<Record<Name, unknown>> },
  measure: (name: Name, round: number) => Promise<Measured>,
): Promise<Samples<Measured>> {
  const names = NAMES.filter((name) => servers[name] !== undefined);
  const measured: Samples<Measured> = { ours: [] };
  for (let round = 0; round < ROUNDS; round += 1)
    for (let turn = 0; turn < names.length; turn += 1) {
      const name = names[(round + turn) % names.length] as Name;
      (measured[name] ??= []).push(await measure(name, round));
    }
  return measured;
}

/** Measures our server only. */
export async function alone<Measured>(measure: (round: number) => Promise<Measured>) {
  const ours: Measured[] = [];
  for (let round = 0; round < ROUNDS; round += 1) ours.push(await measure(round));
  return { ours };
}

interface Facts<Measured> {
  what: string;
  unit: string;
  better: Figure["better"];
  waits?: true;
  of: (measured: Measured) => number;
  /** The target for the medians. */
  target?: {
    label: string;
    reached: (median: Partial<Record<Name, number>> & { ours: number }) => boolean;
  };
}

export function figure<Measured>(measured: Samples<Measured>, facts: Facts<Measured>): Figure {
  const { what, unit, better, waits, of, target } = facts;
  const samples: Figure["samples"] = { ours: [] };
  for (const name of NAMES) {
    const each = measured[name];
    if (each) samples[name] = each.map(of);
  }
  const medians = { ours: median(samples.ours) } as Partial<Record<Name, number>> & {
    ours: number;
  };
  for (const name of NAMES) if (samples[name]) medians[name] = median(samples[name]);
  return {
    what,
    unit,
    better,
    ...(waits && { waits }),
    samples,
    target: target && { label: target.label, isReached: target.reached(medians) },
  };
}

export function median(values: readonly number[]): number {
  const sorted = values.toSorted((left, right) => left - right);
  return sorted[Math.floor(sorted.length / 2)] ?? Number.NaN;
}

/** NaN without a second server, so that a target which compares both is not reached. */
export const timesAsMuch = (ours: number, other: number | undefined): number =>
  other === undefined ? Number.NaN : ours / other;

/** At most this value, or this share of the reference's: a machine at half the speed doubles both. */
export const atMost = (most: number, unit: string, share: number) => ({
  label: `<= ${most} ${unit}, or ${share}x reference`,
  reached: ({ ours, reference }: Partial<Record<Name, number>> & { ours: number }): boolean =>
    ours <= most || timesAsMuch(ours, reference) <= share,
});
