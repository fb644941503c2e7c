/**
 * The steps that every payment takes between its reservation and its answer: sign, accept, wait. Spends, fetches
 * and withdrawals call them in this order (spend.ts shows the whole request). A process may die between any two:
 * - reserved, not signed: the sweep, or the next request with the key, releases the reservation;
 * - signed, not accepted: the same, because the signature was stored nowhere;
 * - accepted: the engine settles it, and the next request with the key returns the outcome.
 */
import type { Hex } from "viem";
import { ApiError } from "../../errors.ts";
import type { Authorization, SignedAuthorization } from "../../core/authorization.ts";
import type { Cover } from "../custody/covers.ts";
import type { Settlement, SettlementOutcome, SettlementRequest } from "../settlement/types.ts";
import {
  canceled,
  NOT_SIGNED,
  type Call,
  type PaymentKey,
  type PaymentResult,
} from "./idempotency.ts";
import type { PaymentRow } from "./store.ts";

/** The points between the steps at which a crash test stops the process. */
export type PaymentFault = "reserved" | "signed" | "accepted";

/** What was reserved, and what allows it to be signed: the agent's policy, an approval or an order of the owner. */
export interface Reserved {
  agentId: string;
  /** Also the id of the settlement. */
  paymentId: string;
  authorization: Authorization;
  cover: Cover;
}

/** A settlement that the chain has proved. */
export type Settled = Extract<SettlementOutcome, { status: "settled" }>;

export interface PaymentStepsDeps {
  settlement: Pick<Settlement, "wait">;
  /** Ensures before signing that the contract which takes the money has a sufficient token allowance. */
  allow(payment: { agentId: string; authorization: Authorization; cover: Cover }): Promise<void>;
  sign(agentId: string, authorization: Authorization, cover: Cover): Promise<Hex>;
  /** Stores the signature and marks the payment submitted, in one statement. */
  accept(request: SettlementRequest): Promise<{ created: boolean }>;
  isReservationGone(error: unknown): boolean;
  payments: {
    find(key: PaymentKey): Promise<PaymentRow | undefined>;
    voidUnsigned(args: PaymentKey & { code: string; detail: string }): Promise<boolean>;
    staleReservations(args: { olderThanSeconds: number; limit: number }): Promise<PaymentKey[]>;
  };
  /** How long a request waits for the outcome on chain. */
  settleWaitMs: number;
  /** Does nothing in production. */
  fault(point: PaymentFault): Promise<void>;
  log: Record<"error" | "warn", (fields: object, message: string) => void>;
}

/** The longest time for which something is signed. */
export const MAX_VALID_SECONDS = 120;

const SWEEP_BATCH = 200;
/** Statuses of payments that the engine has accepted. */
const WAS_SUBMITTED: ReadonlySet<PaymentRow["status"]> = new Set([
  "submitted",
  "unknown",
  "settled",
]);

export class PaymentSteps {
  readonly #deps: PaymentStepsDeps;

  constructor(deps: PaymentStepsDeps) {
    this.#deps = deps;
  }

