/**
 * A settle: read the payment, find its settlement if it has one, check it on the chain, accept it, wait for its end,
 * claim the success, answer.
 * The authorization is the idempotency key: the first request creates or attaches the settlement, and every other
 * request finds it; a single SQL statement decides which is first. Only a request like the first gets success: with
 * its Idempotency-Key any number of times, without a key at most once.
 */
import { createHash } from "node:crypto";
import type { FastifyBaseLogger } from "fastify";
import { newId } from "../../core/ids.ts";
import { unwrapSignature } from "../../core/signatures.ts";
import type { NetworkFacts } from "../../core/networks.ts";
import { ApiError } from "../../errors.ts";
import { linkTrace, traced } from "../../infra/tracing.ts";
import type { SettleAnswer } from "../../schemas/facilitator.ts";
import {
  networkNameOf,
  REASONS,
  refuse,
  type Payment,
  type Refusal,
} from "../../schemes/scheme.ts";
import {
  AcceptanceUnknown,
  type Settlement,
  type SettlementOutcome,
  type SettlementRow,
} from "../settlement/types.ts";
import { outcomeOf } from "../settlement/waiters.ts";
import type { PayeeFees } from "./payee-fees.ts";
import type { PayerApprovals } from "./payer-approval.ts";
import { resourceIn, statedUrl } from "./resource.ts";
import type { Outcomes } from "./stats.ts";
import type { SettleStore } from "./store.ts";
import type { Approved, CheckResult, PaymentChecker, PaymentResult } from "./verify.ts";

export interface SettleOptions {
  idempotencyKey?: string | undefined;
  /** The credential that the idempotency key belongs to, for callers with credentials. */
  credential?: string | undefined;
  /** What another cell made of these two, for a caller of its own. */
  callerKeyHash?: Uint8Array;
  /** The merchant whose API key came with the request: its own gas budget is used. */
  merchant?: string | undefined;
  /** Requested by a third party: its payee owes the fees of this facilitator. */
  isBilled?: boolean;
  /** Another cell passed it on, and counts its refusal. */
  isForwarded?: boolean;
  /** The client disconnected: success must not be claimed if no one receives it. */
  isGone?: () => boolean;
  /** Calls back when the client's connection ends. */
  onGone?: (listener: () => void) => void;
}

/** A scheme whose payloads are not all payments: payment channels. */
export interface OwnScheme {
  readonly name: string;
  handles(body: unknown): boolean;
  check(body: unknown): Promise<CheckResult>;
  settle(body: unknown, options: SettleOptions): Promise<SettleAnswer>;
  /** The `extra` of the kind that the facilitator announces on this network; undefined where it is not served. */
  announced(network: NetworkFacts): Record<string, unknown> | undefined;
}

interface SettlerDeps {
  checker: PaymentChecker;
  ownSchemes: readonly OwnScheme[];
  settlement: Settlement;
  store: SettleStore;
  payerApprovals: Pick<PayerApprovals, "submit">;
  /** Set by the module `fees`, which comes later. */
  charging: { fees?: PayeeFees };
  /** Counts the request for its payer; throws `rate_limited`. */
  countFor(limit: "payer", payer: string): void | Promise<void>;
  /** Whether another cell may have accepted the same transfer. */
  mayHaveTwin(payer: string): boolean;
  /** How long a caller waits for the end of its payment. */
  waitMs: number;
  outcomes: Outcomes;
  log: Pick<FastifyBaseLogger, "warn" | "error">;
}

/** A settle request, with everything that decides its response. */
interface SettleRequest {
  body: unknown;
  payment: Payment;
  caller: Caller;
  options: SettleOptions;
  /** Checked on the chain before it is accepted. */
  check(): Promise<PaymentResult>;
  /** Its success unlocks nothing by itself, so any caller may get it, any number of times. */
  isFreeToReturn: boolean;
}

/** A payment that another scheme's module has read. */
export type PresentedPayment = Pick<
  SettleRequest,
  "body" | "payment" | "options" | "check" | "isFreeToReturn"
>;

type Acceptance =
  /** This request created the settlement, or attached an agent's own one. */
  | { status: "first"; row: SettlementRow }
  /** Another request created it meanwhile. */
  | { status: "repeat"; row: SettlementRow }
  | { status: "not_accepted"; answer: SettleAnswer };

/** A repeated request without a key waits this long first, so that the first request gets the success. */
const STAND_BACK_MS = 1_000;

export class Settler {
  readonly #deps: SettlerDeps;

  constructor(deps: SettlerDeps) {
    this.#deps = deps;
  }

