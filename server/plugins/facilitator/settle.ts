/**
 * Settles a payment exactly once and tells of it to the right caller.
 *
 * The authorization is the key: the first request makes the settlement, every other finds it. Success is
 * told again only to who proves to be the same caller; without proof it is told at most once.
 */
import type { Hex } from "viem";
import { newId } from "../../core/ids.ts";
import type { SettlementKey } from "../../core/authorization.ts";
import type {
  Settlement,
  SettlementOutcome,
  SettlementRequest,
  SettlementRow,
} from "../settlement/types.ts";
import { notSettled, settled, type PaymentNames } from "./answers.ts";
import { BurstGate } from "./batch-hold.ts";
import { callerProof, isSameCaller, type CallerProof } from "./caller.ts";
import type { Deployment, SignatureTools } from "../../schemes/exact-eip3009/signatures.ts";
import type { Approved, PaymentChecker } from "./check.ts";
import { networkNameOf, type ExactPayment } from "../../schemes/exact-eip3009/payment.ts";
import { refuse, type Refusal } from "../../schemes/exact-eip3009/reasons.ts";
import { checkTerms } from "../../schemes/exact-eip3009/terms.ts";
import type { SettleAnswer } from "../../schemas/facilitator.ts";

export interface SettleOptions {
  idempotencyKey?: string | undefined;
  /** Whose idempotency key it is, where callers have credentials. */
  credential?: string | undefined;
  timeoutMs?: number;
  /** The caller hung up: success must not be told to nobody. */
  isGone?: () => boolean;
}

/** Single statements on the settlement's row. */
export interface TellingStore {
  find(key: SettlementKey): Promise<SettlementRow | undefined>;
  /** Marks success as told; true if it was not told before. */
  claimSuccess(row: SettlementRow): Promise<boolean>;
  wasTold(row: SettlementRow): Promise<boolean>;
}

export interface DeskParts {
  checker: PaymentChecker;
  signatures: SignatureTools;
  settlement: Settlement;
  store: TellingStore;
  accept(request: SettlementRequest): Promise<{ created: boolean; settlement: SettlementRow }>;
  /** Throws `rate_limited`. */
  admit(payer: string): void;
  mayDeploy(deployment: Deployment): boolean;
  settleWaitMs: number;
  /** How long payments of one burst may wait for each other: a small part of a block. */
  maxHoldMs: number;
  onSettled(payment: ExactPayment, body: unknown): void;
  onFault(error: unknown): void;
  sleep(ms: number): Promise<void>;
}

/** How long another caller's request stands back for the first one to hear of its success. */
const STAND_BACK_MS = 1_000;
const LOOK_EVERY_MS = 50;

export class SettleDesk {
  readonly #parts: DeskParts;
  readonly #gate: BurstGate;
  constructor(parts: DeskParts) {
    this.#parts = parts;
    this.#gate = new BurstGate(parts.maxHoldMs);
  }

  async settle(body: unknown, options: SettleOptions): Promise<SettleAnswer> {
    const read = this.#parts.checker.read(body);
    if (!read.isValid) return refusal(networkNameOf(body), read);
    const arrived = this.#parts.settlement.expect(read.payment.network.chainId);
    try {
      return await this.#settlePayment(read.payment, body, options, arrived);
    } finally {
      arrived();
    }
  }

