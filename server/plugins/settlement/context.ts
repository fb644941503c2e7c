/** What the engine's parts share on one chain: the world, passed in. */
import type * as ChainReads from "../../infra/chain/contracts.ts";
import type { HeadWatcher } from "../../infra/chain/reads.ts";
import type { ChainRpc } from "../../infra/chain/rpc.ts";
import type { Pool } from "../../infra/db/pool.ts";
import type * as LaneStore from "./lane-store.ts";
import type * as TransactionStore from "./transaction-store.ts";
import type * as SettlementStore from "./store.ts";
import type { NetworkFacts } from "../../core/networks.ts";

export interface EngineLog {
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
}

export interface EngineMeter {
  batch(items: number): void;
  settled(count: number, gasUsed: bigint): void;
  /** From accepted to final, of one authorization. */
  took(ms: number): void;
  finished(status: string, count: number): void;
  repriced(): void;
  resent(): void;
}

/** Places where a process may die. Tests do; in production nothing listens. */
export type FaultPoint =
  | "claimed"
  | "signed"
  | "persisted"
  | "broadcast"
  | "mined"
  | "before-final-write";

export interface EngineContext {
  network: NetworkFacts;
  rpc: ChainRpc;
  heads: HeadWatcher;
  pool: Pool;
  reads: typeof ChainReads;
  lanes: typeof LaneStore;
  transactions: typeof TransactionStore;
  settlements: typeof SettlementStore;
  log: EngineLog;
  meter: EngineMeter;
  fault: (point: FaultPoint) => Promise<void>;
  gasCapPerItem: bigint;
  dailyGasCeiling: bigint;
  /** Identifies this process among the holders of leases. */
  owner: string;
}

/** The newest block whose content we call final, as a tag: `latest` where inclusion is final. */
export function finalTag(ctx: EngineContext): `0x${string}` | "latest" {
  const depth = BigInt(ctx.network.confirmations - 1);
  const head = ctx.heads.head;
  if (depth === 0n || !head) return "latest";
  const number = head.number > depth ? head.number - depth : 0n;
  return `0x${number.toString(16)}`;
}
