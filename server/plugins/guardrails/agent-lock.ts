/**
 * A lock per agent in this process. Statements that need an agent's row wait here, without holding a database
 * connection, and run one at a time per agent. If the row is locked, only this agent's requests are delayed.
 * Requests that pay through one payment channel take turns in the same way. The database decides; this only keeps those
 * who would wait there in order.
 */
import { ApiError } from "../../errors.ts";

interface AgentLockOptions {
  /** Per agent; further callers are refused immediately. */
  maxWaiting: number;
  maxWaitMs: number;
  /** The refusal. */
  busy: () => ApiError;
}

export class AgentLock {
  readonly #options: AgentLockOptions;
  /** Agents whose lock is taken, and the callers that wait for it. */
  readonly #taken = new Map<string, Set<() => void>>();

  constructor(options: Partial<AgentLockOptions> = {}) {
    this.#options = { maxWaiting: 200, maxWaitMs: 4_000, busy: agentBusy, ...options };
  }

  /** Throws the refusal if the lock is not free in time; then `work` was not started, and nothing happened. */
  async take<T>(
    agentId: string,
    work: () => Promise<T>,
    maxWaitMs = this.#options.maxWaitMs,
  ): Promise<T> {
    await this.#acquire(agentId, maxWaitMs);
    try {
      return await work();
    } finally {
      this.#release(agentId);
    }
  }

  #acquire(agentId: string, maxWaitMs: number): Promise<void> | undefined {
    const waiting = this.#taken.get(agentId);
    if (!waiting) {
      this.#taken.set(agentId, new Set());
      return undefined;
    }
    if (waiting.size >= this.#options.maxWaiting) throw this.#options.busy();
    return new Promise((resolve, reject) => {
      const go = (): void => {
        clearTimeout(timer);
        resolve();
      };
      const timer = setTimeout(() => {
        waiting.delete(go);
        reject(this.#options.busy());
      }, maxWaitMs);
      waiting.add(go);
    });
  }

  #release(agentId: string): void {
    const waiting = this.#taken.get(agentId);
    const [next] = waiting ?? [];
    if (!waiting || !next) {
      this.#taken.delete(agentId);
      return;
    }
    waiting.delete(next);
    next();
  }
}

/** Also used when Postgres could not lock the agent's row in time. */
export const agentBusy = (cause?: unknown): ApiError =>
  new ApiError("agent_busy", { headers: { "retry-after": "2" }, cause });
