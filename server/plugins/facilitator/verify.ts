/**
 * A verify: read the payment, check its terms and signature, simulate its transfer on the chain, answer. Nothing is
 * stored. A settle passes the same checks before it is accepted (settle.ts).
 * A payment from an ordinary account (EOA) costs one chain read, shared with payments that are checked at the same
 * time. Everything else (smart wallets, and finding out why a transfer would fail) takes more calls.
 */
import type { FastifyBaseLogger } from "fastify";
import type { Address, Hex } from "viem";
import { formatAtomic } from "../../core/money.ts";
import type { NetworkFacts } from "../../core/networks.ts";
import type { SignedAuthorization } from "../../core/authorization.ts";
import type { VerifyAnswer } from "../../schemas/facilitator.ts";
import { readPayment } from "../../schemes/index.ts";
import {
  refuse,
  type CheckContext,
  type PayerApproval,
  type Refusal,
  type Payment,
  type ReadPayment,
} from "../../schemes/scheme.ts";
import { unwrapSignature } from "../../core/signatures.ts";
import type { Screening } from "../screening/screening.ts";
import type { PaymentReads } from "./chain-reads.ts";
import type { PayeeFees } from "./payee-fees.ts";
import type { Outcomes } from "./stats.ts";

interface VerifyDeps {
  checker: { check(body: unknown): Promise<CheckResult> };
  /** Undefined where the payee owes no fees for this payment. */
  fees: Pick<PayeeFees, "refusal"> | undefined;
  /** Another cell passed it on, and counts its refusal. */
  isForwarded?: boolean | undefined;
  outcomes: Outcomes;
  log: Pick<FastifyBaseLogger, "warn">;
}

/** Answers a verify request. Every outcome is an answer of the protocol, a fault of ours too. */
export async function verify(
  body: unknown,
  { checker, fees, isForwarded = false, outcomes, log }: VerifyDeps,
): Promise<VerifyAnswer> {
  const startedMs = performance.now();
  let checked: CheckResult;
  try {
    checked = await checker.check(body);
    if (checked.isValid && !checked.isReturn)
      checked = (await fees?.refusal(checked.payment)) ?? checked;
  } catch (error) {
    log.warn({ err: error }, "a verify could not be answered");
    checked = refuse("unexpected_verify_error");
  }
  outcomes.record("verify", checked.isValid ? "valid" : checked.reason, startedMs);
  if (checked.isValid) {
    const { payment, extra } = checked;
    const { payer, amountAtomic } = payment;
    return { isValid: true, payer, amount: amountAtomic.toString(), ...(extra && { extra }) };
  }
  const { reason, message, payer } = checked;
  if (!isForwarded) outcomes.reportRefusal("verify", body, reason);
  return {
    isValid: false,
    error: message,
    invalidReason: reason,
    invalidMessage: message,
    ...(payer !== undefined && { payer }),
  };
}

/** What is checked is good, and may move no money itself: a voucher of a payment channel. */
export interface Valid {
  readonly isValid: true;
  readonly payment: Pick<Payment, "payer" | "amountAtomic" | "payTo" | "network">;
  /** The payer asks for its money back. */
  readonly isReturn?: true;
  /** For the answer. */
  readonly extra?: Record<string, unknown>;
}

export interface Approved extends Valid {
  readonly payment: Payment;
  /** With the signature as it is relayed: what was simulated is what is sent. */
  readonly authorization: SignedAuthorization;
  /** The payment succeeds only after this transaction of the payer. */
  readonly payerApproval?: PayerApproval;
}
export type PaymentResult = Approved | Refusal;
export type CheckResult = Valid | Refusal;

interface CheckerDeps {
  networks: readonly NetworkFacts[];
  relayers: readonly Address[];
  /** By chain id. */
  reads: ReadonlyMap<number, PaymentReads>;
  /** The wallet factories that the operator allows to be called, in lower case. */
  factories: readonly string[];
  /** Smaller payments are not worth their gas. */
  minPaymentAtomic: bigint;
  nowSeconds: () => bigint;
  /** Undefined: addresses are not screened. */
  screening?: Pick<Screening, "refusalOfPayment"> | undefined;
}

export class PaymentChecker {
  readonly #deps: CheckerDeps;

  constructor(deps: CheckerDeps) {
    this.#deps = deps;
  }

  /** Reads only the shape of the body: enough for a settle to look up whether it knows this payment. */
  read(body: unknown, purpose: CheckContext["purpose"]): ReadPayment {
    const { networks, relayers } = this.#deps;
    return readPayment(body, networks, { purpose, relayers });
  }

  async check(body: unknown): Promise<PaymentResult> {
    const read = this.read(body, "verify");
    return read.isValid ? this.checkPayment(read.payment) : read;
  }

  async checkPayment(payment: Payment): Promise<PaymentResult> {
    const { screening } = this.#deps;
    const checked = await this.#checkPayment(payment);
    if (!screening || !checked.isValid) return checked;
    // Only of payments that would be made, so that nobody else can ask.
    const { payer, payTo } = payment;
    const reason = await screening.refusalOfPayment([payer, payTo]);
    return reason === undefined ? checked : refuse(reason, payer);
  }