  /** Signs what was reserved. */
  async sign(
    { agentId, paymentId, authorization, cover }: Reserved,
    call: Call,
  ): Promise<SignedAuthorization> {
    return this.signOrRelease({ agentId, paymentId }, call, async () => {
      await this.#deps.allow({ agentId, authorization, cover });
      return { ...authorization, signature: await this.#deps.sign(agentId, authorization, cover) };
    });
  }

  /** Runs what signs a reserved payment. On any failure the reservation is released. */
  async signOrRelease<Signed>(
    { agentId, paymentId }: PaymentKey,
    call: Call,
    sign: () => Promise<Signed>,
  ): Promise<Signed> {
    try {
      await this.#deps.fault("reserved");
      if (call.isCanceled) throw canceled();
      const signed = await sign();
      await this.#deps.fault("signed");
      return signed;
    } catch (error) {
      await this.#release({ agentId, paymentId }, whyNotSigned(error));
      throw error;
    }
  }

  /** Gives the signed payment to the engine. `relay`: our engine sends it; otherwise a seller does. */
  async accept(
    { agentId, paymentId }: PaymentKey,
    payment: Pick<SettlementRequest, "kind" | "relay" | "authorization">,
  ): Promise<void> {
    await this.storeOrRelease({ agentId, paymentId }, async () => {
      const { created } = await this.#deps.accept({ id: paymentId, agentId, ...payment });
      if (!created) throw new Error(`authorization ${payment.authorization.nonce} exists already`);
    });
  }

  /**
   * Runs the statement that stores what was signed. Until it commits, the signature has not left this function; it fails if
   * the reservation is gone.
   */
  async storeOrRelease(
    { agentId, paymentId }: PaymentKey,
    store: () => Promise<void>,
  ): Promise<void> {
    const key = { agentId, paymentId };
    try {
      await store();
      await this.#deps.fault("accepted");
    } catch (error) {
      if (this.#deps.isReservationGone(error)) throw whyGone(await this.#find(key), error);
      // The payment may be submitted and only the database's answer lost: the row decides.
      if ((await this.#release(key, whyNotSigned(error))) === true) throw error;
      const row = await this.#find(key);
      if (row && WAS_SUBMITTED.has(row.status)) return;
      // Somebody else released it. Its permit, and so its authorization, may be another payment's by now.
      if (row?.status === "voided") throw whyGone(row, error);
      throw new ApiError("payment_status_unknown", {
        extra: { paymentId, txHash: null },
        cause: error,
      });
    }
  }

  /** Waits for the proof of a payment that our engine relays. Without proof in time it is unknown, never failed. */
  async wait(paymentId: string): Promise<SettlementOutcome> {
    return this.#deps.settlement.wait(paymentId, this.#deps.settleWaitMs);
  }

  /**
   * Releases reservations whose process died before it signed. If it signs later after all, its submission
   * fails cleanly.
   */
  async sweepUnsigned(options: { olderThanSeconds: number }): Promise<number> {
    const { payments, log } = this.#deps;
    let released = 0;
    for (;;) {
      const stale = await payments.staleReservations({ ...options, limit: SWEEP_BATCH });
      const before = released;
      for (const key of stale) if (await this.#release(key, NOT_SIGNED.detail)) released += 1;
      if (stale.length < SWEEP_BATCH || released === before) break;
    }
    if (released > 0) log.warn({ released }, "reservations without a signature released");
    return released;
  }

  #find(key: PaymentKey) {
    return this.#deps.payments.find(key).catch(() => undefined);
  }

  /** Undefined when it could not be released now: the sweep tries again. */
  async #release(key: PaymentKey, detail: string): Promise<boolean | undefined> {
    try {
      return await this.#deps.payments.voidUnsigned({ ...key, code: NOT_SIGNED.code, detail });
    } catch (error) {
      this.#deps.log.error({ err: error, ...key }, "reservation not released yet");
      return undefined;
    }
  }
}

/** A cancellation, possibly in another process, or the sweep has released the reservation. */
function whyGone(payment: { failureCode: string | null } | undefined, cause: unknown): ApiError {
  if (payment?.failureCode === "call_canceled") return canceled(cause);
  return new ApiError("service_unavailable", {
    detail:
      "The reservation expired before the payment was signed. Nothing was paid by it. Retry with the same key.",
    cause,
  });
}

const whyNotSigned = (error: unknown): string =>
  error instanceof ApiError && /^policy_(not_signed|version_unknown)$/.test(error.code)
    ? error.message
    : "Signing failed.";

/** The result of a payment that our engine relayed. `bodyOf`: the response once it is settled. */
export function resultOf(
  paymentId: string,
  outcome: SettlementOutcome,
  bodyOf: (proof: Settled) => Record<string, unknown>,
): PaymentResult {
  const txHash = outcome.txHash ?? null;
  switch (outcome.status) {
    case "settled":
      return { kind: "done", body: bodyOf(outcome) };
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

/** A request that waits for our engine has lost its process when it runs this much longer than its wait. */
const ABANDONED_AFTER_MS = 15_000;

/** The longest time that a spend or a withdrawal runs. */
export const longestRelayedMs = (settleWaitMs: number): number => settleWaitMs + ABANDONED_AFTER_MS;
