/**
 * A facilitator client with several facilitators behind it, in order of preference. A verification goes to the next one
 * when one does not answer. A settlement goes to the next one only when the one before did not take it; otherwise it is
 * unknown until a facilitator or the chain says what happened. docs/decisions/0042-two-facilitators.md has every case.
 */
import { randomUUID } from "node:crypto";
import { isDeepStrictEqual } from "node:util";
import type { FacilitatorClient } from "@x402/core/server";
import type {
  PaymentPayload,
  PaymentRequirements,
  SettleResponse,
  SupportedResponse,
  VerifyResponse,
} from "@x402/core/types";
import { FacilitatorFault, notSettled, UNKNOWN_OUTCOME } from "./answers.ts";
import { candidatesFor } from "./candidates.ts";
import { proveTransfer, type ChainProof } from "./chain-proof.ts";
import type { FacilitatorEntry } from "./facilitator-call.ts";
import { Endpoint, type CallTimeouts, type FacilitatorHealth } from "./facilitator-endpoint.ts";
import { UPTO } from "./scheme.ts";
import { signedTransferIn, type SignedTransfer } from "./signed-transfer.ts";
import { Expiring, OneProcessStore, type PaywallStore } from "./store.ts";

export interface FailoverOptions {
  /** In order of preference. */
  facilitators: readonly FacilitatorEntry[];
  /**
   * Your own nodes by CAIP-2 id. With one, a payment over EIP-3009 whose outcome no facilitator reports is read from the
   * chain.
   */
  rpcUrls?: Readonly<Record<string, string>> | undefined;
  /**
   * Records which payments were delivered. Several processes that take the same payments need one for all; by default it is
   * in the memory of this process.
   */
  store?: Pick<PaywallStore, "useNonce"> | undefined;
  /** Reports faults that no answer to the payer mentions. */
  onFault?: ((error: unknown, what: string) => void) | undefined;
  /** For each call, in milliseconds. Default: 5,000 for a verification, 30,000 for a settlement. */
  timeoutMs?: { verify?: number; settle?: number } | undefined;
  /** For how long a facilitator is skipped after its first failure (10,000); twice as long after each further one. */
  skipMs?: number | undefined;
}

/** A payment that may be settled: the same request is sent again until its outcome is known. */
interface Attempt {
  payment: SignedTransfer;
  payload: PaymentPayload;
  requirements: PaymentRequirements;
  idempotencyKey: string;
  startedMs: number;
  /** These may have settled it. */
  askedBefore: Set<Endpoint>;
}

/** A facilitator that was sent a payment before has settled it by now, or says that it is pending. */
const ASK_AGAIN_MS = 5_000;
const SUPPORTED_MS = 5_000;
/** Payments with an unknown outcome are remembered for this long; longer than they are valid. */
const REMEMBERED_MS = 600_000;
const MAX_REMEMBERED = 10_000;
const CLAIMED_MS = 60_000;
const MAX_CLAIMED_MS = 3_600_000;

const NOTHING_SETTLED =
  "No facilitator took the payment, so nothing was settled. The same payment can be sent again.";

export class FailoverFacilitatorClient implements FacilitatorClient {
  readonly #endpoints: readonly Endpoint[];
  readonly #store: Pick<PaywallStore, "useNonce">;
  readonly #rpcUrls: Readonly<Record<string, string>>;
  readonly #onFault: (error: unknown, what: string) => void;
  readonly #unknown = new Expiring<Attempt>();
  /** Payments with a settlement in progress in this process. */
  readonly #busy = new Set<string>();
  #offered: SupportedResponse | undefined;

