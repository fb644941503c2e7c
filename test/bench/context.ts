// What a benchmark row gets and gives. A row is a file in rows/ exporting `row`, or several `rows`.
import type { Pool } from "../../server/infra/db/pool.ts";
import type { TestChain } from "../helpers/chain.ts";

export interface WorldOptions {
  /** Seconds between blocks; "auto" mines each transaction at once. */
  blockTimeSeconds?: number | "auto";
  /** Gas per block, where the default of 30 million would be what is measured. */
  blockGasLimit?: number;
  /** Each server reaches the chain through a proxy of its own, which counts its calls and holds each answer back this long. */
  rpcDelayMs?: number;
  /** Processes of our server on the one database. */
  replicas?: number;
  /** Relayer keys of ours and accounts of the reference. */
  relayers?: number;
  /** More environment for our server. */
  env?: Record<string, string>;
  /** Leave the others out. */
  oursAlone?: boolean;
}

export const NAMES = ["reference", "peer", "ours"] as const;
export type Name = (typeof NAMES)[number];

/** One facilitator, in a process of its own. */
export interface Server {
  /** Its `/verify` and `/settle` stand below this. */
  url: string;
  relayers: `0x${string}`[];
  /** Used of a processor so far, by it and all its children. */
  cpuMs(): number;
  memoryMiB(): number;
  /** JSON-RPC calls so far, those of one request counted each. Only behind a proxy. */
  rpcCalls(): Promise<number>;
}

/** How one is started, wherever it shall listen. */
export interface Launch {
  command: string[];
  env: (port: number) => Record<string, string>;
  /** Answered with 200 as soon as it serves. */
  readyPath: string;
}

/** All on one chain. */
export interface World {
  chain: TestChain;
  databaseUrl: string;
  /** To look into it; ends with the world. */
  database: Pool;
  launches: Partial<Record<Name, Launch>> & { ours: Launch };
  /** `http://host:port` of our server; its facilitator is at `/api/x402`. */
  ours: string;
  /** All of ours, and their process ids. */
  replicas: string[];
  pids: number[];
  /** The peer is there where one is given; the reference unless it was left out. */
  servers: Partial<Record<Name, Server>> & { ours: Server };
  stop(): Promise<void>;
}

export interface BenchContext {
  world(options?: WorldOptions): Promise<World>;
  /** A line of progress. */
  say(text: string): void;
}

/** One number that was measured, several times for each. */
export interface Figure {
  what: string;
  unit: string;
  better: "less" | "more";
  /** Bounded by when blocks come as much as by the machine: on a faster one the reference gains, and this cannot. */
  waits?: true;
  samples: Partial<Record<Name, number[]>> & { ours: number[] };
  /** What ours must reach, said and looked at. */
  target?: { says: string; isReached: boolean } | undefined;
}

export interface BenchRow {
  name: string;
  run(context: BenchContext): Promise<Figure[]>;
}
