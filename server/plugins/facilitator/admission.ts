/** What comes before a settlement: the caller's proof, and the wait of a burst. */
import { createHash } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import type { SettlementRow } from "../settlement/types.ts";

/**
 * Identifies the caller of a settle for its retries, by the Idempotency-Key header that the seller sets. Nothing
 * inside the payload proves anything: the payer wrote it, its `payment-identifier` included.
 */
export interface CallerProof {
  readonly bodyHash: Uint8Array;
  /** Null when the request proves nothing. */
  readonly callerKeyHash: Uint8Array | null;
}

export function callerProof(
  body: unknown,
  shown: { idempotencyKey?: string | undefined; credential?: string | undefined },
): CallerProof {
  const { paymentPayload, paymentRequirements } = body as Record<string, unknown>;
  const bodyHash = hash(JSON.stringify([paymentPayload, paymentRequirements]));
  const { idempotencyKey, credential = "" } = shown;
  const isShown = idempotencyKey !== undefined;
  return {
    bodyHash,
    callerKeyHash: isShown ? hash(JSON.stringify(["key", credential, idempotencyKey])) : null,
  };
}

/**
 * Like the first request of the settlement: with its key and its body, which proves the same caller; or without a key as
 * the first was, which proves nothing, whatever the body.
 */
export const isLikeFirst = (row: SettlementRow, proof: CallerProof): boolean =>
  row.callerKeyHash === null || proof.callerKeyHash === null
    ? row.callerKeyHash === proof.callerKeyHash
    : isEqual(row.callerKeyHash, proof.callerKeyHash) && isEqual(row.bodyHash, proof.bodyHash);

/**
 * May any caller get this success? Signatures of spends and withdrawals are public once they are on chain, and
 * so is an agent's payment that another facilitator relayed: shown here, they prove nothing.
 */
export const isAskable = (row: SettlementRow): boolean =>
  row.kind === "facilitated" || (row.kind === "x402" && row.relay);

const hash = (text: string): Uint8Array => createHash("sha256").update(text).digest();
const isEqual = (left: Uint8Array | null, right: Uint8Array): boolean =>
  left !== null && Buffer.compare(left, right) === 0;

/** So many at about the same time are a burst, and so long one counts for it. */
const CROWD = 16;
const CROWD_FOR_MS = 40;
/** In a burst a question about one costs as much as one about all that come within this time, ... */
const GATHER_MS = 8;
/** ... and to write one down as much as all that come until nobody does for a moment, or until it has waited so long. */
const LULL_MS = 12;
const WAVE_MS = 100;

/**
 * Lets payments that arrive together go on together, so that a burst fills whole batches. A payment that
 * comes alone passes at once; in a burst, those that are checked wait for those still being checked, and go on in waves.
 */
export class BurstHold {
  readonly #maxHoldMs: number;
  #checking = 0;
  #waiting: (() => void)[] = [];
  #timer: NodeJS.Timeout | undefined;
  #wave: NodeJS.Timeout | undefined;
  /** Since when the first of those who wait does. */
  #heldMs = 0;
  #entering: Promise<void> | undefined;
  /** How many have come; each counts for less the longer ago it was. */
  #crowd = 0;
  #crowdMs = 0;

  constructor(maxHoldMs: number) {
    this.#maxHoldMs = maxHoldMs;
  }

  /** Who comes in a burst goes on with those who come next: they are looked up together, and checked together. */
  enter(): Promise<void> | undefined {
    const now = performance.now();
    this.#crowd = this.#crowdAt(now) + 1;
    this.#crowdMs = now;
    if (this.#crowd < CROWD) return undefined;
    this.#entering ??= this.#gather();
    return this.#entering;
  }

  async #gather(): Promise<void> {
    await sleep(GATHER_MS);
    this.#entering = undefined;
  }

  #crowdAt(now: number): number {
    return this.#crowd * Math.exp((this.#crowdMs - now) / CROWD_FOR_MS);
  }

  /** Runs a check; others may wait for its end. */
  async during<T>(check: () => Promise<T>): Promise<T> {
    this.#checking += 1;
    try {
      return await check();
    } finally {
      this.#checking -= 1;
      if (this.#checking === 0) this.#openSoon();
    }
  }

  /** Resolves when nothing is being checked any more, or after the longest hold. */
  quiet(): Promise<void> {
    if (this.#waiting.length === 0) this.#heldMs = performance.now();
    if (this.#checking === 0 && this.#restMs() <= 0) return Promise.resolve();
    this.#timer ??= setTimeout(() => this.#open(), this.#maxHoldMs);
    const opened = new Promise<void>((resolve) => this.#waiting.push(resolve));
    if (this.#checking === 0) this.#openSoon();
    return opened;
  }

  /** Until those who wait go on; by then more may have come. */
  #restMs(): number {
    const now = performance.now();
    if (this.#crowdAt(now) < CROWD) return 0;
    return Math.min(this.#heldMs + WAVE_MS, this.#crowdMs + LULL_MS) - now;
  }

  #openSoon(): void {
    if (this.#waiting.length === 0 || this.#wave) return;
    const restMs = this.#restMs();
    if (restMs <= 0) return this.#open();
    this.#wave = setTimeout(() => {
      this.#wave = undefined;
      this.#openSoon();
    }, restMs);
  }

  #open(): void {
    clearTimeout(this.#timer);
    clearTimeout(this.#wave);
    this.#timer = undefined;
    this.#wave = undefined;
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const resolve of waiting) resolve();
  }
}
