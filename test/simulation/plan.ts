// What happens in a world, by its seed: a list of actors and faults, each with a seed of its own. An item can be left
// out without a change of the others, so a failing world can be made smaller.
import { Random } from "../helpers/random.ts";
import { ACTORS } from "./actors/index.ts";
import { FAULTS } from "./faults/index.ts";
import type { World } from "./world.ts";

/** A kind of actor or fault. */
export interface Kind {
  /** How often it is chosen, compared with the others of its list. */
  weight: number;
  /** Resolves when it has done everything. It runs as a client of the world: its timers are virtual. */
  play(world: World, item: Item): Promise<void>;
}

export interface Item {
  kind: string;
  /** When it begins. */
  atMs: number;
  /** Its own choices. */
  random: Random;
}

export interface Plan {
  seed: number;
  /** How many processes serve at the beginning. */
  services: number;
  actors: Item[];
  faults: Item[];
}

/** All items begin within this time. */
const BUSY_MS = 12_000;

/** `only`: of these kinds, where a list has any of them. */
export function planOf(
  seed: number,
  without: readonly number[] = [],
  only: readonly string[] = [],
): Plan {
  const random = new Random(seed ^ 0x5eed);
  const services = random.int(1, 2);
  let number = 0;
  const items = (kinds: Readonly<Record<string, Kind>>, count: number): Item[] =>
    Array.from({ length: count }, () => ({
      kind: chosen(among(kinds, only), random),
      atMs: Math.floor(random.next() * BUSY_MS),
      random: new Random(random.int(0, 2 ** 31)),
      number: (number += 1),
    })).filter((item) => !without.includes(item.number));
  const actors = items(ACTORS, random.int(1, 4));
  const faults = items(FAULTS, random.int(0, 3));
  return { seed, services, actors, faults };
}

function among(
  kinds: Readonly<Record<string, Kind>>,
  only: readonly string[],
): Readonly<Record<string, Kind>> {
  const named = Object.entries(kinds).filter(([name]) => only.includes(name));
  return named.length > 0 ? Object.fromEntries(named) : kinds;
}

function chosen(kinds: Readonly<Record<string, Kind>>, random: Random): string {
  const all = Object.entries(kinds);
  let left = random.next() * all.reduce((sum, [, { weight }]) => sum + weight, 0);
  for (const [name, { weight }] of all) if ((left -= weight) < 0) return name;
  return all[0]?.[0] ?? "";
}
