/** How many settlements one payer may start in a minute. Protects the relayer's gas from one hand; counted per process. */
import { ApiError } from "../../errors.ts";

const WINDOW_MS = 60_000;
const MAX_PAYERS = 50_000;

export class PayerLimit {
  readonly #perMinute: number;
  readonly #nowMs: () => number;
  #windowStartMs = 0;
  readonly #counts = new Map<string, number>();

  constructor(perMinute: number, nowMs: () => number = Date.now) {
    this.#perMinute = perMinute;
    this.#nowMs = nowMs;
  }

  /** Throws `rate_limited`. Ask only for payments the payer really signed. */
  admit(payer: string): void {
    const nowMs = this.#nowMs();
    if (nowMs - this.#windowStartMs >= WINDOW_MS || this.#counts.size > MAX_PAYERS) {
      this.#windowStartMs = nowMs;
      this.#counts.clear();
    }
    const count = (this.#counts.get(payer) ?? 0) + 1;
    this.#counts.set(payer, count);
    if (count <= this.#perMinute) return;
    const retryAfterSeconds = Math.ceil((this.#windowStartMs + WINDOW_MS - nowMs) / 1000);
    throw new ApiError("rate_limited", {
      detail: `This payer may start ${this.#perMinute} settlements per minute.`,
      extra: { retryAfterSeconds },
      headers: { "retry-after": String(retryAfterSeconds) },
    });
  }
}
