/** What the parts of the engine share on one chain: configuration, injected dependencies, and helpers. */
import { readHeader, type BlockHeader } from "../../infra/chain/contracts.ts";
import type { HeadWatcher } from "../../infra/chain/heads.ts";
import type { ChainRpc } from "../../infra/chain/rpc.ts";
import type { Pool } from "../../infra/db/pool.ts";
import type { NetworkConfig } from "../../config.ts";
import type { NetworkFacts } from "../../core/networks.ts";
import type { Timings } from "../../core/timings.ts";
import type { Batcher, Fees } from "./batch.ts";
import { finalizeSettlements } from "./store.ts";
import type { FinalizeResult, ProvenOutcome, SettlementKind } from "./types.ts";

export interface EngineLog {
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
}

export interface EngineMeter {
  batch(items: number): void;
  settled(count: number, gasUsed: bigint): void;
  /** The gas cost of one transaction in USDC, by the kind of its first payment. */
  paid(kind: SettlementKind | "none", usdc: number): void;
  /** Time from acceptance to the reported result, for one authorization. */
  timeToResult(ms: number): void;
  /** Time from acceptance to the first inclusion in a block, for one authorization. */
  landed(kind: SettlementKind, ms: number): void;
  finished(status: string, count: number): void;
  /** The settled amount in USDC. */
  moved(kind: SettlementKind, usdc: number): void;
  /** Payments wait for chain data that no node returns. */
  unseen(): void;
  /** A reported outcome was wrong and has been corrected. */
  corrected(kind: string): void;
  repriced(): void;
  resent(): void;
  givenUp(): void;
}

/** Fault points at which crash tests stop the process. They do nothing in production. */
export type FaultPoint =
  | "claimed"
  | "signed"
  | "persisted"
  | "broadcast"
  | "mined"
  /** Included deep enough to report; the outcome is not written yet. */
  | "before-final-write"
  /** Written and reported to callers; a reorganisation may still remove the block. */
  | "reported"
  /** Deep enough to be final; this is not written yet. */
  | "before-final"
  | "void-signed"
  | "void-persisted"
  | "void-broadcast";

export interface EngineContext {
  network: NetworkFacts & Pick<NetworkConfig, "gasBudget" | "nativePriceAtomic">;
  rpc: ChainRpc;
  heads: HeadWatcher;
  pool: Pool;
  batcher: Pick<Batcher, "address" | "probe" | "checkProbe" | "start" | "stop">;
  /** The range of blocks that one round of an event search reads. */
  search: { spanBlocks: bigint; spansPerRound: number };
  timings: Timings;
  log: EngineLog;
  meter: EngineMeter;
  fault: (point: FaultPoint) => Promise<void>;
  gasCapPerItem: bigint;
  /** The highest fee and tip per unit of gas that we offer. */
  feeCaps: Fees;
  /** Identifies this process as a lease holder. */
  owner: string;
}

/** Writes proven outcomes of this chain, and raises an alarm for each reported outcome that they correct. */
export async function writeOutcomes(
  ctx: EngineContext,
  outcomes: readonly ProvenOutcome[],
): Promise<FinalizeResult> {
  const result = await finalizeSettlements(ctx.pool, ctx.network.chainId, outcomes);
  alarmOf(ctx, result);
  for (const { status } of outcomes)
    if (status !== "open" && status !== "held") ctx.meter.finished(status, 1);
  return result;
}

export function alarmOf(ctx: Pick<EngineContext, "log" | "meter">, result: FinalizeResult): void {
  for (const { id, kind } of result.corrected) {
    ctx.meter.corrected(kind);
    ctx.log.error({ settlement: id, kind }, "corrected an outcome that the chain contradicts");
  }
}

/**
 * The header of the block at which a decision reads the state: `depth` blocks deep, and `behind` blocks deeper
 * when nodes could not answer for newer blocks.
 */
export async function blockAt(
  ctx: Pick<EngineContext, "heads" | "network" | "rpc">,
  depth: number,
  behind = 0n,
): Promise<BlockHeader> {
  const known = ctx.heads.head;
  const isFresh = known && performance.now() - known.seenAtMs < ctx.network.blockTimeMs;
  const head = isFresh ? known : await ctx.heads.refresh();
  const number = head.number - BigInt(depth - 1) - behind;
  if (number === head.number) return head;
  const header = await readHeader(ctx.rpc, number > 0n ? number : 0n);
  if (!header) throw new Error(`the node does not know block ${number}`);
  return header;
}

/** A wake-up signal. It is kept when no one waits yet, and several wake-ups count as one. */
export class Signal {
  #raised = false;
  #waiting: (() => void) | undefined;

  raise(): void {
    this.#raised = true;
    this.#waiting?.();
  }

  /** Resolves when the signal is raised, or after the timeout. */
  async wait(timeoutMs: number): Promise<void> {
    if (!this.#raised) {
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, timeoutMs);
        this.#waiting = () => {
          clearTimeout(timer);
          resolve();
        };
      });
      this.#waiting = undefined;
    }
    this.#raised = false;
  }
}