  /** Answers a settle request. Every outcome is an answer of the protocol, except `rate_limited`, which is thrown. */
  async settle(body: unknown, options: SettleOptions = {}): Promise<SettleAnswer> {
    const { outcomes, log } = this.#deps;
    const startedMs = performance.now();
    let answer: SettleAnswer;
    try {
      answer = await this.#settle(body, options);
    } catch (error) {
      // It concerns the caller, not the payment.
      if (error instanceof ApiError && error.code === "rate_limited") throw error;
      log.warn({ err: error }, "a settle could not be answered");
      // The text of our own errors is safe for third parties; other messages may not be.
      const message = error instanceof ApiError ? error.message : undefined;
      answer = notSettled({ network: networkNameOf(body) }, "unexpected_settle_error", { message });
    }
    const reason = answer.errorReason ?? "unknown";
    outcomes.record("settle", answer.success ? "settled" : reason, startedMs);
    if (!answer.success && answer.paymentId === undefined && options.isForwarded !== true)
      outcomes.reportRefusal("settle", body, reason);
    return answer;
  }

  async #settle(body: unknown, options: SettleOptions): Promise<SettleAnswer> {
    const { checker, ownSchemes } = this.#deps;
    const own = ownSchemes.find((scheme) => scheme.handles(body));
    if (own) return own.settle(body, options);
    const read = checker.read(body, "settle");
    if (!read.isValid) return refusal(networkNameOf(body), read);
    const { payment } = read;
    const check = () => checker.checkPayment(payment);
    return this.settlePayment({ body, payment, options, check, isFreeToReturn: false });
  }

  async settlePayment(presented: PresentedPayment): Promise<SettleAnswer> {
    const { payerApprovals, waitMs } = this.#deps;
    const { body, payment, options } = presented;
    const request: SettleRequest = { ...presented, caller: callerOf(body, options) };

    const known = await this.#find(payment);
    if (known) return this.#repeat(request, known);

    const checked = await traced("facilitator.check", {}, () => request.check());
    if (!checked.isValid) return this.#refuse(request, checked);
    // Nothing was used of the signed maximum: nothing is sent, and nothing is stored.
    if (payment.amountAtomic === 0n) return nothingToSettle(payment);
    const { fees } = this.#deps.charging;
    const owing = options.isBilled === true ? await fees?.refusal(payment) : undefined;
    if (owing) return refusal(payment.networkName, owing);
    await this.#admit(checked);

    // The payer's approval takes half of the caller's waiting time; the other half is for the payment.
    const ready = checked.payerApproval
      ? await payerApprovals.submit(payment, checked.payerApproval, waitMs / 2)
      : checked;
    if (!ready.isValid) return this.#refuse(request, ready);

    const acceptance = await this.#accept(request, ready);
    if (acceptance.status === "not_accepted") return acceptance.answer;
    if (acceptance.status === "repeat") return this.#repeat(request, acceptance.row);
    return this.#finish(request, acceptance.row, { isFirst: true });
  }

  /** The settlement of this payment, if we are relaying it. */
  async #find({ authorization }: Payment): Promise<SettlementRow | undefined> {
    const row = await this.#deps.store.find(authorization);
    return row && !isUnclaimedByUs(row) ? row : undefined;
  }

  /** Another request may have settled it during the check, so that the chain rejects it now. */
  async #refuse(request: SettleRequest, refused: Refusal): Promise<SettleAnswer> {
    const known = await this.#find(request.payment);
    return known ? this.#repeat(request, known) : refusal(request.payment.networkName, refused);
  }

  /** Throws if the payer has too many requests, or if the payment could not be sent now. */
  async #admit({ payment, authorization }: Approved): Promise<void> {
    await this.#deps.countFor("payer", authorization.from);
    const { sender: lane } = payment.scheme.planTransfer(authorization);
    await this.#deps.settlement.assertAvailable(payment.network.chainId, {
      kind: "facilitated",
      lane,
    });
  }

  async #accept(
    { body, caller, options: { merchant, isBilled } }: SettleRequest,
    { payment, authorization }: Approved,
  ): Promise<Acceptance> {
    const { store, log, charging } = this.#deps;
    const resource = resourceIn(body);
    const { to } = authorization;
    const fee =
      charging.fees?.paymentFor(to, statedUrl(body)) ??
      // The money of a deposit goes into a channel, not to the payee.
      (isBilled === true && to === payment.payTo
        ? charging.fees?.feeFor(to, payment.amountAtomic)
        : undefined);
    let accepted;
    try {
      accepted = await store.accept({
        id: newId("pay"),
        kind: "facilitated",
        agentId: null,
        authorization,
        relay: true,
        bodyHash: caller.bodyHash,
        ...(merchant !== undefined && { merchant }),
        ...(resource && { resource }),
        ...(fee && { fee }),
        ...(caller.keyHash && { callerKeyHash: caller.keyHash }),
      });
    } catch (error) {
      if (error instanceof ApiError && error.code === "gas_budget_exhausted") {
        const { message } = error;
        const { networkName: network, payer } = payment;
        const answer = notSettled({ network, payer }, error.code, { message });
        return { status: "not_accepted", answer };
      }
      if (!(error instanceof AcceptanceUnknown)) throw error;
      // It may still be relayed: posting it again returns the outcome.
      log.error({ err: error }, "it is not known whether a settlement was accepted");
      const answer = notSettled(names(payment, error), "settlement_pending");
      return { status: "not_accepted", answer };
    }
    const { created, attached, settlement: row } = accepted;
    // An agent's payment is settled in the trace of its fetch; link this request's trace to it.
    linkTrace(row.traceparent);
    return { status: created || attached ? "first" : "repeat", row };
  }

  /** A request for a payment that has a settlement. */
  async #repeat(request: SettleRequest, known: SettlementRow): Promise<SettleAnswer> {
    const { payment } = request;
    const refused = whyOtherPayment(payment, known);
    if (refused) return refusal(payment.networkName, refused);
    const again = await this.#tryAgain(request, known);
    if (again) return this.#finish(request, again, { isFirst: true });
    // Another request may have requeued it at the same time.
    const newer = known.mayTryAgain
      ? await this.#deps.store.find(payment.authorization)
      : undefined;
    return this.#finish(request, newer ?? known, { isFirst: false });
  }

  /**
   * Retries a payment once that was rejected after acceptance (the token was paused, or the payer blocked or
   * out of funds) if the chain would accept it now. Only its own caller may request this.
   * The same row is requeued, so a concurrent request creates no second settlement.
   */
  async #tryAgain(
    request: SettleRequest,
    known: SettlementRow,
  ): Promise<SettlementRow | undefined> {
    const { payment, caller } = request;
    if (!known.mayTryAgain || !isLikeFirst(known, caller)) return undefined;
    const checked = await request.check();
    if (!checked.isValid || checked.payerApproval) return undefined;
    await this.#admit(checked);
    return this.#deps.settlement.tryAgain(payment.authorization);
  }

  /**
   * Waits for the end of an accepted payment, claims its success, and answers. From here on the payment may happen:
   * whatever fails now, its outcome is unknown, not failed.
   * `isFirst`: this request created the settlement, attached it, or had it retried.
   */
  async #finish(
    request: SettleRequest,
    row: SettlementRow,
    { isFirst }: { isFirst: boolean },
  ): Promise<SettleAnswer> {
    const { payment } = request;
    const ids = names(payment, row);
    try {
      if (!mayReturnSuccess(row)) return notSettled(ids, "duplicate_settlement", row);
      const outcome = await this.#wait(row);
      if (outcome.status === "pending") return notSettled(ids, "settlement_pending", outcome);
      if (outcome.status !== "settled")
        return notSettled(ids, protocolReason(outcome, payment), outcome);
      const { txHash, settledAt, byOther } = outcome;
      if (byOther && this.#deps.mayHaveTwin(payment.payer))
        return notSettled(ids, "duplicate_settlement", { txHash });
      const standBackUntilMs = isFirst ? 0 : settledAt.getTime() + STAND_BACK_MS;
      return (await this.#claimSuccess(request, row, standBackUntilMs))
        ? { success: true, txHash, transaction: txHash, ...ids }
        : notSettled(ids, "duplicate_settlement", { txHash });
    } catch (error) {
      const message = "a settlement was accepted, but its outcome could not be returned";
      this.#deps.log.error({ err: error }, message);
      return notSettled(ids, "settlement_pending", { txHash: row.txHash });
    }
  }

  async #wait(row: SettlementRow): Promise<SettlementOutcome> {
    const known = outcomeOf(row);
    return known.status === "pending"
      ? this.#deps.settlement.wait(row.id, this.#deps.waitMs)
      : known;
  }

  /**
   * A caller with a key always gets its success. Without a key, success is claimed by one statement before it
   * is returned: if the process dies in between, no caller gets it again, because it may have arrived.
   */
  async #claimSuccess(
    { caller, options, isFreeToReturn }: SettleRequest,
    row: SettlementRow,
    standBackUntilMs: number,
  ): Promise<boolean> {
    if (isFreeToReturn) return true;
    const { store } = this.#deps;
    if (options.isGone?.() || !isLikeFirst(row, caller)) return false;
    if (caller.keyHash) return true;
    if (await store.waitUntilReturned(row, standBackUntilMs)) return false;
    return !options.isGone?.() && (await store.claimSuccess(row));
  }
}