  /** `arrived` is called before anything is waited for. */
  async #settlePayment(
    payment: ExactPayment,
    body: unknown,
    options: SettleOptions,
    arrived: () => void,
  ): Promise<SettleAnswer> {
    const proof = callerProof(body, options);
    const { chainId } = payment.network;
    const known = await this.#gate.during(() => this.#parts.store.find({ ...payment, chainId }));
    if (known && !isUnclaimedByUs(known)) {
      arrived();
      const reason = this.#checkRepeat(payment, known);
      return reason
        ? refusal(payment.networkName, reason)
        : this.#follow({ payment, body, row: known, proof, isFirst: false, options });
    }
    const verdict = await this.#gate.during(() => this.#parts.checker.checkPayment(payment));
    if (!verdict.isValid) return refusal(payment.networkName, verdict);
    const { deployment } = verdict;
    if (deployment && !this.#parts.mayDeploy(deployment))
      return refusal(payment.networkName, refuse("eip6492_factory_not_allowed", payment.payer));
    this.#parts.admit(payment.from);
    await this.#parts.settlement.assertAvailable(chainId, { kind: "facilitated" });
    const accepted = await this.#accept(verdict, proof);
    arrived();
    return this.#followAccepted({ payment, body, proof, options }, accepted);
  }

  async #accept(approved: Approved, proof: CallerProof) {
    const { payment, authorization } = approved;
    await this.#gate.quiet();
    return this.#parts.accept({
      id: newId("pay"),
      kind: "facilitated",
      agentId: null,
      // A wallet that is to be made first keeps its envelope: the engine makes it.
      authorization: approved.deployment
        ? { ...authorization, signature: payment.signature as Hex }
        : authorization,
      relay: true,
      bodyHash: proof.bodyHash,
      ...(proof.callerKeyHash && { callerKeyHash: proof.callerKeyHash }),
    });
  }

  async #followAccepted(
    request: Omit<Following, "row" | "isFirst">,
    { created, settlement: row }: { created: boolean; settlement: SettlementRow },
  ): Promise<SettleAnswer> {
    const { payment, proof } = request;
    if (created) return this.#follow({ ...request, row, isFirst: true });
    const reason = this.#checkRepeat(payment, row);
    if (reason) return refusal(payment.networkName, reason);
    // An agent's payment that this request attached carries this request's body.
    const isFirst = row.bodyHash !== null && Buffer.compare(row.bodyHash, proof.bodyHash) === 0;
    return this.#follow({ ...request, row, isFirst });
  }

  /** The same signed authorization, for the same recipient and amount? A nonce alone proves nothing. */
  #checkRepeat(payment: ExactPayment, row: SettlementRow): Refusal | undefined {
    const known = row.authorization;
    const { ecdsa } = this.#parts.signatures.examine(payment);
    const inner = this.#parts.signatures.unwrap(payment.signature)?.inner;
    const shown = [inner, payment.signature].map((text) => text?.toLowerCase());
    const isPayers = ecdsa !== undefined || shown.includes(known.signature.toLowerCase());
    if (!isPayers) return refuse("invalid_exact_evm_signature", payment.payer);
    const isSame =
      known.to === payment.to &&
      known.value === payment.value &&
      known.validAfter === payment.validAfter &&
      known.validBefore === payment.validBefore;
    if (!isSame) return refuse("invalid_exact_evm_nonce_already_used", payment.payer);
    return checkTerms(payment, undefined);
  }

  /** From here on the payment may happen: whatever fails now, its fate is unknown, not bad. */
  async #follow(following: Following): Promise<SettleAnswer> {
    try {
      return await this.#outcome(following);
    } catch (error) {
      this.#parts.onFault(error);
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
      options.timeoutMs ?? this.#parts.settleWaitMs,
      this.#parts.settleWaitMs,
    );
    const outcome = finalOf(row) ?? (await this.#parts.settlement.wait(row.id, timeoutMs));
    if (outcome.status === "pending") {
      return notSettled(told, "settlement_pending", {
        ...(outcome.txHash && { txHash: outcome.txHash }),
      });
    }
    if (outcome.status !== "settled") {
      return notSettled(told, protocolReason(outcome), {
        message: outcome.message,
        ...(outcome.txHash && { txHash: outcome.txHash }),
      });
    }
    if (await this.#maySucceed(following, outcome.settledAt)) {
      this.#parts.onSettled(payment, following.body);
      return settled(told, outcome.txHash);
    }
    return notSettled(told, "duplicate_settlement", { txHash: outcome.txHash });
  }

  async #maySucceed(following: Following, settledAt: Date): Promise<boolean> {
    const { row, proof, isFirst, options } = following;
    const { store } = this.#parts;
    if (options.isGone?.()) return false;
    if (isFirst || isSameCaller(row, proof)) {
      const isFresh = await store.claimSuccess(row);
      return isFresh || isSameCaller(row, proof);
    }
    // The first caller showed a key, so it can always hear its answer again: nobody else may.
    if (row.callerKeyHash) return false;
    const standBackUntil = settledAt.getTime() + STAND_BACK_MS;
    while (Date.now() < standBackUntil) {
      if (await store.wasTold(row)) return false;
      await this.#parts.sleep(LOOK_EVERY_MS);
    }
    return !options.isGone?.() && (await store.claimSuccess(row));
  }
}

interface Following {
  payment: ExactPayment;
  body: unknown;
  row: SettlementRow;
  proof: CallerProof;
  isFirst: boolean;
  options: SettleOptions;
}

/** An agent's own payment in a seller's hands, which nobody has asked us to relay yet. */
const isUnclaimedByUs = (row: SettlementRow): boolean =>
  row.kind === "x402" && !row.relay && (row.status === "queued" || row.status === "submitted");

/**
 * May anyone hear of success? Signatures of spends and withdrawals are public once they are on chain, and
 * so is an agent's payment that another facilitator relayed: shown here, they prove nothing.
 */
const isAskable = (row: SettlementRow): boolean =>
  row.kind === "facilitated" || (row.kind === "x402" && row.relay);

function finalOf(row: SettlementRow): SettlementOutcome | undefined {
  const { id, status, txHash, blockNumber, settledAt, byOther } = row;
  if (status === "settled" && txHash && settledAt)
    return { status, id, txHash, blockNumber: blockNumber ?? 0n, settledAt, byOther };
  if (status === "failed" || status === "expired") {
    const reason = row.errorReason ?? "invalid_exact_evm_transaction_failed";
    return {
      status,
      id,
      reason,
      message: row.errorMessage ?? reason,
      ...(txHash && { txHash }),
    };
  }
  return undefined;
}

/** The engine's own words, where the protocol has another. */
function protocolReason(outcome: { status: "failed" | "expired"; reason: string }): string {
  if (outcome.reason === "authorization_canceled") return "invalid_exact_evm_nonce_already_used";
  if (outcome.status === "expired") return "invalid_exact_evm_payload_authorization_valid_before";
  return outcome.reason;
}

const names = (payment: ExactPayment, row: SettlementRow): PaymentNames => ({
  network: payment.networkName,
  payer: payment.payer,
  amount: payment.amountAtomic.toString(),
  paymentId: row.id,
});

const refusal = (network: string, { reason, message, payer }: Refusal): SettleAnswer =>
  notSettled({ network, ...(payer !== undefined && { payer }) }, reason, { message });
