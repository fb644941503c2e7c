/** What the engine's parts share on one chain: the world, passed in. */
import type * as ChainReads from "../../infra/chain/contracts.ts";
import type { BlockHeader } from "../../infra/chain/contracts.ts";
import type { HeadWatcher } from "../../infra/chain/heads.ts";
import type { ChainRpc } from "../../infra/chain/rpc.ts";
import type { Pool } from "../../infra/db/pool.ts";
import type * as LaneStore from "./lane-store.ts";
import type * as QueueStore from "./queue-store.ts";
import type * as TransactionStore from "./transaction-store.ts";
import type * as SettlementStore from "./store.ts";
import type { ProvenOutcome, FinalizeResult } from "./store.ts";
import type { Batcher } from "./batcher.ts";
import type { Refusals } from "./prove.ts";
import type * as WatchStore from "./watch-store.ts";
import type { NetworkConfig } from "../../core/network-settings.ts";
import type { NetworkFacts } from "../../core/networks.ts";
import type { Timings } from "../../core/timings.ts";
import type { Fees } from "./batch.ts";
import type { SettlementKind } from "./types.ts";

export interface EngineLog {
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
}

export interface EngineMeter {
  batch(items: number): void;
  settled(count: number, gasUsed: bigint): void;
  /** What the gas of one transaction cost, in USDC, by what it carried. */
  paid(kind: SettlementKind | "none", usdc: number): void;
  /** Time from acceptance to the reported result, of one authorization. */
  timeToResult(ms: number): void;
  /** From accepted to its first place in a block, of one authorization. */
  landed(kind: SettlementKind, ms: number): void;
  finished(status: string, count: number): void;
  /** Settled, in USDC. */
  moved(kind: SettlementKind, usdc: number): void;
  /** What payments wait for, no node shows. */
  unseen(): void;
  /** An outcome that was reported here was wrong. */
  corrected(kind: string): void;
  repriced(): void;
  resent(): void;
  givenUp(): void;
}

/** Places where a process may die. Tests do; in production nothing listens. */
export type FaultPoint =
  | "claimed"
  | "signed"
  | "persisted"
  | "broadcast"
  | "mined"
  /** In a block that is deep enough to report: just before that is written. */
  | "before-final-write"
  /** It was written and reported to callers; a reorganisation may still take the block back. */
  | "told"
  /** Deep enough to be final: just before that is written. */
  | "before-final"
  | "void-signed"
  | "void-persisted"
  | "void-broadcast";

export interface EngineContext {
  network: NetworkFacts & Pick<NetworkConfig, "gasBudget" | "nativePriceAtomic">;
  rpc: ChainRpc;
  heads: HeadWatcher;
  pool: Pool;
  reads: typeof ChainReads;
  lanes: typeof LaneStore;
  queue: typeof QueueStore;
  transactions: typeof TransactionStore;
  settlements: typeof SettlementStore;
  watched: typeof WatchStore;
  refusals: Refusals;
  batcher: Pick<Batcher, "address" | "probe" | "hear" | "start" | "stop">;
  /** How much of the chain one round of a search for an event reads. */
  search: { spanBlocks: bigint; spansPerRound: number };
  timings: Timings;
  log: EngineLog;
  meter: EngineMeter;
  fault: (point: FaultPoint) => Promise<void>;
  gasCapPerItem: bigint;
  /** The most we offer for a unit of gas, in all and as tip. */
  feeCaps: Fees;
  /** Identifies this process among the holders of leases. */
  owner: string;
}

/** Writes proven outcomes of this chain; what they correct is an alarm. */
export async function writeOutcomes(
  ctx: EngineContext,
  outcomes: readonly ProvenOutcome[],
): Promise<FinalizeResult> {
  const told = await ctx.settlements.finalizeSettlements(ctx.pool, ctx.network.chainId, outcomes);
  alarmOf(ctx, told);
  for (const { status } of outcomes)
    if (status !== "open" && status !== "held") ctx.meter.finished(status, 1);
  return told;
}

export function alarmOf(ctx: Pick<EngineContext, "log" | "meter">, told: FinalizeResult): void {
  for (const { id, kind } of told.corrected) {
    ctx.meter.corrected(kind);
    ctx.log.error({ settlement: id, kind }, "corrected an outcome that the chain contradicts");
  }
}

const ALARM_AGAIN_MS = 600_000;

/**
 * What no node shows although the chain has long gone past it: whatever waits for that waits on, since absence
 * proves nothing, but never in silence.
 */
export class UnseenBlocks {
  readonly #ctx: Pick<EngineContext, "log" | "rpc" | "meter" | "timings">;
  readonly #alarmAtMs = new Map<string, number>();

  constructor(ctx: Pick<EngineContext, "log" | "rpc" | "meter" | "timings">) {
    this.#ctx = ctx;
  }

  seen(what: string): void {
    this.#alarmAtMs.delete(what);
  }

  missed(what: string, fields: object): void {
    const now = performance.now();
    const alarmAtMs = this.#alarmAtMs.get(what) ?? now + this.#ctx.timings.unseenForMs;
    this.#alarmAtMs.set(what, now < alarmAtMs ? alarmAtMs : now + ALARM_AGAIN_MS);
    if (now < alarmAtMs) return;
    this.#ctx.meter.unseen();
    this.#ctx.log.error(
      { alarm: "chain_unseen", what, ...fields },
      "payments wait for chain data that no node returns",
    );
    this.#ctx.rpc.suspectEndpoint();
  }
}

/**
 * The block that a decision reads at, by its own header: `depth` blocks deep, and `behind` more where
 * nodes have not been able to answer about newer ones.
 */
export async function blockAt(
  ctx: EngineContext,
  depth: number,
  behind = 0n,
): Promise<BlockHeader> {
  const known = ctx.heads.head;
  const isFresh = known && performance.now() - known.seenAtMs < ctx.network.blockTimeMs;
  const head = isFresh ? known : await ctx.heads.refresh();
  const number = head.number - BigInt(depth - 1) - behind;
  if (number === head.number) return head;
  const header = await ctx.reads.readHeader(ctx.rpc, number > 0n ? number : 0n);
  if (!header) throw new Error(`the node does not know block ${number}`);
  return header;
}

/** A wake-up that is not lost when nobody waits yet, and that many wake-ups make only once. */

export class Signal {
  #raised = false;
  #waiting: (() => void) | undefined;

  raise(): void {
    this.#raised = true;
    this.#waiting?.();
  }

  /** Resolves when raised, or after the time. */
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

/** A timer by design: the process may end although it runs. */
export const pause = (ms: number): Promise<void> =>
  new Promise((resolve) => {
    setTimeout(resolve, ms);
  });

/** How many payments are being checked: what a lane waits for before a batch leaves half empty. */
export class ExpectedPayments {
  readonly #onChange: (isExpected: boolean) => void;
  #count = 0;

  /** Says when the first one is expected, and when none is any more. */
  constructor(onChange: (isExpected: boolean) => void = () => undefined) {
    this.#onChange = onChange;
  }

  get count(): number {
    return this.#count;
  }

  /** Answers what ends the expectation; more than one call of it ends it once. */
  expect(): () => void {
    this.#count += 1;
    if (this.#count === 1) this.#onChange(true);
    let isOver = false;
    return () => {
      if (isOver) return;
      isOver = true;
      this.#count -= 1;
      if (this.#count === 0) this.#onChange(false);
    };
  }
}
