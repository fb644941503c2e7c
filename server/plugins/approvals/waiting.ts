/**
 * Agents that wait for a decision of their owners (long polling): one small query for all waits of this process,
 * whichever replica decides.
 */
import { OpenWaits } from "../../core/open-waits.ts";

const LOOK_MS = 250;
/** A caller is an agent. Further waits return at once. */
const MOST_WAITS = { perCaller: 8, perOwner: 32, perProcess: 500 };

interface WaitingDeps {
  /** Which of these are decided or expired. */
  decided(ids: readonly string[]): Promise<string[]>;
  trouble(error: unknown): void;
}

export class Waiting {
  readonly #deps: WaitingDeps;
  readonly #waits = new Map<string, Set<() => void>>();
  readonly #open = new OpenWaits(MOST_WAITS);
  #timer: NodeJS.Timeout | undefined;
  #isClosed = false;

  constructor(deps: WaitingDeps) {
    this.#deps = deps;
  }

  /** Waits until a decision, the timeout, or the client's disconnection. */
  async wait(args: {
    agentId: string;
    ownerId: string;
    id: string;
    timeoutMs: number;
    gone: AbortSignal;
  }): Promise<void> {
    const { agentId, ownerId, id, timeoutMs, gone } = args;
    if (timeoutMs <= 0 || this.#isClosed || gone.aborted) return;
    const close = this.#open.open({ callerId: agentId, ownerId });
    if (!close) return;
    const wakers = this.#waits.get(id) ?? new Set();
    this.#waits.set(id, wakers);
    await new Promise<void>((resolve) => {
      const timer = setTimeout(wake, timeoutMs);
      function wake(): void {
        clearTimeout(timer);
        gone.removeEventListener("abort", wake);
        wakers.delete(wake);
        resolve();
      }
      wakers.add(wake);
      gone.addEventListener("abort", wake);
      this.#look();
    });
    if (wakers.size === 0) this.#waits.delete(id);
    close();
  }

  close(): void {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    for (const id of this.#waits.keys()) this.#wake(id);
  }

  #wake(id: string): void {
    for (const wake of this.#waits.get(id) ?? []) wake();
  }

  #look(): void {
    this.#timer ??= setTimeout(() => void this.#round(), LOOK_MS);
  }

  async #round(): Promise<void> {
    try {
      for (const id of await this.#deps.decided([...this.#waits.keys()])) this.#wake(id);
    } catch (error) {
      // The query is repeated soon; in the end a waiting client gets its response from the row.
      this.#deps.trouble(error);
    }
    this.#timer = undefined;
    if (this.#waits.size > 0 && !this.#isClosed) this.#look();
  }
}
