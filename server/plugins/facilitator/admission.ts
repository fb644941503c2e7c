/** Before a settlement: identifies the caller for retries, and groups payments that arrive in a burst. */
import { createHash } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import type { SettlementRow } from "../settlement/types.ts";

/**
 * Identifies the caller of a settle for its retries, by the Idempotency-Key header that the seller sets. The
 * payload identifies no one: the payer wrote it, including its `payment-identifier`.
 */
export interface CallerProof {
  readonly bodyHash: Uint8Array;
  /** Null when the request has no key. */
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
 * Whether this is a request like the settlement's first one: with the same key and body, which proves the same
 * caller; or without a key like the first, which proves nothing, whatever the body.
 */
export const isLikeFirst = (row: SettlementRow, proof: CallerProof): boolean =>
  row.callerKeyHash === null || proof.callerKeyHash === null
    ? row.callerKeyHash === proof.callerKeyHash
    : isEqual(row.callerKeyHash, proof.callerKeyHash) && isEqual(row.bodyHash, proof.bodyHash);

/**
 * Whether any caller may get this success. Signatures of spends and withdrawals are public once they are on
 * chain, and so are agents' payments that another facilitator relayed: presenting them here proves nothing.
 */
export const mayReturnSuccess = (row: SettlementRow): boolean =>
  row.kind === "facilitated" || (row.kind === "x402" && row.relay);

const hash = (text: string): Uint8Array => createHash("sha256").update(text).digest();
const isEqual = (left: Uint8Array | null, right: Uint8Array): boolean =>
  left !== null && Buffer.compare(left, right) === 0;

/** This many arrivals at about the same time are a burst; an arrival counts for about this long. */
const BURST_SIZE = 16;
const BURST_DECAY_MS = 40;
/** In a burst, looking up one payment costs as much as looking up all that arrive within this time, ... */
const GATHER_MS = 8;
/**
 * ... and storing one as much as storing all. So they are collected until none arrives for a moment, or until
 * the first has waited this long.
 */
const QUIET_MS = 12;
const MAX_COLLECT_MS = 100;

/**
 * Groups payments that arrive together, so that a burst fills whole batches. A payment that comes alone passes
 * immediately; in a burst, checked payments wait for those still being checked, and continue in groups.
 */
export class BurstHold {
  readonly #maxHoldMs: number;
  #checking = 0;
  #waiting: (() => void)[] = [];
  #holdTimer: NodeJS.Timeout | undefined;
  #collectTimer: NodeJS.Timeout | undefined;
  /** When the first of the waiting payments began to wait. */
  #heldMs = 0;
  #entering: Promise<void> | undefined;
  /** The number of recent arrivals; each counts less the older it is. */
  #arrivals = 0;
  #arrivalsAtMs = 0;

  constructor(maxHoldMs: number) {
    this.#maxHoldMs = maxHoldMs;
  }

  /**
   * Payments that arrive in a burst wait for the next ones, so that they are looked up and checked together.
   */
  enter(): Promise<void> | undefined {
    const now = performance.now();
    this.#arrivals = this.#arrivalsAt(now) + 1;
    this.#arrivalsAtMs = now;
    if (this.#arrivals < BURST_SIZE) return undefined;
    this.#entering ??= this.#gather();
    return this.#entering;
  }

  async #gather(): Promise<void> {
    await sleep(GATHER_MS);
    this.#entering = undefined;
  }

  #arrivalsAt(now: number): number {
    return this.#arrivals * Math.exp((this.#arrivalsAtMs - now) / BURST_DECAY_MS);
  }

  /** Runs a check; others may wait until it ends. */
  async during<T>(check: () => Promise<T>): Promise<T> {
    this.#checking += 1;
    try {
      return await check();
    } finally {
      this.#checking -= 1;
      if (this.#checking === 0) this.#openSoon();
    }
  }

  /** Resolves when nothing is being checked, or after the longest hold. */
  quiet(): Promise<void> {
    if (this.#waiting.length === 0) this.#heldMs = performance.now();
    if (this.#checking === 0 && this.#restMs() <= 0) return Promise.resolve();
    this.#holdTimer ??= setTimeout(() => this.#open(), this.#maxHoldMs);
    const opened = new Promise<void>((resolve) => this.#waiting.push(resolve));
    if (this.#checking === 0) this.#openSoon();
    return opened;
  }

  /** The time until the waiting payments continue; more may have arrived by then. */
  #restMs(): number {
    const now = performance.now();
    if (this.#arrivalsAt(now) < BURST_SIZE) return 0;
    return Math.min(this.#heldMs + MAX_COLLECT_MS, this.#arrivalsAtMs + QUIET_MS) - now;
  }

  #openSoon(): void {
    if (this.#waiting.length === 0 || this.#collectTimer) return;
    const restMs = this.#restMs();
    if (restMs <= 0) return this.#open();
    this.#collectTimer = setTimeout(() => {
      this.#collectTimer = undefined;
      this.#openSoon();
    }, restMs);
  }

  #open(): void {
    clearTimeout(this.#holdTimer);
    clearTimeout(this.#collectTimer);
    this.#holdTimer = undefined;
    this.#collectTimer = undefined;
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const resolve of waiting) resolve();
  }
}
