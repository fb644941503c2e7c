/** How many payments are being checked in this process: what a lane waits for before a batch leaves half empty. */
export class Arrivals {
  #expected = 0;

  get expected(): number {
    return this.#expected;
  }

  /** Answers what ends the expectation; more than one call of it ends it once. */
  expect(): () => void {
    this.#expected += 1;
    let isOver = false;
    return () => {
      if (isOver) return;
      isOver = true;
      this.#expected -= 1;
    };
  }
}
