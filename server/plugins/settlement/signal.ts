/** A wake-up that is not lost when nobody waits yet, and that many wake-ups make only once. */

export class Signal {
  #raised = false;
  #waiting: (() => void) | undefined;

  raise(): void {
    this.#raised = true;
    this.#waiting?.();
  }

  /** Resolves when raised, or after the time. */
  async wait(timeoutMs: number): Promise<void> {
    if (!this.#raised) {
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, timeoutMs);
        this.#waiting = () => {
          clearTimeout(timer);
          resolve();
        };
      });
      this.#waiting = undefined;
    }
    this.#raised = false;
  }
}

/** A timer by design: the process may end although it runs. */
export const pause = (ms: number): Promise<void> =>
  new Promise((resolve) => {
    setTimeout(resolve, ms);
  });

/** How many payments are being checked in this process: what a lane waits for before a batch leaves half empty. */
export class ExpectedPayments {
  #count = 0;

  get count(): number {
    return this.#count;
  }

  /** Answers what ends the expectation; more than one call of it ends it once. */
  expect(): () => void {
    this.#count += 1;
    let isOver = false;
    return () => {
      if (isOver) return;
      isOver = true;
      this.#count -= 1;
    };
  }
}
