// What actors, faults and invariants are.
import type { ClientBase } from "pg";
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

/** Returns what is broken in a world that has ended. */
export type Invariant = (world: World, sql: ClientBase) => Promise<string[]> | string[];
