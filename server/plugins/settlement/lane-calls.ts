/** How lanes are notified of work: from this process, from another process of this command, or from another replica. */
import type { LanesElsewhere } from "../../infra/worker-messages.ts";
import type { Pool } from "../../infra/db/pool.ts";
import type { ChainEngine } from "./chain-engine.ts";
import type { EngineLog } from "./context.ts";

export const QUEUE_CHANNEL = "purser_queue";
/** The word follows the work: once soon after, once more for a caller that commits late. */
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
  /** What other processes of this command expect. */
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

  /** Another process of this command checks payments, or does so no longer. */
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
   * Wakes lane holders elsewhere. Not inside the caller's transaction: Postgres lets transactions that
   * notify commit only one after another, which would halve the rate of spends. A lost word costs at most
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
        // SQL: NOTIFY, which Prisma has no word for.
        pool
          .query("SELECT pg_notify($1, $2)", [QUEUE_CHANNEL, String(chainId)])
          .catch((error: unknown) => log.warn({ err: error }, "could not announce work"));
      }, afterMs);
      timer.unref();
      this.#timers.add(timer);
    }
  }
}
