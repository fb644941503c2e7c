/**
 * How lanes are notified of work: from this process, from another process of this command, or from another
 * replica.
 */
import type { LanesElsewhere } from "../../infra/worker-messages.ts";
import type { Pool } from "../../infra/db/pool.ts";
import type { ChainEngine } from "./chain-engine.ts";
import type { EngineLog } from "./context.ts";

export const QUEUE_CHANNEL = "purser_queue";
/** The notification follows the work: once soon after, and once more for a caller that commits late. */
const ANNOUNCE_AFTER_MS = [15, 150];

export interface LaneCallsDeps {
  chains: ReadonlyMap<number, ChainEngine>;
  pool: Pool;
  log: EngineLog;
  lanesElsewhere: LanesElsewhere | undefined;
}

export class LaneCalls {
  readonly #deps: LaneCallsDeps;
  readonly #announcing = new Set<number>();
  readonly #timers = new Set<NodeJS.Timeout>();
  /** Payments that other processes of this command expect, by process and chain. */
  readonly #expected = new Map<string, () => void>();

  constructor(deps: LaneCallsDeps) {
    this.#deps = deps;
  }

  /** Work is about to be committed, here or in the process that announces it. */
  wake(chainId: number): void {
    const { chains, lanesElsewhere } = this.#deps;
    if (lanesElsewhere) return lanesElsewhere.announce(chainId);
    chains.get(chainId)?.expectWork();
    this.#announce(chainId);
  }

  /** Another process of this command started or stopped checking payments. */
  expect(chainId: number, isExpected: boolean, by: string): void {
    const key = `${by} ${chainId}`;
    this.#expected.get(key)?.();
    this.#expected.delete(key);
    const chain = this.#deps.chains.get(chainId);
    if (chain && isExpected) this.#expected.set(key, chain.expected.expect());
  }

  stop(): void {
    for (const timer of this.#timers) clearTimeout(timer);
  }

  /**
   * Notifies lane holders in other replicas. Not inside the caller's transaction: Postgres commits transactions
   * that use NOTIFY one after another, which would halve the rate of spends. A lost notification costs at most
   * one fallback poll.
   */
  #announce(chainId: number): void {
    const { chains, pool, log } = this.#deps;
    const isAllHere = chains.get(chainId)?.lanes.every((lane) => lane.held) ?? false;
    if (isAllHere || this.#announcing.has(chainId)) return;
    this.#announcing.add(chainId);
    for (const afterMs of ANNOUNCE_AFTER_MS) {
      const timer = setTimeout(() => {
        this.#timers.delete(timer);
        this.#announcing.delete(chainId);
        // Raw SQL: Prisma has no NOTIFY.
        pool
          .query("SELECT pg_notify($1, $2)", [QUEUE_CHANNEL, String(chainId)])
          .catch((error: unknown) => log.warn({ err: error }, "could not announce work"));
      }, afterMs);
      timer.unref();
      this.#timers.add(timer);
    }
  }
}
