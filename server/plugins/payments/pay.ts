/**
 * The common flow of money out of a wallet, for spends, fetches and withdrawals:
 * - looks up the idempotency key: a stored response is replayed, a running request is resumed by the state of
 *   its payment;
 * - a new request is reserved, signed, submitted and delivered;
 * - the response is stored with the key.
 */
import type { Hex } from "viem";
import { ApiError } from "../../errors.ts";
import type { Authorization, SignedAuthorization } from "../../core/authorization.ts";
import type { Cover } from "../custody/covers.ts";
import type { IdempotencyRef, JoiningCall } from "../guardrails/types.ts";
import type { Settlement, SettlementRequest } from "../settlement/types.ts";
import {
  answerLost,
  canceled,
  inProgress,
  keyReused,
  notKept,
  type Answer,
  type Idempotency,
} from "./idempotency.ts";
import { awaitEarlierCall, type Joining } from "./joining.ts";
import type { Delivered, PaymentKey, PaymentPlan, Reservation, Settled } from "./payment-plan.ts";
import type { PaymentRow } from "./store.ts";

/** The points between the steps at which a crash test stops the process. */
export type SigningFault = "reserved" | "signed" | "accepted";

export interface PayFlowDeps {
  settlement: Pick<Settlement, "wait">;
  idempotency: Idempotency;
  joining: Pick<Joining, "earlier">;
  /** Stores the signature and marks the payment submitted, in its own transaction or a group's. */
  accept(request: SettlementRequest): Promise<{ created: boolean }>;
  /** Ensures before signing that the contract which takes the money has a sufficient token allowance. */
  allow(payment: { agentId: string; authorization: Authorization; cover: Cover }): Promise<void>;
  sign(agentId: string, authorization: Authorization, cover: Cover): Promise<Hex>;
  isReservationGone(error: unknown): boolean;
  store: {
    find(key: PaymentKey): Promise<PaymentRow | undefined>;
    markUnknown(key: PaymentKey): Promise<void>;
    voidUnsigned(args: PaymentKey & { code: string; detail: string }): Promise<boolean>;
    staleReservations(args: { olderThanSeconds: number; limit: number }): Promise<PaymentKey[]>;
  };
  /** How long a request waits for the outcome on chain. */
  settleWaitMs: number;
  /** Does nothing in production. */
  fault(point: SigningFault): Promise<void>;
  log: Record<"error" | "warn", (fields: object, message: string) => void>;
}

/** A request that runs this much longer than its longest wait has lost its process. */
const ABANDONED_AFTER_MS = 15_000;
const SWEEP_BATCH = 200;
/** Statuses of payments that the engine has accepted. */
const WAS_SUBMITTED: ReadonlySet<PaymentRow["status"]> = new Set([
  "submitted",
  "unknown",
  "settled",
]);
const NEVER_SIGNED = {
  code: "not_signed",
  detail: "The process stopped before it signed the payment.",
};

const whyNotSigned = (error: unknown): string =>
  error instanceof ApiError && /^policy_(not_signed|version_unknown)$/.test(error.code)
    ? error.message
    : "Signing failed.";

export class PayFlow {
  readonly #deps: PayFlowDeps;

  constructor(deps: PayFlowDeps) {
    this.#deps = deps;
  }

  /**
   * Stores what a request received while it waits for proof of its payment; a later request with its key
   * continues from there.
   */
  note(
    idempotency: IdempotencyRef | undefined,
    storedNote: Record<string, unknown>,
  ): Promise<void> {
    return this.#deps.idempotency.note(idempotency, storedNote);
  }

