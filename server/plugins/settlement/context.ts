/** What the engine's parts share on one chain: the world, passed in. */
import type * as ChainReads from "../../infra/chain/authorizations.ts";
import type { HeadWatcher } from "../../infra/chain/heads.ts";
import type { ChainRpc } from "../../infra/chain/rpc.ts";
import type { Pool } from "../../infra/db/pool.ts";
import type * as LaneStore from "./lane-store.ts";
import type * as QueueStore from "./queue-store.ts";
import type * as TransactionStore from "./transaction-store.ts";
import type * as SettlementStore from "./store.ts";
import type { NetworkFacts } from "../../core/networks.ts";
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
  /** From accepted to final, of one authorization. */
  took(ms: number): void;
  /** From accepted to its first place in a block, of one authorization. */
  landed(kind: SettlementKind, ms: number): void;
  finished(status: string, count: number): void;
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
  | "before-final-write"
  | "void-signed"
  | "void-persisted"
  | "void-broadcast";

export interface EngineContext {
  network: NetworkFacts;
  rpc: ChainRpc;
  heads: HeadWatcher;
  pool: Pool;
  reads: typeof ChainReads;
  lanes: typeof LaneStore;
  queue: typeof QueueStore;
  transactions: typeof TransactionStore;
  settlements: typeof SettlementStore;
  log: EngineLog;
  meter: EngineMeter;
  fault: (point: FaultPoint) => Promise<void>;
  gasCapPerItem: bigint;
  dailyGasCeiling: bigint;
  /** The most we offer for a unit of gas, in all and as tip. */
  feeCaps: Fees;
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

/** How many payments are being checked in this process: what a lane waits for before a batch leaves half empty. */
export class ExpectedPayments {
  #count = 0;

  get count(): number {
    return this.#count;
  }

  /** Answers what ends the expectation; more than one call of it ends it once. */
  expect(): () => void {
    this.#count += 1;
    let isOver = false;
    return () => {
      if (isOver) return;
      isOver = true;
      this.#count -= 1;
    };
  }
}
