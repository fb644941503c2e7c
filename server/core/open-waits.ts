/** Limits long-polling requests of this process: per caller, per owner, and in total. */
interface MostWaits {
  perCaller: number;
  perOwner: number;
  perProcess: number;
}

export class OpenWaits {
  readonly #most: MostWaits;
  readonly #counts = new Map<string, number>();

  constructor(most: MostWaits) {
    this.#most = most;
  }

  /** Returns a function that releases the place; undefined if there is no place left. */
  open(who: { callerId: string; ownerId: string }): (() => void) | undefined {
    const { perCaller, perOwner, perProcess } = this.#most;
    const places: readonly [key: string, most: number][] = [
      [`caller:${who.callerId}`, perCaller],
      [`owner:${who.ownerId}`, perOwner],
      ["process", perProcess],
    ];
    if (places.some(([key, most]) => this.#count(key) >= most)) return undefined;
    for (const [key] of places) this.#counts.set(key, this.#count(key) + 1);
    let isOpen = true;
    return () => {
      if (!isOpen) return;
      isOpen = false;
      for (const [key] of places) {
        if (this.#count(key) === 1) this.#counts.delete(key);
        else this.#counts.set(key, this.#count(key) - 1);
      }
    };
  }

  #count(key: string): number {
    return this.#counts.get(key) ?? 0;
  }
}