/**
 * Identifies the caller of a settle for its retries, by the Idempotency-Key header that the seller sets. The
 * payload identifies no one: the payer wrote it, including its `payment-identifier`.
 */
interface Caller {
  readonly bodyHash: Uint8Array;
  /** Null when the request has no key. */
  readonly keyHash: Uint8Array | null;
}

export function callerOf(
  body: unknown,
  {
    idempotencyKey,
    credential = "",
    callerKeyHash,
  }: Pick<SettleOptions, "idempotencyKey" | "credential" | "callerKeyHash">,
): Caller {
  const { paymentPayload, paymentRequirements } = body as Record<string, unknown>;
  return {
    bodyHash: hash([paymentPayload, paymentRequirements]),
    keyHash:
      callerKeyHash ??
      (idempotencyKey === undefined ? null : hash(["key", credential, idempotencyKey])),
  };
}

const hash = (parts: unknown[]): Uint8Array =>
  createHash("sha256").update(JSON.stringify(parts)).digest();
const isEqual = (left: Uint8Array | null, right: Uint8Array): boolean =>
  left !== null && Buffer.compare(left, right) === 0;

/**
 * Whether this is a request like the settlement's first one: with the same key and body, which proves the same
 * caller; or without a key like the first, which proves nothing, whatever the body.
 */