  constructor(options: FailoverOptions) {
    const { facilitators, rpcUrls = {}, store, timeoutMs, skipMs = 10_000 } = options;
    if (facilitators.length === 0) throw new Error("the list of facilitators is empty");
    const { verify = 5_000, settle = 30_000 } = timeoutMs ?? {};
    const timeouts: CallTimeouts = { verify, settle, supported: SUPPORTED_MS };
    const { onFault = () => undefined } = options;
    this.#onFault = onFault;
    this.#endpoints = facilitators.map(
      (entry, at) => new Endpoint(entry, at, { timeouts, skipMs, onFault }),
    );
    this.#store = store ?? new OneProcessStore();
    this.#rpcUrls = rpcUrls;
  }

  health(): FacilitatorHealth[] {
    return this.#endpoints.map((endpoint) => endpoint.health());
  }

  /** What offers are made of: the payments that the first working facilitator supports. */
  get offered(): SupportedResponse | undefined {
    const first = this.#endpoints.find(({ isUsable, supported }) => isUsable && supported);
    this.#offered = first?.supported ?? this.#offered;
    return this.#offered;
  }

  async getSupported(): Promise<SupportedResponse> {
    await Promise.all(this.#endpoints.map((endpoint) => endpoint.learn()));
    const { offered } = this;
    if (!offered)
      throw new FacilitatorFault(503, "No facilitator's supported payments can be read.");
    return offered;
  }

  async verify(
    payload: PaymentPayload,
    requirements: PaymentRequirements,
  ): Promise<VerifyResponse> {
    const payment = signedTransferIn(payload, requirements);
    const attempt = payment && this.#unknown.get(payment.key);
    // It may be settled already, and a verification would call it used: only a settlement says what happened.
    if (
      attempt &&
      isSamePayment(attempt, payload) &&
      isSameSale(attempt.requirements, requirements, "anyAmount")
    )
      return { isValid: true, payer: attempt.payment.from };
    let last: unknown;
    for await (const endpoint of this.#inTurn(payload, requirements)) {
      const result = await endpoint.verify(payload, requirements);
      if (result.kind !== "answered") {
        last = result.error;
      } else if (
        result.answer.isValid ||
        result.answer.invalidReason !== "unexpected_verify_error"
      ) {
        return result.answer;
      } else {
        last = new Error(result.answer.invalidReason);
      }
    }
    throw new FacilitatorFault(503, "No facilitator can be reached to verify the payment.", {
      cause: last,
    });
  }

  async settle(
    payload: PaymentPayload,
    requirements: PaymentRequirements,
  ): Promise<SettleResponse> {
    const payment = signedTransferIn(payload, requirements);
    if (!payment) return this.#settleAtOne(payload, requirements);
    const { key, from } = payment;
    const known = this.#unknown.get(key);
    const isOther =
      known && !(isSamePayment(known, payload) && isSameSale(known.requirements, requirements));
    if (isOther || this.#busy.has(key)) {
      const why = isOther ? "was used for a different request" : "is in use by another request";
      return notSettled(requirements, "duplicate_settlement", `This payment ${why}.`, from);
    }
    this.#busy.add(key);
    try {
      const attempt = known ?? {
        payment,
        payload,
        requirements,
        idempotencyKey: randomUUID(),
        startedMs: Date.now(),
        askedBefore: new Set<Endpoint>(),
      };
      return await this.#settle(attempt);
    } finally {
      this.#busy.delete(key);
    }
  }

  /** Marks a payment as delivered; false where it was delivered before. */
  async claim(payload: PaymentPayload, requirements: PaymentRequirements): Promise<boolean> {
    const payment = signedTransferIn(payload, requirements);
    return payment !== undefined && this.#claim(payment);
  }

  /** Other schemes: a second facilitator cannot know what a first one did, so there is only one. */
  async #settleAtOne(
    payload: PaymentPayload,
    requirements: PaymentRequirements,
  ): Promise<SettleResponse> {
    const [endpoint] = await this.#candidates(payload, requirements);
    const result = await endpoint?.settle(payload, requirements);
    if (result?.kind === "answered") return result.answer;
    if (result?.kind === "unanswered")
      throw new FacilitatorFault(502, UNKNOWN_OUTCOME, { cause: result.error });
    throw new FacilitatorFault(503, NOTHING_SETTLED, { cause: result?.error });
  }

  async #settle(attempt: Attempt): Promise<SettleResponse> {
    const { payload, requirements, askedBefore, idempotencyKey } = attempt;
    const isRepeat = askedBefore.size > 0;
    let last: unknown;
    for await (const endpoint of this.#inTurn(payload, requirements, askedBefore)) {
      const again = { idempotencyKey, timeoutMs: ASK_AGAIN_MS };
      let result = await endpoint.settle(
        payload,
        requirements,
        askedBefore.has(endpoint) ? again : { idempotencyKey },
      );
      if (result.kind === "unanswered" && !askedBefore.has(endpoint)) {
        askedBefore.add(endpoint);
        result = await endpoint.settle(payload, requirements, again);
      }
      if (result.kind === "answered") {
        const { answer } = result;
        if (answer.success) return this.#paid(attempt, answer, endpoint);
        if (answer.errorReason === "settlement_pending") {
          askedBefore.add(endpoint);
          this.#remember(attempt);
          return answer;
        }
        // It may be refused because it is settled: by this facilitator earlier, or by another one.
        if (askedBefore.size > 0) break;
        return answer;
      }
      last = result.error;
      // The payer asks again: this payment has one nonce, so another facilitator cannot charge it a second time.
      if (result.kind === "unanswered" && !isRepeat) break;
    }
    if (askedBefore.size === 0) throw new FacilitatorFault(503, NOTHING_SETTLED, { cause: last });
    return this.#decide(attempt);
  }

  /** Facilitators may have settled it, and none says so: the chain decides, or it stays unknown. */
  async #decide(attempt: Attempt): Promise<SettleResponse> {
    const { payment, requirements } = attempt;
    const proof = await this.#prove(attempt);
    if (proof.kind === "settled") {
      const { transaction } = proof;
      const { network, amount } = requirements;
      const payer = payment.from;
      return this.#paid(attempt, { success: true, transaction, network, payer, amount });
    }
    if (proof.kind === "expired") {
      this.#unknown.delete(payment.key);
      return notSettled(requirements, EXPIRED, "The payment expired unused.", payment.from);
    }
    this.#remember(attempt);
    return this.#unknownOutcome(attempt);
  }

  readonly #unknownOutcome = ({ requirements, payment }: Attempt): SettleResponse =>
    notSettled(
      requirements,
      "settlement_pending",
      `${UNKNOWN_OUTCOME} Do not pay again.`,
      payment.from,
    );

  async #prove({ payment, startedMs }: Attempt): Promise<ChainProof> {
    const { transfer } = payment;
    const rpcUrl = transfer && this.#rpcUrls[transfer.network];
    if (rpcUrl === undefined || !transfer) return { kind: "unknown" };
    try {
      return await proveTransfer(rpcUrl, transfer, startedMs);
    } catch (error) {
      this.#onFault(error, "the chain cannot be read: the outcome of a payment stays unknown");
      return { kind: "unknown" };
    }
  }

  /** One payment gets one success, whichever facilitators report it, and in however many processes. */
  async #paid(
    attempt: Attempt,
    answer: SettleResponse,
    endpoint?: Endpoint,
  ): Promise<SettleResponse> {
    const { payment, requirements } = attempt;
    let isFirst: boolean;
    try {
      isFirst = await this.#claim(payment);
    } catch (error) {
      this.#onFault(error, "a payment is settled, and cannot be recorded as delivered");
      if (endpoint) attempt.askedBefore.add(endpoint);
      this.#remember(attempt);
      return { ...this.#unknownOutcome(attempt), transaction: answer.transaction };
    }
    this.#unknown.delete(payment.key);
    if (isFirst) return answer;
    const why = "Another request was served for this payment.";
    const { transaction } = answer;
    return { ...notSettled(requirements, "duplicate_settlement", why, payment.from), transaction };
  }

  #claim({ key, validUntilMs }: SignedTransfer): Promise<boolean> {
    const nowMs = Date.now();
    const untilMs = Math.min(Math.max(validUntilMs, nowMs) + CLAIMED_MS, nowMs + MAX_CLAIMED_MS);
    return this.#store.useNonce(`delivered ${key}`, new Date(untilMs));
  }

  #remember(attempt: Attempt): void {
    const { key } = attempt.payment;
    if (this.#unknown.get(key) || this.#unknown.size < MAX_REMEMBERED)
      this.#unknown.set(key, attempt, Date.now() + REMEMBERED_MS);
  }

  async #candidates(
    payload: PaymentPayload,
    requirements: PaymentRequirements,
  ): Promise<Endpoint[]> {
    await Promise.all(this.#endpoints.map((endpoint) => endpoint.learn()));
    return candidatesFor(this.#endpoints, payload, requirements);
  }

  /** `first` before all others; then those that work, and at last those that are skipped. */
  async *#inTurn(
    payload: PaymentPayload,
    requirements: PaymentRequirements,
    first: ReadonlySet<Endpoint> = new Set(),
  ): AsyncGenerator<Endpoint> {
    const asked = new Set(first);
    yield* Array.from(first);
    const candidates = await this.#candidates(payload, requirements);
    for (const mayBeSkipped of [false, true])
      for (const endpoint of candidates) {
        if (asked.has(endpoint) || !(mayBeSkipped || endpoint.isUsable)) continue;
        asked.add(endpoint);
        yield endpoint;
      }
  }
}

/** A nonce is public once it is used: only who repeats the whole signed payment is served for it. */
const isSamePayment = ({ payload }: Attempt, other: PaymentPayload): boolean =>
  isDeepStrictEqual(payload.payload, other.payload);

const EXPIRED = "invalid_exact_evm_payload_authorization_valid_before";

/** A charge by use settles a part of what was offered. */
function isSameSale(
  one: PaymentRequirements,
  other: PaymentRequirements,
  amounts?: "anyAmount",
): boolean {
  const isAmountFixed = amounts === undefined && one.scheme !== UPTO.name;
  return (
    one.scheme === other.scheme &&
    one.network === other.network &&
    one.asset === other.asset &&
    one.payTo === other.payTo &&
    (!isAmountFixed || one.amount === other.amount)
  );
}
