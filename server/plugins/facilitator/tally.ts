/** Counts how requests ended, and hands the counts over to be kept. */
export type TallyOutcome = "ok" | "refused" | "pending" | "error";
export interface Tallied {
  operation: "verify" | "settle";
  outcome: TallyOutcome;
  count: number;
}

export class Tally {
  #counts = new Map<string, Tallied>();

  add(operation: Tallied["operation"], outcome: TallyOutcome, times = 1): void {
    const key = `${operation} ${outcome}`;
    const counted = this.#counts.get(key);
    if (counted) counted.count += times;
    else this.#counts.set(key, { operation, outcome, count: times });
  }

  /** Everything since the last time. What could not be kept is counted again. */
  async handOver(keep: (counts: Tallied[]) => Promise<void>): Promise<void> {
    const counts = [...this.#counts.values()];
    if (counts.length === 0) return;
    this.#counts = new Map();
    try {
      await keep(counts);
    } catch (error) {
      for (const { operation, outcome, count } of counts) this.add(operation, outcome, count);
      throw error;
    }
  }
}

/** An outcome's protocol reason as one of four words. */
export function tallyOutcome(outcome: string): TallyOutcome {
  if (outcome === "valid" || outcome === "settled") return "ok";
  if (outcome === "settlement_pending") return "pending";
  return outcome.startsWith("unexpected_") ? "error" : "refused";
}