  async #checkPayment(payment: Payment): Promise<PaymentResult> {
    const { scheme } = payment;
    // For schemes whose reference implementation checks the terms, and then the asset, before the signature.
    if (scheme.checkFirst) {
      const early =
        scheme.checkFirst(payment, this.#deps.nowSeconds()) ?? (await this.#checkAsset(payment));
      if (early) return early;
    }
    const { digest, ecdsa } = scheme.examine(payment);
    if (ecdsa === undefined) return this.#checkWallet(payment, digest);
    const refusal = this.#checkTerms(payment) ?? (await this.#checkAsset(payment));
    if (refusal) return refusal;
    const authorization = { ...payment.authorization, signature: ecdsa };
    if (await this.#reads(payment).simulate(authorization))
      return { isValid: true, payment, authorization };
    return this.#checkAlone(payment, authorization, digest);
  }

  /** Simulated with others it failed: alone it may succeed, or its result explains why it fails. */
  async #checkAlone(
    payment: Payment,
    authorization: SignedAuthorization,
    digest: Hex,
  ): Promise<PaymentResult> {
    const { scheme } = payment;
    const reads = this.#reads(payment);
    const [hasCode, diagnosis, alone] = await Promise.all([
      reads.hasCode(authorization.from),
      reads.diagnose(authorization),
      reads.simulateAlone(authorization),
    ]);
    if (alone.goesThrough) return { isValid: true, payment, authorization };
    // An account with code verifies its signatures itself, even if its key signed (EIP-7702).
    if (hasCode) return this.#checkWallet(payment, digest);
    const failure = scheme.explainFailure(payment, { ...diagnosis, revert: alone.revert });
    const payerApproval =
      failure.reason === scheme.reasonUnprepared && scheme.payerApproval?.(payment);
    if (!payerApproval) return failure;
    const problem = await reads.simulateAfter(payerApproval, authorization);
    if (!problem) return { isValid: true, payment, authorization, payerApproval };
    return "why" in problem
      ? refuse("erc20_approval_broadcast_failed", payment.payer, problem.why)
      : failure;
  }

  #reads({ network }: Payment): PaymentReads {
    const reads = this.#deps.reads.get(network.chainId);
    if (!reads) throw new Error(`chain ${network.chainId} is not configured`);
    return reads;
  }

  #checkTerms(payment: Payment): Refusal | undefined {
    const { minPaymentAtomic, nowSeconds } = this.#deps;
    const refusal = payment.scheme.checkTerms(payment, nowSeconds());
    if (refusal || payment.authorization.value >= minPaymentAtomic) return refusal;
    return refuse(
      "amount_below_floor",
      payment.payer,
      `A payment of less than ${formatAtomic(minPaymentAtomic)} USDC costs more gas than it is worth.`,
    );
  }

  /** Only the network's own USDC is settled; the reason code shows what is wrong with another asset. */
  async #checkAsset(payment: Payment): Promise<Refusal | undefined> {
    const { network, payer } = payment;
    const { asset } = payment.authorization;
    if (asset === network.usdc.address.toLowerCase()) return undefined;
    const isContract = await this.#reads(payment).hasCode(asset);
    return refuse(
      isContract ? payment.scheme.reasonOtherAsset : "asset_not_deployed_contract",
      payer,
      isContract ? "This facilitator settles only USDC on this network." : undefined,
    );
  }

  /** A smart wallet verifies its signatures itself, and is always simulated alone. */
  async #checkWallet(payment: Payment, digest: Hex): Promise<PaymentResult> {
    const reads = this.#reads(payment);
    const badSignature = refuse(payment.scheme.reasonSignature, payment.payer);
    const parts = unwrapSignature(payment.signature);
    if (!parts) return badSignature;
    const isDeployed = await reads.hasCode(payment.authorization.from);
    if (!isDeployed && !parts.deployment) return badSignature;
    if (isDeployed) {
      const accepted = await reads.acceptsSignature(
        payment.authorization.from,
        digest,
        parts.inner,
      );
      if (!accepted) return badSignature;
    }
    const refusal = this.#checkTerms(payment) ?? (await this.#checkAsset(payment));
    if (refusal) return refusal;
    const deployment = isDeployed ? undefined : parts.deployment;
    // A factory is third-party code: verify must not approve a payment that settle would not relay.
    if (deployment && !this.#deps.factories.includes(deployment.factory.toLowerCase()))
      return refuse("eip6492_factory_not_allowed", payment.payer);
    // A wallet that must be deployed first keeps its envelope, which contains the deployment.
    const signature = deployment ? (payment.signature as Hex) : parts.inner;
    const authorization = { ...payment.authorization, signature };
    const { goesThrough, revert } = await reads.simulateAlone(authorization);
    if (goesThrough) return { isValid: true, payment, authorization };
    const diagnosis = await reads.diagnose(authorization);
    return payment.scheme.explainFailure(payment, { ...diagnosis, revert });
  }
}
