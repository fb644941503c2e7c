/** Types between the common payment flow (pay.ts) and the kinds of payment that use it. */
import type { Authorization, SignedAuthorization } from "../../core/authorization.ts";
import type { ApiError } from "../../errors.ts";
import type { Cover } from "../custody/covers.ts";
import type { KeyInUse, IdempotencyRef } from "../guardrails/types.ts";
import type { SettlementOutcome } from "../settlement/types.ts";
import type { FreeResponse } from "./idempotency.ts";
import type { PaymentRow } from "./store.ts";

export interface PaymentKey {
  agentId: string;
  paymentId: string;
}

/** The steps that differ between kinds of payment. */
export interface PaymentPlan {
  agentId: string;
  kind: "spend" | "x402" | "withdrawal";
  /** True: our engine relays it. False: it is given to a seller, and we only watch it. */
  relay: boolean;
  /** Decides whether it may be paid, and reserves the amount. */
  reserve(): Promise<Reservation>;
  /** Whether the request that made this payment has ended without storing a response. */
  isOver(payment: PaymentRow): boolean;
  /**
   * Finishes what an earlier request began; signs nothing new. `storedNote`: what that request had stored with
   * its key. `ref`: the row of that key, which belongs to another call if this one joined it.
   */
  resume(
    payment: PaymentRow,
    storedNote: unknown,
    ref: IdempotencyRef | undefined,
  ): Promise<Delivered>;
  /**
   * Set when reserving calls a target that may act on the request, so it must not be called twice: the key is
   * claimed before.
   * `mayHaveActed`: whether the target may have acted despite this error, which is then stored as the response
   * of the key. `longestMs`: after this time, the process that claimed the key has died.
   */
  isSentOnce?: { mayHaveActed(error: ApiError): boolean; longestMs: number };
  /**
   * The response for this key was free and is not stored: requests it again where that is safe; never pays.
   */
  returnFreeResponse?(freeAnswer: FreeResponse): Promise<Record<string, unknown>>;
}

export type Reservation =
  | {
      kind: "reserved";
      /** Also the id of the settlement. */
      paymentId: string;
      authorization: Authorization;
      /** What allows it: the agent's policy, or an approval of the owner. */
      cover: Cover;
      /** Runs after the engine has accepted the signed authorization. */
      deliver(authorization: SignedAuthorization): Promise<Delivered>;
    }
  /** There was nothing to pay. */
  | { kind: "free"; body: Record<string, unknown>; freeAnswer?: FreeResponse }
  /** It costs nothing now, and the key stays unused: the same call may have to pay later. */
  | { kind: "free_not_stored"; body: Record<string, unknown> }
  | NotReserved
  | ApprovalRequested;

/**
 * Denied, and the owner was asked for approval. This response is not stored, because the same call may pay once
 * it is approved.
 */
export interface ApprovalRequested {
  kind: "approval_requested";
  body: Record<string, unknown>;
}

export type NotReserved = { kind: "denied"; error: ApiError } | KeyInUse;

/**
 * The outcome. "unknown" is not final and not stored: the same key returns the outcome once the chain has
 * proved it.
 */
export type Delivered = (
  | { kind: "done"; body: Record<string, unknown> }
  | { kind: "failed" | "unknown"; error: ApiError }
) & {
  /** Further writes, after the response is stored. */
  afterwards?: () => Promise<void>;
};

/** A settlement that the chain has proved. */
export type Settled = Extract<SettlementOutcome, { status: "settled" }>;
