// What a world is made of: actors and faults, each of some kind.
import type { Random } from "../helpers/random.ts";
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
