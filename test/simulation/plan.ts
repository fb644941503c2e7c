// What happens in a world, by its seed: a list of actors and faults, each with a seed of its own. One can be left out
// without a change of the others, so a failing world can be made smaller.
import { Random } from "../helpers/random.ts";
import { ACTORS } from "./actors/index.ts";
import { FAULTS } from "./faults/index.ts";
import type { Kind, Planned } from "./kind.ts";

export interface Plan {
  seed: number;
  /** How many processes serve at the beginning. */
  services: number;
  /** How many of the agents act: the fewer, the more they do at once. */
  agents: number;
  actors: Planned[];
  faults: Planned[];
  /** No process runs for hours, so that the windows of limits pass; then others act. */
  night?: { ms: number; actors: Planned[] };
}

const HOUR_MS = 3_600_000;
/** A little less and a little more than the windows of limits: a day, an hour, a week, a month. With their weights. */
const NIGHTS_HOURS: readonly (readonly [number, number])[] = [
  [24, 3],
  [1, 1],
  [168, 1],
  [720, 1],
];

/** All items begin within this time. */
const BUSY_MS = 12_000;
/** How often a fault brings one of its actors, and how soon that one begins. */
const ACCOMPANIED = 0.8;
const SOON_MS = 1_500;
/** Before a night and after it, so that a limit's window is full when it moves. */
const AT_THE_LIMIT = "burst";

/** `only`: of these kinds, if there are any. */
export function planOf(seed: number, only: readonly string[] = []): Plan {
  const random = new Random(seed ^ 0x5eed);
  let services = random.int(1, 2);
  const isWanted = (kind: string): boolean => only.length === 0 || only.includes(kind);
  const items = (kinds: Readonly<Record<string, Kind>>, count: number): Planned[] => {
    const weights = Object.entries(kinds).flatMap(([kind, { weight }]) =>
      isWanted(kind) ? [[kind, weight] as const] : [],
    );
    return Array.from({ length: weights.length === 0 ? 0 : count }, () => ({
      kind: random.weighted(weights),
      atMs: Math.floor(random.next() * BUSY_MS),
      seed: random.int(0, 2 ** 31),
    }));
  };
  const actors = items(ACTORS, random.int(1, 3));
  const faults = items(FAULTS, random.int(0, 3));
  const agents = random.pick([1, 1, 2, 4, 4]);
  for (const { kind, atMs } of faults) {
    const { with: wanted = [], services: needed = 1 } = FAULTS[kind] ?? { weight: 0 };
    services = Math.max(services, needed);
    const kinds = wanted.filter(isWanted);
    if (kinds.length === 0 || actors.length === 0 || random.next() >= ACCOMPANIED) continue;
    const actor = actors.find((each) => kinds.includes(each.kind)) ?? random.pick(actors);
    if (!kinds.includes(actor.kind)) actor.kind = random.pick(kinds);
    actor.atMs = atMs + random.int(0, SOON_MS);
  }
  const hasNight = random.next() < 0.12;
  if (!hasNight) return { seed, services, agents, actors, faults };
  const lasts = random.weighted(NIGHTS_HOURS) + 0.05 - random.next();
  const morning = items(ACTORS, random.int(1, 2));
  const isAtLimit = isWanted(AT_THE_LIMIT) && random.next() < 0.6;
  if (isAtLimit) for (const [first] of [actors, morning]) if (first) first.kind = AT_THE_LIMIT;
  return {
    seed,
    services,
    agents: isAtLimit ? 1 : agents,
    actors,
    faults,
    night: { ms: Math.max(0.1, lasts) * HOUR_MS, actors: morning },
  };
}

/** The same plan with one item less, for each of them. */
export function* smaller(plan: Plan): Generator<Plan> {
  const { night, ...rest } = plan;
  if (night) yield rest;
  for (const list of ["faults", "actors"] as const)
    for (const gone of plan[list])
      yield { ...plan, [list]: plan[list].filter((each) => each !== gone) };
  if (night)
    for (const gone of night.actors)
      yield { ...plan, night: { ...night, actors: night.actors.filter((each) => each !== gone) } };
  if (plan.services > 1) yield { ...plan, services: 1 };
}
