/**
 * What fetches may hold of this process' memory, for one agent and for all: how many run at a time, and how many bytes
 * of answers. A fetch that pays sets room for a whole answer aside before anything is signed, so that what was paid for
 * can always be taken in; what is over is refused by name while it costs nothing.
 */
import { ApiError } from "../../errors.ts";
import { MAX_BODY_BYTES } from "../../infra/outbound/outbound.ts";

export interface BudgetLimits {
  fetchesPerAgent: number;
  fetches: number;
  bytesPerAgent: number;
  bytes: number;
  /** What one whole answer may take. */
  answerBytes: number;
  /** How long a fetch that is about to pay waits for room. */
  waitMs: number;
}

const MIB = 1024 * 1024;
/** What every fetch may read beside its share: a 402 is heard also while paid answers have all the room set aside. */
const SMALL_BYTES = 64 * 1024;
export const BUDGET: BudgetLimits = {
  fetchesPerAgent: 32,
  fetches: 256,
  bytesPerAgent: 40 * MIB,
  bytes: 160 * MIB,
  answerBytes: MAX_BODY_BYTES,
  waitMs: 10_000,
};

/** Room for some answers of that size, of one agent and of all. */
export const budgetFor = (answerBytes: number): BudgetLimits => ({
  ...BUDGET,
  answerBytes,
  bytesPerAgent: Math.max(BUDGET.bytesPerAgent, 2 * answerBytes),
  bytes: Math.max(BUDGET.bytes, 4 * answerBytes),
});

/** What one fetch holds, from its request until its answer has left us. */
export interface Lease {
  /** Counts bytes that arrive; false: there is no room for them. */
  take(bytes: number): boolean;
  /** Room for one whole answer; throws when there is none in time. */
  reserve(): Promise<void>;
  /** Why bytes were not taken. */
  readonly refusal: ApiError | undefined;
  /** Gives everything back; once. */
  end(): void;
}

interface Held {
  fetches: number;
  bytes: number;
}

export class FetchBudget {
  readonly #limits: BudgetLimits;
  readonly #all: Held = { fetches: 0, bytes: 0 };
  readonly #agents = new Map<string, Held>();
  /** Those that wait for room, in the order they came. */
  readonly #waiting = new Set<() => void>();

  constructor(limits: BudgetLimits = BUDGET) {
    this.#limits = limits;
  }

  enter(agentId: string): Lease {
    const own = this.#agents.get(agentId) ?? { fetches: 0, bytes: 0 };
    if (own.fetches >= this.#limits.fetchesPerAgent) throw overCapacity("agent");
    if (this.#all.fetches >= this.#limits.fetches) throw overCapacity("service");
    this.#agents.set(agentId, own);
    own.fetches += 1;
    this.#all.fetches += 1;
    return this.#lease(agentId, own);
  }

  #lease(agentId: string, own: Held): Lease {
    const all = this.#all;
    let held = 0;
    let smallLeft = SMALL_BYTES;
    let isReserved = false;
    let refusal: ApiError | undefined;
    let hasEnded = false;
    const hold = (bytes: number): void => {
      held += bytes;
      own.bytes += bytes;
      all.bytes += bytes;
    };
    return {
      get refusal() {
        return refusal;
      },
      take: (bytes) => {
        if (isReserved) return true;
        if (bytes <= smallLeft) {
          smallLeft -= bytes;
          return true;
        }
        const scope = this.#fullFor(own, bytes);
        if (scope !== undefined) refusal = overCapacity(scope);
        else hold(bytes);
        return scope === undefined;
      },
      reserve: async () => {
        // What the target's first answer took is no longer needed: the room is for the second one.
        hold(-held);
        await this.#room(own);
        hold(this.#limits.answerBytes);
        isReserved = true;
      },
      end: () => {
        if (hasEnded) return;
        hasEnded = true;
        hold(-held);
        own.fetches -= 1;
        all.fetches -= 1;
        if (own.fetches === 0) this.#agents.delete(agentId);
        for (const wake of this.#waiting) wake();
      },
    };
  }

  #fullFor(own: Held, bytes: number): "agent" | "service" | undefined {
    if (own.bytes + bytes > this.#limits.bytesPerAgent) return "agent";
    return this.#all.bytes + bytes > this.#limits.bytes ? "service" : undefined;
  }

  async #room(own: Held): Promise<void> {
    const endsAt = performance.now() + this.#limits.waitMs;
    for (;;) {
      const scope = this.#fullFor(own, this.#limits.answerBytes);
      if (scope === undefined) return;
      const leftMs = endsAt - performance.now();
      if (leftMs <= 0) throw overCapacity(scope);
      await this.#somethingEnds(leftMs);
    }
  }

  #somethingEnds(timeoutMs: number): Promise<void> {
    return new Promise((resolve) => {
      const wake = (): void => {
        clearTimeout(timer);
        this.#waiting.delete(wake);
        resolve();
      };
      const timer = setTimeout(wake, timeoutMs);
      this.#waiting.add(wake);
    });
  }
}

const overCapacity = (scope: "agent" | "service"): ApiError =>
  new ApiError("fetch_capacity", {
    detail:
      scope === "agent"
        ? "Too many fetches of this agent run at the same time, or hold too much. Nothing was paid."
        : "The service has no room for another fetch now. Nothing was paid.",
    headers: { "retry-after": "2" },
    extra: { scope, paid: false },
  });
