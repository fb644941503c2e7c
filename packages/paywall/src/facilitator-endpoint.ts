/**
 * One facilitator of a list: what it supports, and whether it works. After a failure it is skipped for a while; then its
 * list of supported payments is read, and one payment tries it again.
 */
import type { FacilitatorClient } from "@x402/core/server";
import type { PaymentPayload, PaymentRequirements, SupportedResponse } from "@x402/core/types";
import {
  callSettle,
  callVerify,
  clientMaker,
  isClient,
  nameOf,
  type CallResult,
  type FacilitatorEntry,
} from "./facilitator-call.ts";

export interface FacilitatorHealth {
  /** Its URL, or its place in the list. */
  facilitator: string;
  /** `recovering`: it answers again, and the next payment tries it. */
  state: "healthy" | "skipped" | "recovering";
  /** Failures since it last worked. */
  failures: number;
  /** A code such as `ECONNREFUSED` or `HTTP 503`. */
  lastError?: string;
  skippedUntil?: string;
  /** When its supported payments were last read. */
  supportedAt?: string;
}

export interface CallTimeouts {
  verify: number;
  settle: number;
  supported: number;
}

const MAX_SKIP_MS = 300_000;
const SUPPORTED_FOR_MS = 300_000;

export class Endpoint {
  readonly name: string;
  readonly #client: (timeoutMs: number, idempotencyKey?: string) => FacilitatorClient;
  readonly #timeouts: CallTimeouts;
  readonly #skipMs: number;
  readonly #onFault: (error: unknown, what: string) => void;
  #supported: { response: SupportedResponse; readMs: number } | undefined;
  #reading: Promise<SupportedResponse | undefined> | undefined;
  #failures = 0;
  #lastError: string | undefined;
  #skippedUntilMs = 0;
  #isRecovering = false;
  #isTried = false;

  constructor(
    entry: FacilitatorEntry,
    place: number,
    {
      timeouts,
      skipMs,
      onFault,
    }: {
      timeouts: CallTimeouts;
      skipMs: number;
      onFault: (error: unknown, what: string) => void;
    },
  ) {
    this.name =
      typeof entry === "string" ? entry : isClient(entry) ? `facilitator ${place + 1}` : entry.url;
    this.#client = clientMaker(entry);
    this.#timeouts = timeouts;
    this.#skipMs = skipMs;
    this.#onFault = onFault;
  }

  get isHealthy(): boolean {
    return this.#failures === 0;
  }

  /** Whether the next payment may use it: it works, or it is the turn of one payment to try it again. */
  get isUsable(): boolean {
    this.#lookAfter();
    return this.isHealthy || (this.#isRecovering && !this.#isTried);
  }

  /** The last known response; undefined where it was never read. */
  get supported(): SupportedResponse | undefined {
    return this.#supported?.response;
  }

  /** Reads what it supports, unless that is known or it is skipped. */
  async learn(): Promise<SupportedResponse | undefined> {
    this.#lookAfter();
    if (this.#supported) return this.supported;
    // Nobody waits for one that fails.
    return this.isHealthy ? this.#read() : undefined;
  }

  async verify(...sent: [PaymentPayload, PaymentRequirements]) {
    return this.#record(() => callVerify(this.#client(this.#timeouts.verify), ...sent));
  }

  /** `timeoutMs`: for a payment that it was sent before. */
  async settle(
    payload: PaymentPayload,
    requirements: PaymentRequirements,
    {
      idempotencyKey,
      timeoutMs = this.#timeouts.settle,
    }: { idempotencyKey?: string; timeoutMs?: number } = {},
  ) {
    const client = this.#client(timeoutMs, idempotencyKey);
    return this.#record(() => callSettle(client, payload, requirements));
  }

  health(): FacilitatorHealth {
    this.#lookAfter();
    const state = this.isHealthy ? "healthy" : this.#isRecovering ? "recovering" : "skipped";
    return {
      facilitator: this.name,
      state,
      failures: this.#failures,
      ...(this.#lastError !== undefined && !this.isHealthy && { lastError: this.#lastError }),
      ...(state === "skipped" && { skippedUntil: new Date(this.#skippedUntilMs).toISOString() }),
      ...(this.#supported && { supportedAt: new Date(this.#supported.readMs).toISOString() }),
    };
  }

  async #record<Answer>(call: () => Promise<CallResult<Answer>>): Promise<CallResult<Answer>> {
    this.#isTried = true;
    try {
      const result = await call();
      if (result.kind === "answered") this.#worked();
      else this.#failed(result.error);
      return result;
    } finally {
      this.#isTried = false;
    }
  }

  #worked(): void {
    this.#failures = 0;
    this.#isRecovering = false;
  }

  #failed(error: unknown): void {
    this.#failures += 1;
    // Once for each outage.
    if (this.#failures === 1)
      this.#onFault(error, `${this.name} does not work, and is skipped for a while`);
    this.#lastError = nameOf(error);
    this.#isRecovering = false;
    const skipMs = Math.min(this.#skipMs * 2 ** Math.min(this.#failures - 1, 20), MAX_SKIP_MS);
    this.#skippedUntilMs = Date.now() + skipMs;
  }

  /** Nobody waits for this: a facilitator that comes back, or changes what it supports, is noticed in the background. */
  #lookAfter(): void {
    const nowMs = Date.now();
    const isDue = this.isHealthy
      ? this.#supported !== undefined && nowMs - this.#supported.readMs > SUPPORTED_FOR_MS
      : !this.#isRecovering && nowMs >= this.#skippedUntilMs;
    if (isDue) void this.#read();
  }

  #read(): Promise<SupportedResponse | undefined> {
    this.#reading ??= this.#client(this.#timeouts.supported)
      .getSupported()
      .then(
        (response) => {
          this.#supported = { response, readMs: Date.now() };
          if (!this.isHealthy) this.#isRecovering = true;
          return response;
        },
        (error: unknown) => {
          this.#failed(error);
          return undefined;
        },
      )
      .finally(() => {
        this.#reading = undefined;
      });
    return this.#reading;
  }
}
