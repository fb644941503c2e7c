/** Counts in memory what happens too often to be written one by one, and hands the counts over to be kept. */
export type Counted<Entry> = Entry & { count: number };

export class Counts<Entry extends object> {
  readonly #most: number;
  #counts = new Map<string, { entry: Entry; count: number }>();

  /** Beyond `most` different ones between two times they are handed over, what is new is not counted. */
  constructor({ most = Number.POSITIVE_INFINITY } = {}) {
    this.#most = most;
  }

  /** It is time to hand over. */
  get isFull(): boolean {
    return this.#counts.size >= this.#most;
  }

  /** Members in the same order with the same values are the same. */
  add(entry: Entry, times = 1): void {
    const key = JSON.stringify(entry);
    const counted = this.#counts.get(key);
    if (counted) counted.count += times;
    else if (!this.isFull) this.#counts.set(key, { entry, count: times });
  }

  /** Everything since the last time. What could not be kept is counted again. */
  async handOver(keep: (counts: Counted<Entry>[]) => Promise<void>): Promise<void> {
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