  /**
   * `prepare` runs only if there is no stored response, so a stored one is returned even while the chain is
   * unavailable.
   */
  async run(
    idempotency: IdempotencyRef | undefined,
    prepare: () => Promise<PaymentPlan>,
  ): Promise<Answer> {
    if (idempotency?.joins) return this.#joinOrPay(idempotency, idempotency.joins, prepare);
    const found = await this.#deps.idempotency.lookup(idempotency);
    if (found.kind === "answered") return found.answer;
    const plan = await prepare();
    if (found.kind === "free") {
      if (!plan.returnFreeResponse) throw notKept(found.freeAnswer);
      const body = await plan.returnFreeResponse(found.freeAnswer);
      return { statusCode: 200, body, replayed: false };
    }
    if (found.kind === "running") {
      const payment = await this.#takeOver(plan, found, idempotency);
      if (payment) {
        const key = { agentId: plan.agentId, paymentId: payment.id };
        const delivered = await plan.resume(payment, found.storedNote, idempotency);
        return this.#finish(key, idempotency, delivered, { replayed: true, plan });
      }
    }
    return this.#pay(plan, idempotency);
  }

  /** For a call without a key: joins an earlier call whose response was not delivered, or pays. */
  async #joinOrPay(
    ref: IdempotencyRef,
    joins: JoiningCall,
    prepare: () => Promise<PaymentPlan>,
  ): Promise<Answer> {
    let prepared: Promise<PaymentPlan> | undefined;
    const prepareOnce = (): Promise<PaymentPlan> => (prepared ??= prepare());
    for (;;) {
      const earlier = await this.#deps.joining.earlier(ref, joins);
      if (earlier === undefined) {
        try {
          return await this.#pay(await prepareOnce(), ref);
        } catch (error) {
          // An identical call has reserved meanwhile: join that one.
          if (!(error instanceof ApiError) || error.code !== "idempotency_in_progress") throw error;
        }
        continue;
      }
      const held = { ...ref, key: earlier, joins: undefined };
      const answer = await awaitEarlierCall(
        {
          idempotency: this.#deps.idempotency,
          store: this.#deps.store,
          voidAbandoned: (key) => this.#voidAbandoned(key),
          finish: (key, plan, delivered) =>
            this.#finish(key, held, delivered, { replayed: true, plan }),
        },
        { held, joins, prepare: prepareOnce },
      );
      if (answer) return answer;
    }
  }

  async #pay(plan: PaymentPlan, idempotency: IdempotencyRef | undefined): Promise<Answer> {
    if (idempotency?.isCanceled?.()) throw canceled();
    const reserved = await this.#reserve(plan, idempotency);
    switch (reserved.kind) {
      case "reserved": {
        const signed = await this.#signAndSubmit(plan, reserved, idempotency);
        const key = { agentId: plan.agentId, paymentId: reserved.paymentId };
        const delivered = await reserved.deliver(signed);
        return this.#finish(key, idempotency, delivered, { replayed: false, plan });
      }
      case "free": {
        const { body, freeAnswer } = reserved;
        const isClaimed = plan.isSentOnce !== undefined;
        return this.#deps.idempotency.keepFreeResponse(idempotency, body, freeAnswer, isClaimed);
      }
      case "free_not_stored":
        return { statusCode: 200, body: reserved.body, replayed: false };
      case "approval_requested":
        return { statusCode: 202, body: reserved.body, replayed: false };
      case "denied":
        throw reserved.error;
      case "replay":
        if (idempotency?.joins) throw inProgress(null);
        return this.#deps.idempotency.replay(
          reserved.statusCode,
          reserved.response,
          reserved.paymentId,
        );
      case "canceled":
        throw canceled();
      case "in_progress":
        throw inProgress(reserved.paymentId);
      default:
        throw keyReused();
    }
  }

  /**
   * Waits for the proof of a payment that our engine relays. Without proof in time it is unknown, never failed.
   */
  async settled(
    paymentId: string,
    bodyOf: (proof: Settled) => Record<string, unknown> | Promise<Record<string, unknown>>,
  ): Promise<Delivered> {
    const outcome = await this.#deps.settlement.wait(paymentId, this.#deps.settleWaitMs);
    const txHash = outcome.txHash ?? null;
    switch (outcome.status) {
      case "settled":
        return { kind: "done", body: await bodyOf(outcome) };
      case "pending":
        return {
          kind: "unknown",
          error: new ApiError("payment_status_unknown", { extra: { paymentId, txHash } }),
        };
      default:
        return {
          kind: "failed",
          error: new ApiError("settlement_failed", {
            detail: `The payment was not made: ${outcome.message} The budget is free again.`,
            extra: { paymentId, txHash, reason: outcome.reason },
          }),
        };
    }
  }

  /** For a payment that our engine relays: true when its outcome is decided or its process has died. */
  isDecided(payment: Pick<PaymentRow, "status" | "ageSeconds">): boolean {
    const isOpen = payment.status === "reserved" || payment.status === "submitted";
    return !isOpen || payment.ageSeconds * 1000 > this.#deps.settleWaitMs + ABANDONED_AFTER_MS;
  }

  /**
   * Releases reservations whose process died before it signed. If it signs later after all, its submission
   * fails cleanly.
   */
  async sweepUnsigned(options: { olderThanSeconds: number }): Promise<number> {
    let released = 0;
    for (;;) {
      const stale = await this.#deps.store.staleReservations({ ...options, limit: SWEEP_BATCH });
      const before = released;
      for (const key of stale) if (await this.#release(key, NEVER_SIGNED.detail)) released += 1;
      if (stale.length < SWEEP_BATCH || released === before) break;
    }
    if (released > 0)
      this.#deps.log.warn({ released }, "reservations without a signature released");
    return released;
  }

  async #reserve(plan: PaymentPlan, idempotency: IdempotencyRef | undefined): Promise<Reservation> {
    const { isSentOnce } = plan;
    // Generated keys are not claimed: an identical call joins this one only after it has reserved.
    if (!isSentOnce || idempotency === undefined || idempotency.joins) return plan.reserve();
    if (!(await this.#deps.idempotency.claim(idempotency))) throw inProgress(null);
    try {
      return await plan.reserve();
    } catch (error) {
      // After an unexpected error it is unknown how far the request came: the key stays claimed, and is treated
      // as lost after a while.
      if (error instanceof ApiError)
        await (isSentOnce.mayHaveActed(error)
          ? // A stored response must not ask for a retry, which would return the same response.
            this.#deps.idempotency.keepError(
              idempotency,
              error.status === 429 ? answerLost() : error,
            )
          : this.#deps.idempotency.release(idempotency));
      throw error;
    }
  }

  /** Called before a payment is reserved; reserving claims the key itself. */
  release(idempotency: IdempotencyRef | undefined): Promise<void> {
    return this.#deps.idempotency.release(idempotency);
  }

  /**
   * The key has no response yet: its request runs elsewhere, died, or ended as unknown. The state of its
   * payment decides; there is never a second payment. Undefined: nothing was signed, and the key is free again.
   */
  async #takeOver(
    plan: PaymentPlan,
    { paymentId, ageSeconds }: { paymentId: string | null; ageSeconds: number },
    idempotency: IdempotencyRef | undefined,
  ): Promise<PaymentRow | undefined> {
    if (paymentId === null && plan.isSentOnce)
      throw ageSeconds * 1000 > plan.isSentOnce.longestMs ? answerLost() : inProgress(null);
    if (paymentId === null) {
      // Nothing was to be paid, and the process died before it stored the response.
      await this.#deps.idempotency.release(idempotency);
      return undefined;
    }
    const key = { agentId: plan.agentId, paymentId };
    const payment = await this.#deps.store.find(key);
    if (!payment || !plan.isOver(payment)) throw inProgress(paymentId);
    // Another request with this key released it after this one read the key: whichever reserves next gets the
    // key.
    if (payment.status === "voided" && payment.failureCode === NEVER_SIGNED.code) return undefined;
    if (payment.status !== "reserved") return payment;
    // Another request released it, or it was signed after all: the next request sees which.
    if (!(await this.#voidAbandoned(key))) throw inProgress(paymentId);
    return undefined;
  }

  #voidAbandoned(key: PaymentKey): Promise<boolean> {
    return this.#deps.store.voidUnsigned({ ...key, ...NEVER_SIGNED });
  }

  /**
   * Takes a reservation to a signature that the engine has accepted. One statement stores the signature and
   * marks the payment submitted, and fails if the reservation is gone: until then the signature is not used.
   */
  async #signAndSubmit(
    { agentId, kind, relay }: PaymentPlan,
    { paymentId, authorization, cover }: Extract<Reservation, { kind: "reserved" }>,
    idempotency: IdempotencyRef | undefined,
  ): Promise<SignedAuthorization> {
    let signed: SignedAuthorization | undefined;
    try {
      await this.#deps.fault("reserved");
      if (idempotency?.isCanceled?.()) throw canceled();
      await this.#deps.allow({ agentId, authorization, cover });
      const signature = await this.#deps.sign(agentId, authorization, cover);
      await this.#deps.fault("signed");
      signed = { ...authorization, signature };
      const request = { id: paymentId, kind, agentId, authorization: signed, relay };
      const { created } = await this.#deps.accept(request);
      if (!created) throw new Error(`authorization ${authorization.nonce} exists already`);
      await this.#deps.fault("accepted");
      return signed;
    } catch (error) {
      if (this.#deps.isReservationGone(error) && (await this.#isCanceled({ agentId, paymentId })))
        throw canceled(error);
      if (this.#deps.isReservationGone(error))
        throw new ApiError("service_unavailable", {
          detail: "The reservation expired before the payment was signed. Nothing was paid. Retry.",
          cause: error,
        });
      // The payment may be submitted and only the database response lost: the row decides.
      const released = await this.#release({ agentId, paymentId }, whyNotSigned(error));
      if (released === true || signed === undefined) throw error;
      const payment = await this.#deps.store.find({ agentId, paymentId }).catch(() => undefined);
      if (payment && WAS_SUBMITTED.has(payment.status)) return signed;
      if (payment?.status === "voided") throw error;
      throw new ApiError("payment_status_unknown", {
        extra: { paymentId, txHash: null },
        cause: error,
      });
    }
  }

  /** A cancellation, possibly in another process, has released the reservation. */
  async #isCanceled(key: PaymentKey): Promise<boolean> {
    const payment = await this.#deps.store.find(key).catch(() => undefined);
    return payment?.failureCode === "call_canceled";
  }

  /** Undefined when it could not be released now: the sweep tries again. */
  async #release(key: PaymentKey, detail: string): Promise<boolean | undefined> {
    try {
      return await this.#deps.store.voidUnsigned({ ...key, code: NEVER_SIGNED.code, detail });
    } catch (error) {
      this.#deps.log.error({ err: error, ...key }, "reservation not released yet");
      return undefined;
    }
  }

  async #finish(
    key: PaymentKey,
    idempotency: IdempotencyRef | undefined,
    delivered: Delivered,
    { replayed, plan }: { replayed: boolean; plan: PaymentPlan },
  ): Promise<Answer> {
    // What our engine relays is returned from the ledger, so no response is stored for calls without a key.
    const kept = idempotency?.joins && plan.relay ? undefined : idempotency;
    const joins = idempotency?.joins;
    if (delivered.kind === "done") {
      const answer: Answer = { statusCode: 200, body: delivered.body, replayed };
      const storedAnswer = await this.#deps.idempotency.keep(kept, answer);
      await delivered.afterwards?.();
      if (joins) joins.answeredBy = idempotency.key;
      return storedAnswer;
    }
    const { kind, error } = delivered;
    if (kind === "failed") await this.#deps.idempotency.keepError(kept, error);
    else await this.#deps.store.markUnknown(key);
    await delivered.afterwards?.();
    if (joins && kind === "failed") joins.answeredBy = idempotency.key;
    throw error;
  }
}
