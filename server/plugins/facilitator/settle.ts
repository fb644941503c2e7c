/**
 * Settles a payment exactly once and returns success to one caller.
 * The authorization is the idempotency key: the first request creates or attaches the settlement, and every
 * other request finds it; a single SQL statement decides which is first.
 * Only a request like the first gets success: with its Idempotency-Key any number of times, without a key at
 * most once.
 */
import { newId } from "../../core/ids.ts";
import type { SettlementKey } from "../../core/authorization.ts";
import { linkTrace, traced } from "../../infra/tracing.ts";
import { outcomeOf } from "../settlement/waiters.ts";
import { AcceptanceUnknown } from "../settlement/accept.ts";
import type {
  Accepted,
  Settlement,
  SettlementRequest,
  SettlementRow,
} from "../settlement/types.ts";
import {
  BurstHold,
  callerProof,
  mayReturnSuccess,
  isLikeFirst,
  type CallerProof,
} from "./admission.ts";
import { gasRefusal, names, notSettled, protocolReason, refusal, settled } from "./answers.ts";
import type { Approved, CheckResult, PaymentChecker } from "./check.ts";
import type { PayerApprovalSubmitter } from "./payer-approval.ts";
import {
  networkNameOf,
  refuse,
  type PayerApproval,
  type Refusal,
  type Payment,
} from "../../schemes/scheme.ts";
import { unwrapSignature } from "../../core/signatures.ts";
import type { SettleAnswer } from "../../schemas/facilitator.ts";

export interface SettleOptions {
  idempotencyKey?: string | undefined;
  /** The credential that the idempotency key belongs to, for callers with credentials. */
  credential?: string | undefined;
  /** The merchant whose API key came with the request: its own gas budget is used. */
  merchant?: string | undefined;
  timeoutMs?: number;
  /** The client disconnected: success must not be claimed if no one receives it. */
  isGone?: () => boolean;
}

/** Single statements on the settlement's row. */
export interface SuccessClaims {
  find(key: SettlementKey): Promise<SettlementRow | undefined>;
  /** Marks success as returned; true if it was not returned before. */
  claimSuccess(row: SettlementRow): Promise<boolean>;
  wasReturned(row: SettlementRow): Promise<boolean>;
}

export interface SettlerDeps {
  checker: PaymentChecker;
  settlement: Settlement;
  store: SuccessClaims;
  accept(request: SettlementRequest): Promise<Accepted>;
  /** Throws `rate_limited`. */
  admit(payer: string): void | Promise<void>;
  payerApproval: Pick<PayerApprovalSubmitter, "submit">;
  settleWaitMs: number;
  /** How long payments of one burst may wait for each other: a small fraction of a block. */
  maxHoldMs: number;
  onFault(error: unknown): void;
  sleep(ms: number): Promise<void>;
}

/** A repeated request without a key waits this long first, so that the first request gets the success. */
const STAND_BACK_MS = 1_000;
const LOOK_EVERY_MS = 50;

export class Settler {
  readonly #deps: SettlerDeps;
  readonly #burst: BurstHold;
  constructor(deps: SettlerDeps) {
    this.#deps = deps;
    this.#burst = new BurstHold(deps.maxHoldMs);
  }

  async settle(body: unknown, options: SettleOptions): Promise<SettleAnswer> {
    const read = this.#deps.checker.read(body, "settle");
    if (!read.isValid) return refusal(networkNameOf(body), read);
    return this.#settlePayment(read.payment, body, options);
  }

