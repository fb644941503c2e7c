/**
 * Limits the memory that fetches use, per agent, per owner and in total: how many run at once, and how many
 * bytes of responses they hold.
 * A fetch that pays reserves memory for a complete response before anything is signed, so that a paid response
 * can always be received. A fetch over the limit is refused while it costs nothing.
 */
import { TIMINGS } from "../../core/timings.ts";
import { ApiError } from "../../errors.ts";
import { MAX_BODY_BYTES } from "../../infra/outbound/outbound.ts";

interface BudgetLimits {
  fetchesPerAgent: number;
  fetchesPerOwner: number;
  fetches: number;
  bytesPerAgent: number;
  bytesPerOwner: number;
  bytes: number;
  /** The memory for one complete response. */
  answerBytes: number;
  /** How long a fetch that is about to pay waits for memory. */
  waitMs: number;
}

const MIB = 1024 * 1024;
/** A response is held as bytes, as text, and as our JSON. */
const HELD_PER_BYTE = 3;
/** The memory that a response of this many bytes needs until ours is sent. */
export const heldBytes = (bytes: number): number => HELD_PER_BYTE * bytes;

/**
 * Every fetch may hold this much in addition: a 402 can be read even while paid responses have reserved all
 * memory.
 */
const SMALL_BYTES = heldBytes(64 * 1024);
export const BUDGET: BudgetLimits = {
  fetchesPerAgent: 32,
  fetchesPerOwner: 128,
  fetches: 256,
  bytesPerAgent: heldBytes(40 * MIB),
  bytesPerOwner: heldBytes(80 * MIB),
  bytes: heldBytes(160 * MIB),
  answerBytes: heldBytes(MAX_BODY_BYTES),
  waitMs: TIMINGS.fetchRoomMs,
};

/** Memory for several responses of this size, per agent, per owner and in total. */
export function budgetFor(maxBodyBytes: number, waitMs: number): BudgetLimits {
  const answerBytes = heldBytes(maxBodyBytes);
  return {
    ...BUDGET,
    waitMs,
    answerBytes,
    bytesPerAgent: Math.max(BUDGET.bytesPerAgent, 2 * answerBytes),
    bytesPerOwner: Math.max(BUDGET.bytesPerOwner, 3 * answerBytes),
    bytes: Math.max(BUDGET.bytes, 4 * answerBytes),
  };
}

/** The memory of one fetch, from its request until its response is sent. */
export interface Lease {
  /** Counts held bytes; returns false if there is no memory for them. */
  take(bytes: number): boolean;
  /** Reserves memory for one complete response; throws if there is none in time. */
  reserve(): Promise<void>;
  /** Why bytes were not taken. */
  readonly refusal: ApiError | undefined;
  /** Releases everything, once. */
  end(): void;
}

type Scope = "agent" | "owner" | "service";

/** The total of all fetches in one scope. */
interface Share {
  readonly scope: Scope;
  readonly key: string;
  readonly mostFetches: number;
  readonly mostBytes: number;
  fetches: number;
  bytes: number;
}

export class FetchBudget {
  readonly #limits: BudgetLimits;
  readonly #shares = new Map<string, Share>();
  /** Fetches that wait for memory, in order of arrival. */
  readonly #waiting = new Set<() => void>();

  constructor(limits: BudgetLimits = BUDGET) {
    this.#limits = limits;
  }

  enter({ agentId, ownerId }: { agentId: string; ownerId: string }): Lease {
    const { fetchesPerAgent, fetchesPerOwner, fetches } = this.#limits;
    const { bytesPerAgent, bytesPerOwner, bytes } = this.#limits;
    const shares = [
      this.#share("agent", agentId, { fetches: fetchesPerAgent, bytes: bytesPerAgent }),
      this.#share("owner", ownerId, { fetches: fetchesPerOwner, bytes: bytesPerOwner }),
      this.#share("service", "", { fetches, bytes }),
    ];
    const full = shares.find((share) => share.fetches >= share.mostFetches);
    if (full) throw overCapacity(full.scope);
    for (const share of shares) {
      share.fetches += 1;
      this.#shares.set(share.key, share);
    }
    return this.#lease(shares);
  }

  #share(scope: Scope, id: string, most: { fetches: number; bytes: number }): Share {
    const key = `${scope}:${id}`;
    return (
      this.#shares.get(key) ?? {
        scope,
        key,
        mostFetches: most.fetches,
        mostBytes: most.bytes,
        fetches: 0,
        bytes: 0,
      }
    );
  }

  #lease(shares: readonly Share[]): Lease {
    let held = 0;
    let smallLeft = SMALL_BYTES;
    let isReserved = false;
    let refusal: ApiError | undefined;
    let hasEnded = false;
    const hold = (bytes: number): void => {
      held += bytes;
      for (const share of shares) share.bytes += bytes;
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
        const full = fullFor(shares, bytes);
        if (full) refusal = overCapacity(full.scope);
        else hold(bytes);
        return full === undefined;
      },
      reserve: async () => {
        if (isReserved) return;
        // The target's first response is no longer needed: its memory is reused for the second.
        hold(-held);
        await this.#room(shares);
        hold(this.#limits.answerBytes);
        isReserved = true;
      },
      end: () => {
        if (hasEnded) return;
        hasEnded = true;
        hold(-held);
        for (const share of shares) {
          share.fetches -= 1;
          if (share.fetches === 0) this.#shares.delete(share.key);
        }
        for (const wake of this.#waiting) wake();
      },
    };
  }

  async #room(shares: readonly Share[]): Promise<void> {
    const endsAt = performance.now() + this.#limits.waitMs;
    for (;;) {
      const full = fullFor(shares, this.#limits.answerBytes);
      if (full === undefined) return;
      const leftMs = endsAt - performance.now();
      if (leftMs <= 0) throw overCapacity(full.scope);
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

const fullFor = (shares: readonly Share[], bytes: number): Share | undefined =>
  shares.find((share) => share.bytes + bytes > share.mostBytes);

const OVER_CAPACITY: Record<Scope, string> = {
  agent: "Too many fetches of this agent run at the same time or use too much memory.",
  owner: "Too many fetches of this owner's agents run at the same time or use too much memory.",
  service: "The service has no capacity for another fetch right now.",
};

const overCapacity = (scope: Scope): ApiError =>
  new ApiError("fetch_capacity", {
    detail: `${OVER_CAPACITY[scope]} Nothing was paid.`,
    headers: { "retry-after": "2" },
    extra: { scope, paid: false },
  });
