/**
 * Whatever needs an agent's row waits here, in this process, and not with a connection in its hand: of one
 * agent one statement at a time. Where something holds the row, its agent alone is held up.
 */
import { ApiError } from "../../errors.ts";

export interface AgentLockOptions {
  /** Of one agent: who comes when so many wait is refused at once. */
  maxWaiting: number;
  maxWaitMs: number;
}

const BOUNDS: AgentLockOptions = { maxWaiting: 200, maxWaitMs: 4_000 };

export class AgentLock {
  readonly #options: AgentLockOptions;
  /** Agents whose lock is taken, and the callers that wait for it. */
  readonly #taken = new Map<string, Set<() => void>>();

  constructor(options: AgentLockOptions = BOUNDS) {
    this.#options = options;
  }

  /** Throws `agent_busy` when the lock is not free in time: `work` was not begun, so nothing happened. */
  async take<T>(agentId: string, work: () => Promise<T>): Promise<T> {
    await this.#acquire(agentId);
    try {
      return await work();
    } finally {
      this.#release(agentId);
    }
  }

  #acquire(agentId: string): Promise<void> | undefined {
    const waiting = this.#taken.get(agentId);
    if (!waiting) {
      this.#taken.set(agentId, new Set());
      return undefined;
    }
    if (waiting.size >= this.#options.maxWaiting) throw agentBusy();
    return new Promise((resolve, reject) => {
      const go = (): void => {
        clearTimeout(timer);
        resolve();
      };
      const timer = setTimeout(() => {
        waiting.delete(go);
        reject(agentBusy());
      }, this.#options.maxWaitMs);
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

/** Also where Postgres did not give us the agent's row in time. */
export const agentBusy = (cause?: unknown): ApiError =>
  new ApiError("agent_busy", { headers: { "retry-after": "2" }, cause });