  async #settlePayment(
    payment: Payment,
    body: unknown,
    options: SettleOptions,
  ): Promise<SettleAnswer> {
    const proof = callerProof(body, options);
    const request: SettleRequest = { payment, proof, options };
    const { chainId } = payment.network;
    await this.#burst.enter();
    const known = await this.#burst.during(() => this.#known(payment));
    if (known) return this.#repeat(request, known);
    let checked = await this.#burst.during(() =>
      traced("facilitator.check", {}, () => this.#deps.checker.checkPayment(payment)),
    );
    if (!checked.isValid) return this.#refuse(request, checked);
    // Nothing was used of the signed maximum: nothing is sent, and nothing is stored.
    if (payment.amountAtomic === 0n) {
      const { networkName: network, payer } = payment;
      return { success: true, txHash: "", transaction: "", network, payer, amount: "0" };
    }
    await this.#deps.admit(payment.authorization.from);
    const { sender: lane } = payment.scheme.planTransfer(checked.authorization);
    await this.#deps.settlement.assertAvailable(chainId, { kind: "facilitated", lane });
    if (checked.payerApproval) {
      checked = await this.#afterPayerApproval(checked, checked.payerApproval);
      if (!checked.isValid) return this.#refuse(request, checked);
    }
    let accepted;
    try {
      accepted = await this.#accept(checked, proof, options.merchant);
    } catch (error) {
      const refused = gasRefusal(payment, error);
      if (refused) return refused;
      if (!(error instanceof AcceptanceUnknown)) throw error;
      // It may still be relayed: posting it again returns the outcome.
      this.#deps.onFault(error);
      return notSettled(names(payment, error), "settlement_pending");
    }
    const { created, attached, settlement: row } = accepted;
    // An agent's payment is settled in the trace of its fetch; link this request's trace to it.
    linkTrace(row.traceparent);
    const isFirst = created || attached;
    return isFirst ? this.#follow({ row, isFirst, ...request }) : this.#repeat(request, row);
  }

  /** The settlement of this payment, if we are relaying it. */
  async #known({ authorization }: Payment): Promise<SettlementRow | undefined> {
    const row = await this.#deps.store.find(authorization);
    return row && !isUnclaimedByUs(row) ? row : undefined;
  }

  /** Another request may have settled it during the check, so that the chain rejects it now. */
  async #refuse(request: SettleRequest, refused: Refusal): Promise<SettleAnswer> {
    const known = await this.#known(request.payment);
    return known ? this.#repeat(request, known) : refusal(request.payment.networkName, refused);
  }

  async #repeat(request: SettleRequest, known: SettlementRow): Promise<SettleAnswer> {
    const { payment, proof } = request;
    const reason = this.#checkRepeat(payment, known);
    if (reason) return refusal(payment.networkName, reason);
    const again = await this.#tryAgain(payment, known, proof);
    // Another request may have requeued it at the same time.
    const isOther = !again && known.mayTryAgain;
    const newer = isOther ? await this.#deps.store.find(payment.authorization) : undefined;
    return this.#follow({ row: again ?? newer ?? known, isFirst: again !== undefined, ...request });
  }

  /** Uses half of the caller's waiting time; the other half is for the payment. */
  #afterPayerApproval(approved: Approved, payerApproval: PayerApproval): Promise<CheckResult> {
    const { checker, payerApproval: submitter, settleWaitMs } = this.#deps;
    const check = () => checker.checkPayment(approved.payment);
    return submitter.submit({ ...approved, payerApproval }, check, settleWaitMs / 2);
  }

  /**
   * Retries a payment once that was rejected after acceptance (the token was paused, or the payer blocked or
   * out of funds) if the chain would accept it now. Only its own caller may request this.
   * The same row is requeued, so a concurrent request creates no second settlement.
   */
  async #tryAgain(
    payment: Payment,
    known: SettlementRow,
    proof: CallerProof,
  ): Promise<SettlementRow | undefined> {
    if (!known.mayTryAgain || !isLikeFirst(known, proof)) return undefined;
    const checked = await this.#deps.checker.checkPayment(payment);
    if (!checked.isValid || checked.payerApproval) return undefined;
    await this.#deps.admit(payment.authorization.from);
    const { chainId } = payment.network;
    const { sender: lane } = payment.scheme.planTransfer(checked.authorization);
    await this.#deps.settlement.assertAvailable(chainId, { kind: "facilitated", lane });
    return this.#deps.settlement.tryAgain(payment.authorization);
  }

  async #accept({ authorization }: Approved, proof: CallerProof, merchant: string | undefined) {
    await this.#burst.quiet();
    return this.#deps.accept({
      id: newId("pay"),
      kind: "facilitated",
      agentId: null,
      authorization,
      relay: true,
      bodyHash: proof.bodyHash,
      ...(merchant !== undefined && { merchant }),
      ...(proof.callerKeyHash && { callerKeyHash: proof.callerKeyHash }),
    });
  }

  /**
   * Whether this is the same signed authorization, for the same recipient and amount. The nonce alone proves
   * nothing.
   */
  #checkRepeat(payment: Payment, row: SettlementRow): Refusal | undefined {
    const known = row.authorization;
    const { ecdsa } = payment.scheme.examine(payment);
    const inner = unwrapSignature(payment.signature)?.inner;
    const shown = [inner, payment.signature].map((text) => text?.toLowerCase());
    const isPayers = ecdsa !== undefined || shown.includes(known.signature.toLowerCase());
    const { scheme } = payment;
    if (!isPayers) return refuse(scheme.reasonSignature, payment.payer);
    const presented = payment.authorization;
    const isSame =
      known.to === presented.to &&
      known.value === presented.value &&
      known.validAfter === presented.validAfter &&
      known.validBefore === presented.validBefore;
    if (!isSame) return refuse(scheme.reasonUsed, payment.payer);
    return scheme.checkFirst?.(payment, undefined) ?? scheme.checkTerms(payment, undefined);
  }

  /** From here on the payment may happen: whatever fails now, its outcome is unknown, not failed. */
  async #follow(following: Following): Promise<SettleAnswer> {
    try {
      return await this.#outcome(following);
    } catch (error) {
      this.#deps.onFault(error);
      const { payment, row } = following;
      return notSettled(names(payment, row), "settlement_pending", {
        ...(row.txHash && { txHash: row.txHash }),
      });
    }
  }

  async #outcome(following: Following): Promise<SettleAnswer> {
    const { payment, row, options } = following;
    const ids = names(payment, row);
    if (!mayReturnSuccess(row)) {
      return notSettled(ids, "duplicate_settlement", {
        ...(row.txHash && { txHash: row.txHash }),
      });
    }
    const timeoutMs = Math.min(
      options.timeoutMs ?? this.#deps.settleWaitMs,
      this.#deps.settleWaitMs,
    );
    const known = outcomeOf(row);
    const outcome =
      known.status === "pending" ? await this.#deps.settlement.wait(row.id, timeoutMs) : known;
    if (outcome.status === "pending") {
      return notSettled(ids, "settlement_pending", {
        ...(outcome.txHash && { txHash: outcome.txHash }),
      });
    }
    if (outcome.status !== "settled") {
      return notSettled(ids, protocolReason(outcome, payment), {
        message: outcome.message,
        ...(outcome.txHash && { txHash: outcome.txHash }),
      });
    }
    if (await this.#maySucceed(following, outcome.settledAt)) return settled(ids, outcome.txHash);
    return notSettled(ids, "duplicate_settlement", { txHash: outcome.txHash });
  }

  /**
   * A caller with a key always gets its success. Without a key, success is claimed by one statement before it
   * is returned: if the process dies in between, no caller gets it again, because it may have arrived.
   */
  async #maySucceed(following: Following, settledAt: Date): Promise<boolean> {
    const { row, proof, isFirst, options } = following;
    const { store } = this.#deps;
    if (options.isGone?.() || !isLikeFirst(row, proof)) return false;
    if (proof.callerKeyHash) return true;
    const standBackUntil = isFirst ? 0 : settledAt.getTime() + STAND_BACK_MS;
    while (Date.now() < standBackUntil) {
      if (await store.wasReturned(row)) return false;
      await this.#deps.sleep(LOOK_EVERY_MS);
    }
    return !options.isGone?.() && (await store.claimSuccess(row));
  }
}

/** A settle request, with everything that decides its response. */
interface SettleRequest {
  payment: Payment;
  proof: CallerProof;
  options: SettleOptions;
}

interface Following extends SettleRequest {
  row: SettlementRow;
  /** This request created the settlement, attached it, or had it retried. */
  isFirst: boolean;
}

/** An agent's own payment that was given to a seller, and that no one has sent us to relay yet. */
const isUnclaimedByUs = (row: SettlementRow): boolean =>
  row.kind === "x402" && !row.relay && (row.status === "queued" || row.status === "submitted");
