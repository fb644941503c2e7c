/** The words between the one flow of money (pay.ts) and the kinds of payment that go through it. */
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

/** What each kind of payment does its own way. */
export interface PaymentPlan {
  agentId: string;
  kind: "spend" | "x402" | "withdrawal";
  /** True: our engine relays it. False: it is handed to a seller and only watched. */
  relay: boolean;
  /** Decides whether it may be paid, and sets the money aside. */
  reserve(): Promise<Reservation>;
  /** Whether the request that made this payment has ended without an answer to keep. */
  isOver(payment: PaymentRow): boolean;
  /**
   * Finishes what an earlier request began; nothing new is signed. `heard`: what it had stored, with its key: `ref`
   * names the row, which is not the caller's own where he joins the call of another.
   */
  resume(payment: PaymentRow, heard: unknown, ref: IdempotencyRef | undefined): Promise<Delivered>;
  /**
   * Reserving calls a target that may have an effect, and must not be called twice: the key is taken before. `mayHaveActed`: of an
   * error in it, which is then this key's answer; `longestMs`: after that its process has died.
   */
  isSentOnce?: { mayHaveActed(error: ApiError): boolean; longestMs: number };
  /** The key's answer was free and was not kept: requests it again where that does no harm; never pays. */
  returnFreeResponse?(freeAnswer: FreeResponse): Promise<Record<string, unknown>>;
}

export type Reservation =
  | {
      kind: "reserved";
      /** Also the settlement's id. */
      paymentId: string;
      authorization: Authorization;
      /** By whose word it is paid. */
      cover: Cover;
      /** What happens once the signed authorization is in the engine's hands. */
      deliver(authorization: SignedAuthorization): Promise<Delivered>;
    }
  /** There was nothing to pay. */
  | { kind: "unpaid"; body: Record<string, unknown>; freeAnswer?: FreeResponse }
  /** It costs nothing now, and the key is left alone: the same call may have to pay later. */
  | { kind: "told"; body: Record<string, unknown> }
  | NotReserved
  | ApprovalRequested;

/** Denied, and the owner was asked: this answer is not kept, because the same call may pay once it is allowed. */
export interface ApprovalRequested {
  kind: "asked";
  body: Record<string, unknown>;
}

export type NotReserved = { kind: "denied"; error: ApiError } | KeyInUse;

/** The outcome. Unknown is not final: it is not kept, and the same key gets the outcome once the chain has proved it. */
export type Delivered = (
  | { kind: "done"; body: Record<string, unknown> }
  | { kind: "failed" | "unknown"; error: ApiError }
) & {
  /** What else is written, after the answer is kept. */
  afterwards?: () => Promise<void>;
};

/** What the chain has proved of a payment. */
export type Settled = Extract<SettlementOutcome, { status: "settled" }>;
