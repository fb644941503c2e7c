// What actors, faults and invariants are.
import type { ClientBase } from "pg";
import type { Random } from "../helpers/random.ts";
import type { World } from "./world.ts";

/** A kind of actor or fault. */
export interface Kind {
  /** How often it is chosen, compared with the others of its list. */
  weight: number;
  /** A fault for these actors: mostly one of them begins just after it. */
  with?: readonly string[];
  /** Needs this many processes. */
  services?: number;
  /** Resolves when it has done everything. It runs as a client of the world: its timers are virtual. */
  play(world: World, item: Item): Promise<void>;
}

/** An actor or a fault of a plan. */
export interface Planned {
  kind: string;
  /** When it begins. */
  atMs: number;
  /** Of its own choices. */
  seed: number;
}

/** The same in its world. */
export interface Item {
  kind: string;
  atMs: number;
  /** Its own choices. */
  random: Random;
}

/** Returns what is broken in a world that has ended. */
export type Invariant = (world: World, sql: ClientBase) => Promise<string[]> | string[];