const isLikeFirst = (row: SettlementRow, caller: Caller): boolean =>
  row.callerKeyHash === null || caller.keyHash === null
    ? row.callerKeyHash === caller.keyHash
    : isEqual(row.callerKeyHash, caller.keyHash) && isEqual(row.bodyHash, caller.bodyHash);

/**
 * Whether any caller may get this success. Signatures of spends and withdrawals are public once they are on
 * chain, and so are agents' payments that another facilitator relayed: presenting them here proves nothing.
 */
const mayReturnSuccess = (row: SettlementRow): boolean =>
  row.kind === "facilitated" || (row.kind === "x402" && row.relay);

/** An agent's own payment that was given to a seller, and that no one has sent us to relay yet. */
const isUnclaimedByUs = (row: SettlementRow): boolean =>
  row.kind === "x402" && !row.relay && (row.status === "queued" || row.status === "submitted");

/**
 * Undefined if this is the settlement's signed authorization, for the same recipient and amount. The nonce alone
 * proves nothing.
 */
function whyOtherPayment(payment: Payment, row: SettlementRow): Refusal | undefined {
  const known = row.authorization;
  const { scheme } = payment;
  const { ecdsa } = scheme.examine(payment);
  const inner = unwrapSignature(payment.signature)?.inner;
  const shown = [inner, payment.signature].map((text) => text?.toLowerCase());
  const isPayers = ecdsa !== undefined || shown.includes(known.signature.toLowerCase());
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

/** Maps the engine's reason to the protocol's reason code. */
function protocolReason(
  outcome: { status: "failed" | "expired"; reason: string },
  { scheme }: Payment,
): string {
  if (outcome.reason === "authorization_canceled") return scheme.reasonUsed;
  if (outcome.status === "expired") return scheme.reasonExpired;
  return outcome.reason;
}

interface PaymentNames {
  /** As the requirements wrote it. */
  network: string;
  payer?: string;
  amount?: string;
  paymentId?: string;
}

const names = (payment: Payment, row: Pick<SettlementRow, "id">): PaymentNames => ({
  network: payment.networkName,
  payer: payment.payer,
  amount: payment.amountAtomic.toString(),
  paymentId: row.id,
});

const nothingToSettle = ({ networkName: network, payer }: Payment): SettleAnswer => ({
  success: true,
  txHash: "",
  transaction: "",
  network,
  payer,
  amount: "0",
});

export const refusal = (network: string, { reason, message, payer }: Refusal): SettleAnswer =>
  notSettled({ network, ...(payer !== undefined && { payer }) }, reason, { message });

export function notSettled(
  ids: PaymentNames,
  reason: string,
  about: { message?: string | undefined; txHash?: string | null | undefined } = {},
): SettleAnswer {
  const txHash = about.txHash ?? "";
  const message = about.message ?? REASONS[reason as keyof typeof REASONS] ?? reason;
  return {
    success: false,
    txHash,
    transaction: txHash,
    ...ids,
    errorReason: reason,
    errorMessage: message,
    error: message,
  };
}
