// What a benchmark row gets and gives. A row is a file in rows/ exporting `row`, or several `rows`.
import type { TestChain } from "../helpers/chain.ts";

export interface WorldOptions {
  /** Seconds between blocks; "auto" mines each transaction at once. */
  blockTimeSeconds?: number | "auto";
  /** Gas per block, where the default of 30 million would be what is measured. */
  blockGasLimit?: number;
  /** Both servers reach the chain through a proxy that holds every answer back this long. */
  rpcDelayMs?: number;
  /** Processes of our server on the one database. */
  replicas?: number;
  /** Relayer keys of ours and accounts of the reference. */
  relayers?: number;
  /** More environment for our server. */
  env?: Record<string, string>;
  /** Leave the reference facilitator out. */
  withoutReference?: boolean;
}

/** Our server and the reference facilitator, each its own process, on one chain. */
export interface World {
  chain: TestChain;
  databaseUrl: string;
  /** `http://host:port` of our server; its facilitator is at `/api/x402`. */
  ours: string;
  /** All of ours, and their process ids. */
  replicas: string[];
  pids: number[];
  /** The reference facilitator's own URL, with `/verify` and `/settle`. */
  reference: string;
  relayerAddresses: { ours: `0x${string}`[]; reference: `0x${string}`[] };
  stop(): Promise<void>;
}

export interface BenchContext {
  world(options?: WorldOptions): Promise<World>;
  /** A line of progress. */
  say(text: string): void;
}

export interface RowResult {
  reference: string;
  ours: string;
  /** Ours over the reference, in the direction of the target. */
  ratio?: number;
  reached?: boolean;
  /** Everything else worth keeping in the JSON. */
  details?: Record<string, unknown>;
}

export interface BenchRow {
  name: string;
  target: string;
  run(context: BenchContext): Promise<RowResult>;
}
