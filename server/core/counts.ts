/** Counts frequent events in memory, and hands the counts over to be stored together. */
export type Counted<Entry> = Entry & { count: number };

export class Counts<Entry extends object> {
  readonly #most: number;
  /** Ends when everything that was handed over is stored, or was added again. */
  #storing: Promise<void> = Promise.resolve();
  /** A hand-over that waits for the one before. */
  #next: Promise<void> | undefined;
  #counts = new Map<string, { entry: Entry; count: number }>();

  /** Between two hand-overs at most `most` different entries are counted; further new ones are dropped. */
  constructor({ most = Number.POSITIVE_INFINITY } = {}) {
    this.#most = most;
  }

  /** True when it is time to hand over. */
  get isFull(): boolean {
    return this.#counts.size >= this.#most;
  }

  /** Entries are equal if their members are the same, in the same order. */
  add(entry: Entry, times = 1): void {
    const key = JSON.stringify(entry);
    const counted = this.#counts.get(key);
    if (counted) counted.count += times;
    else if (!this.isFull) this.#counts.set(key, { entry, count: times });
  }

  /**
   * Passes all counts since the last time to `keep`; if that fails, they are added again. One after the other: the
   * last one, before the process ends, waits for what is still being stored.
   */
  handOver(keep: (counts: Counted<Entry>[]) => Promise<void>): Promise<void> {
    if (this.#next) return this.#next;
    const next = this.#storing.then(() => {
      this.#next = undefined;
      return this.#store(keep);
    });
    this.#next = next;
    this.#storing = next.catch(() => undefined);
    return next;
  }

  async #store(keep: (counts: Counted<Entry>[]) => Promise<void>): Promise<void> {
    const counts = [...this.#counts.values()];
    if (counts.length === 0) return;
    this.#counts = new Map();
    try {
      await keep(counts.map(({ entry, count }) => ({ ...entry, count })));
    } catch (error) {
      for (const { entry, count } of counts) this.add(entry, count);
      throw error;
    }
  }
}
