/** What a paywall must remember beyond one request, and where more than one process runs, beyond one process. */

/** What is being charged of a maximum. */
export interface MeteredCharge {
  /** The key of what is sold: opaque text. */
  resource: string;
  /** Atomic units. */
  amount: string;
}

/** Each method is one atomic step. What is past its time may be forgotten, and counts as absent. */
export interface PaywallStore {
  /** Keeps what is about to be charged by a proof. The first for a proof stays, and is what is answered. */
  keepCharge(proof: string, charge: MeteredCharge, until: Date): Promise<MeteredCharge>;
  findCharge(proof: string): Promise<MeteredCharge | undefined>;
  /** This wallet has paid for this resource, and may fetch it again. */
  paid(resource: string, address: string, until: Date): Promise<void>;
  hasPaid(resource: string, address: string): Promise<boolean>;
  /** Uses up a nonce: false when it was used before. */
  useNonce(nonce: string, until: Date): Promise<boolean>;
}

/** For one process alone: another knows nothing of what is kept here, and neither does this one after a restart. */
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

/** A map whose entries end. */
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

  /** Of what has not ended. */
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
