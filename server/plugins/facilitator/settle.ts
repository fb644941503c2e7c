/**
 * Settles a payment exactly once and reports success to one caller.
 *
 * The authorization is the key: the first request creates or attaches the settlement, every other finds it. The
 * statement that does so decides which request was the first. Only a request like the first gets success: with its key as
 * often as it comes, without a key at most once.
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
import { BurstHold, callerProof, isAskable, isLikeFirst, type CallerProof } from "./admission.ts";
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
  /** Whose idempotency key it is, where callers have credentials. */
  credential?: string | undefined;
  /** The merchant whose key came with the request: its gas is its own. */
  merchant?: string | undefined;
  timeoutMs?: number;
  /** The caller hung up: success must not be claimed for nobody. */
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
  /** How long payments of one burst may wait for each other: a small part of a block. */
  maxHoldMs: number;
  onFault(error: unknown): void;
  sleep(ms: number): Promise<void>;
}

/** How long a repeat without a key stands back, so that the first request gets its success. */
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
    const arrived = this.#deps.settlement.expect(read.payment.network.chainId);
    try {
      return await this.#settlePayment(read.payment, body, options, arrived);
    } finally {
      arrived();
    }
  }

  /** `arrived` is called before anything is waited for. */
  async #settlePayment(
    payment: Payment,
    body: unknown,
    options: SettleOptions,
    arrived: () => void,
  ): Promise<SettleAnswer> {
    const proof = callerProof(body, options);
    const request: SettleRequest = { payment, proof, options };
    const { chainId } = payment.network;
    await this.#burst.enter();
    const known = await this.#burst.during(() => this.#known(payment));
    if (known) {
      arrived();
      return this.#repeat(request, known);
    }
    // Read before the call: the state that answers is that of this block, or of a newer one.
    let rehearsedBlock = this.#deps.settlement.newestBlock(chainId);
    let checked = await this.#burst.during(() =>
      traced("facilitator.check", {}, () => this.#deps.checker.checkPayment(payment)),
    );
    if (!checked.isValid) return this.#refuse(request, checked);
    // Nothing was used of what was signed: nothing is sent, and nothing is kept.
    if (payment.amountAtomic === 0n) {
      const { networkName: network, payer } = payment;
      return { success: true, txHash: "", transaction: "", network, payer, amount: "0" };
    }
    await this.#deps.admit(payment.authorization.from);
    const { sender: lane } = payment.scheme.planTransfer(checked.authorization);
    await this.#deps.settlement.assertAvailable(chainId, { kind: "facilitated", lane });
    if (checked.payerApproval) {
      // Blocks pass: no batch waits for it.
      arrived();
      rehearsedBlock = undefined;
      checked = await this.#afterPayerApproval(checked, checked.payerApproval);
      if (!checked.isValid) return this.#refuse(request, checked);
    }
    let accepted;
    try {
      accepted = await this.#accept(checked, proof, { merchant: options.merchant, rehearsedBlock });
    } catch (error) {
      const refused = gasRefusal(payment, error);
      if (refused) return refused;
      if (!(error instanceof AcceptanceUnknown)) throw error;
      // It may still be relayed: post it again to get the outcome.
      this.#deps.onFault(error);
      return notSettled(names(payment, error), "settlement_pending");
    } finally {
      arrived();
    }
    const { created, attached, settlement: row } = accepted;
    // An agent's payment is settled in the trace of its fetch; this one is about it as well.
    linkTrace(row.traceparent);
    const isFirst = created || attached;
    return isFirst ? this.#follow({ row, isFirst, ...request }) : this.#repeat(request, row);
  }

  /** The settlement of this payment, if it is in our hands. */
  async #known({ authorization }: Payment): Promise<SettlementRow | undefined> {
    const row = await this.#deps.store.find(authorization);
    return row && !isUnclaimedByUs(row) ? row : undefined;
  }

  /** Another request may have had it settled while this one was checked: then the chain refuses a second time. */
  async #refuse(request: SettleRequest, refused: Refusal): Promise<SettleAnswer> {
    const known = await this.#known(request.payment);
    return known ? this.#repeat(request, known) : refusal(request.payment.networkName, refused);
  }

  async #repeat(request: SettleRequest, known: SettlementRow): Promise<SettleAnswer> {
    const { payment, proof } = request;
    const reason = this.#checkRepeat(payment, known);
    if (reason) return refusal(payment.networkName, reason);
    const again = await this.#tryAgain(payment, known, proof);
    // Another request may have had it tried again at the same time.
    const isOther = !again && known.mayTryAgain;
    const newer = isOther ? await this.#deps.store.find(payment.authorization) : undefined;
    return this.#follow({ row: again ?? newer ?? known, isFirst: again !== undefined, ...request });
  }

  /** In half the time a caller waits: the other half is the payment's. */
  #afterPayerApproval(approved: Approved, payerApproval: PayerApproval): Promise<CheckResult> {
    const { checker, payerApproval: layer, settleWaitMs } = this.#deps;
    const check = () => checker.checkPayment(approved.payment);
    return layer.submit({ ...approved, payerApproval }, check, settleWaitMs / 2);
  }

  /**
   * Refused in flight, because the token was paused or the payer blocked or out of money, and the chain would
   * take it now: its own caller may have it tried once more. The same row goes back to the queue, so a concurrent
   * request makes no second one.
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

  async #accept(
    { authorization }: Approved,
    proof: CallerProof,
    known: { merchant: string | undefined; rehearsedBlock: bigint | undefined },
  ) {
    const { merchant, rehearsedBlock } = known;
    await this.#burst.quiet();
    return this.#deps.accept({
      id: newId("pay"),
      kind: "facilitated",
      agentId: null,
      authorization,
      relay: true,
      bodyHash: proof.bodyHash,
      ...(merchant !== undefined && { merchant }),
      ...(rehearsedBlock !== undefined && { rehearsedBlock }),
      ...(proof.callerKeyHash && { callerKeyHash: proof.callerKeyHash }),
    });
  }

  /** The same signed authorization, for the same recipient and amount? A nonce alone proves nothing. */
  #checkRepeat(payment: Payment, row: SettlementRow): Refusal | undefined {
    const known = row.authorization;
    const { ecdsa } = payment.scheme.examine(payment);
    const inner = unwrapSignature(payment.signature)?.inner;
    const shown = [inner, payment.signature].map((text) => text?.toLowerCase());
    const isPayers = ecdsa !== undefined || shown.includes(known.signature.toLowerCase());
    const { scheme } = payment;
    if (!isPayers) return refuse(scheme.reasonSignature, payment.payer);
    const asked = payment.authorization;
    const isSame =
      known.to === asked.to &&
      known.value === asked.value &&
      known.validAfter === asked.validAfter &&
      known.validBefore === asked.validBefore;
    if (!isSame) return refuse(scheme.reasonUsed, payment.payer);
    return scheme.checkFirst?.(payment, undefined) ?? scheme.checkTerms(payment, undefined);
  }

  /** From here on the payment may happen: whatever fails now, its fate is unknown, not bad. */
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
    const told = names(payment, row);
    if (!isAskable(row)) {
      return notSettled(told, "duplicate_settlement", {
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
      return notSettled(told, "settlement_pending", {
        ...(outcome.txHash && { txHash: outcome.txHash }),
      });
    }
    if (outcome.status !== "settled") {
      return notSettled(told, protocolReason(outcome, payment), {
        message: outcome.message,
        ...(outcome.txHash && { txHash: outcome.txHash }),
      });
    }
    if (await this.#maySucceed(following, outcome.settledAt)) return settled(told, outcome.txHash);
    return notSettled(told, "duplicate_settlement", { txHash: outcome.txHash });
  }

  /**
   * A caller with a key gets its success whenever it comes. Without a key it is claimed by one statement before it is
   * answered: a process that dies in between leaves a success that nobody gets, because it may have arrived.
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

/** A request to settle, as far as it decides what is answered. */
interface SettleRequest {
  payment: Payment;
  proof: CallerProof;
  options: SettleOptions;
}

interface Following extends SettleRequest {
  row: SettlementRow;
  /** This request created the settlement, attached it, or had it tried again. */
  isFirst: boolean;
}

/** An agent's own payment that a seller holds, and that nobody has sent us to relay yet. */
const isUnclaimedByUs = (row: SettlementRow): boolean =>
  row.kind === "x402" && !row.relay && (row.status === "queued" || row.status === "submitted");
