// The interface of benchmark rows. A row is a file in rows/ that exports `row`, or several `rows`.
import type { Pool } from "../../server/infra/db/pool.ts";
import type { TestChain } from "../helpers/chain.ts";

export interface WorldOptions {
  /** Seconds between blocks; "auto" mines each transaction at once. */
  blockTimeSeconds?: number | "auto";
  /** Gas per block, for rows that would otherwise measure the default of 30 million. */
  blockGasLimit?: number;
  /**
   * Each server reaches the chain through its own proxy, which counts its calls and delays each response by
   * this much.
   */
  rpcDelayMs?: number;
  /** The number of our server processes on the same database. */
  replicas?: number;
  /** The number of our relayer keys, and of the reference's accounts. */
  relayers?: number;
  /** Additional environment for our server. */
  env?: Record<string, string>;
  /** Measure only our server. */
  oursAlone?: boolean;
  /** The port of our server; otherwise any free one. */
  port?: number;
}

export const NAMES = ["reference", "peer", "ours"] as const;
export type Name = (typeof NAMES)[number];

/** One facilitator in its own process. */
export interface Server {
  /** The base URL of `/verify` and `/settle`. */
  url: string;
  relayers: `0x${string}`[];
  /** CPU time used so far by the process and its children. */
  cpuMs(): number;
  memoryMiB(): number;
  /** JSON-RPC calls so far, counting each call of a batch. Only behind a proxy. */
  rpcCalls(): Promise<number>;
}

/** How a server is started, on any port. */
export interface Launch {
  command: string[];
  env: (port: number) => Record<string, string>;
  /** Otherwise any free one. */
  port?: number;
  /** The path that returns 200 as soon as the server is ready. */
  readyPath: string;
}

/** The servers of a row, all on one chain. */
export interface World {
  chain: TestChain;
  databaseUrl: string;
  /** A connection for inspecting the database; it ends with the world. */
  database: Pool;
  launches: Partial<Record<Name, Launch>> & { ours: Launch };
  /** `http://host:port` of our server; its facilitator is at `/api/x402`. */
  ours: string;
  /** All replicas of our server, with their process ids. */
  replicas: string[];
  pids: number[];
  /**
   * The servers to compare. The peer is present if one is configured; the reference unless it was left out.
   */
  servers: Partial<Record<Name, Server>> & { ours: Server };
  stop(): Promise<void>;
}

export interface BenchContext {
  world(options?: WorldOptions): Promise<World>;
  /** Prints a line of progress. */
  print(text: string): void;
}

/** One measured figure, with several samples per server. */
export interface Figure {
  what: string;
  unit: string;
  better: "less" | "more";
  /**
   * Depends on the block interval as much as on the machine: on a faster machine the reference improves, and
   * this cannot.
   */
  waits?: true;
  samples: Partial<Record<Name, number[]>> & { ours: number[] };
  /** The target for our server, and whether it is reached. */
  target?: { label: string; isReached: boolean } | undefined;
}

export interface BenchRow {
  name: string;
  /** Settings of a Postgres of its own. */
  postgres?: string[];
  run(context: BenchContext): Promise<Figure[]>;
}
