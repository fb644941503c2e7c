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
