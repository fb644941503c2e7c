/** The state of a paywall beyond one request and, with several processes, beyond one process. */

/** The amount charged of a maximum. */
export interface MeteredCharge {
  /** The key of the resource: opaque text. */
  resource: string;
  /** Atomic units. */
  amount: string;
}

/** Each method is one atomic step. An expired entry may be deleted, and counts as absent. */
export interface PaywallStore {
  /** Records the amount to be charged for a proof. The first entry for a proof is kept and returned. */
  keepCharge(proof: string, charge: MeteredCharge, until: Date): Promise<MeteredCharge>;
  findCharge(proof: string): Promise<MeteredCharge | undefined>;
  /** Records that this wallet has paid for this resource, and may fetch it again. */
  paid(resource: string, address: string, until: Date): Promise<void>;
  hasPaid(resource: string, address: string): Promise<boolean>;
  /** Marks a nonce as used; false where it was used before. */
  useNonce(nonce: string, until: Date): Promise<boolean>;
}

/** For a single process: the state is in memory, not shared with other processes and lost at a restart. */
export class OneProcessStore implements PaywallStore {
  readonly #charges = new Expiring<MeteredCharge>();
  readonly #paid = new Expiring<true>();
  readonly #nonces = new Expiring<true>();

  async keepCharge(proof: string, charge: MeteredCharge, until: Date): Promise<MeteredCharge> {
    const kept = this.#charges.get(proof);
    if (!kept) this.#charges.set(proof, charge, until.getTime());
    return kept ?? charge;
  }
  async findCharge(proof: string): Promise<MeteredCharge | undefined> {
    return this.#charges.get(proof);
  }
  async paid(resource: string, address: string, until: Date): Promise<void> {
    this.#paid.set(`${address} ${resource}`, true, until.getTime());
  }
  async hasPaid(resource: string, address: string): Promise<boolean> {
    return this.#paid.get(`${address} ${resource}`) ?? false;
  }
  async useNonce(nonce: string, until: Date): Promise<boolean> {
    if (this.#nonces.get(nonce)) return false;
    this.#nonces.set(nonce, true, until.getTime());
    return true;
  }
}

const SWEEP_EVERY_MS = 60_000;

/** A map with entries that expire. */
export class Expiring<Value> {
  readonly #entries = new Map<string, { value: Value; untilMs: number }>();
  #sweptMs = 0;

  get(key: string): Value | undefined {
    const entry = this.#entries.get(key);
    return entry && entry.untilMs > Date.now() ? entry.value : undefined;
  }

  set(key: string, value: Value, untilMs: number): void {
    if (Date.now() - this.#sweptMs > SWEEP_EVERY_MS) this.#sweep();
    this.#entries.set(key, { value, untilMs });
  }

  delete(key: string): void {
    this.#entries.delete(key);
  }

  /** The number of entries that have not expired. */
  get size(): number {
    this.#sweep();
    return this.#entries.size;
  }

  #sweep(): void {
    const nowMs = Date.now();
    this.#sweptMs = nowMs;
    for (const [name, entry] of this.#entries)
      if (entry.untilMs <= nowMs) this.#entries.delete(name);
  }
}
