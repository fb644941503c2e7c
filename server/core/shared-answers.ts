/** One response for many callers: concurrent, shortly after one another, or cached forever if it never changes. */

/**
 * Coalesces concurrent requests into one call. When idle, an item is sent at once. Under load, items that arrive while
 * calls are in flight are sent together with the next one.
 */
interface CoalescerOptions {
  maxBatch: number;
  /** How many calls may be in flight before new items are collected. */
  maxInFlight: number;
}

interface Waiting<Item, Result> {
  item: Item;
  resolve: (result: Result) => void;
  reject: (error: unknown) => void;
}

export class Coalescer<Item, Result> {
  readonly #send: (items: Item[]) => Promise<Result[]>;
  readonly #options: CoalescerOptions;
  #waiting: Waiting<Item, Result>[] = [];
  #inFlight = 0;
  #isScheduled = false;

  /** `send` returns one result per item, in order. */
  constructor(send: (items: Item[]) => Promise<Result[]>, options: CoalescerOptions) {
    this.#send = send;
    this.#options = options;
  }

  fetch(item: Item): Promise<Result> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ item, resolve, reject });
      this.#schedule();
    });
  }

  /** After the current event-loop turn, so that requests read from sockets together are sent together. */
  #schedule(): void {
    if (this.#isScheduled || this.#inFlight >= this.#options.maxInFlight) return;
    this.#isScheduled = true;
    setImmediate(() => {
      this.#isScheduled = false;
      void this.#flush();
    });
  }

  async #flush(): Promise<void> {
    const batch = this.#waiting.splice(0, this.#options.maxBatch);
    if (batch.length === 0) return;
    this.#inFlight += 1;
    if (this.#waiting.length > 0) this.#schedule();
    try {
      const results = await this.#send(batch.map(({ item }) => item));
      for (const [index, { resolve }] of batch.entries()) resolve(results[index] as Result);
    } catch (error) {
      for (const { reject } of batch) reject(error);
    } finally {
      this.#inFlight -= 1;
      if (this.#waiting.length > 0) this.#schedule();
    }
  }
}

/**
 * A bounded cache of values that never change for their key. Third parties choose the keys: it stays small whatever
 * they send, and filling it costs other callers time, not correctness.
 */
export class LastKnown<Value> {
  readonly #most: number;
  readonly #values = new Map<string, Value>();

  constructor(most: number) {
    this.#most = most;
  }

  get(key: string): Value | undefined {
    return this.#values.get(key);
  }

  /** Returns the given value. */
  keep(key: string, value: Value): Value {
    if (this.#values.size >= this.#most)
      for (const oldest of this.#values.keys()) {
        this.#values.delete(oldest);
        break;
      }
    this.#values.set(key, value);
    return value;
  }
}

/** Caches a result for a short time and shares one call among concurrent callers. Failures are not cached. */
export function memoFor<T>(
  keepMs: number,
  fetch: () => Promise<T>,
  nowMs: () => number = () => performance.now(),
): () => Promise<T> {
  let fetchedAtMs = -Infinity;
  let answer: Promise<T> | undefined;
  return () => {
    if (answer === undefined || nowMs() - fetchedAtMs > keepMs) {
      fetchedAtMs = nowMs();
      const pending = fetch();
      answer = pending;
      pending.catch(() => {
        if (answer === pending) answer = undefined;
      });
    }
    return answer;
  };
}
