/**
 * Lets payments that arrive together go on together, so that a burst fills whole batches. A payment that
 * comes alone passes at once; in a burst, those that are checked wait for those still being checked.
 */
export class BurstHold {
  readonly #maxHoldMs: number;
  #checking = 0;
  #waiting: (() => void)[] = [];
  #timer: NodeJS.Timeout | undefined;

  constructor(maxHoldMs: number) {
    this.#maxHoldMs = maxHoldMs;
  }

  /** Runs a check; others may wait for its end. */
  async during<T>(check: () => Promise<T>): Promise<T> {
    this.#checking += 1;
    try {
      return await check();
    } finally {
      this.#checking -= 1;
      if (this.#checking === 0) this.#open();
    }
  }

  /** Resolves when nothing is being checked any more, or after the longest hold. */
  quiet(): Promise<void> {
    if (this.#checking === 0) return Promise.resolve();
    this.#timer ??= setTimeout(() => this.#open(), this.#maxHoldMs);
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  #open(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const resolve of waiting) resolve();
  }
}
