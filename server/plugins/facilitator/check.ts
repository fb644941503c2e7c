/**
 * The checker of payments: `verify` returns its result, and `settle` acts on it.
 * A payment from an ordinary account (EOA) costs one chain read, shared with payments that are checked at the
 * same time. Everything else (smart wallets, and finding out why a transfer would fail) takes more calls.
 */
import type { Address, Hex } from "viem";
import { formatAtomic } from "../../core/money.ts";
import type { NetworkFacts } from "../../core/networks.ts";
import type { SignedAuthorization } from "../../core/authorization.ts";
import { readPayment } from "../../schemes/index.ts";
import {
  refuse,
  type CheckContext,
  type PayerApproval,
  type Refusal,
  type Diagnosis,
  type Payment,
  type ReadPayment,
} from "../../schemes/scheme.ts";
import { unwrapSignature, type Deployment } from "../../core/signatures.ts";
import type { PayerApprovalProblem } from "./payer-approval.ts";

export interface Rehearsed {
  readonly goesThrough: boolean;
  /** The token's revert reason, if any. */
  readonly revert: string | undefined;
}

/** The checker's calls to the chain. All of them are limited in time and gas. */
export interface PaymentReads {
  /** Whether the token would move the money now. Shared with payments that are checked at the same time. */
  rehearse(chainId: number, authorization: SignedAuthorization): Promise<boolean>;
  /**
   * The same, alone and under the gas cap. Deploys the payer's wallet first if the signature contains its
   * deployment (ERC-6492).
   */
  rehearseAlone(chainId: number, authorization: SignedAuthorization): Promise<Rehearsed>;
  diagnose(chainId: number, authorization: SignedAuthorization): Promise<Diagnosis>;
  /** Simulates the payer's own transaction and then the transfer, in one block. */
  rehearseAfter(
    chainId: number,
    payerApproval: PayerApproval,
    authorization: SignedAuthorization,
  ): Promise<PayerApprovalProblem>;
  hasCode(chainId: number, address: Address): Promise<boolean>;
  /** ERC-1271. */
  acceptsSignature(chainId: number, wallet: Address, digest: Hex, signature: Hex): Promise<boolean>;
}

export interface Approved {
  readonly isValid: true;
  readonly payment: Payment;
  /** With the signature as it is relayed: what was simulated is what is sent. */
  readonly authorization: SignedAuthorization;
  /** The payment succeeds only after this transaction of the payer. */
  readonly payerApproval?: PayerApproval;
}
export type CheckResult = Approved | Refusal;

export interface CheckerDeps {
  networks: readonly NetworkFacts[];
  relayers: readonly Address[];
  reads: PaymentReads;
  /** Whether the operator allows this factory to be called. */
  mayDeploy(deployment: Deployment): boolean;
  /** Smaller payments are not worth their gas. */
  minPaymentAtomic: bigint;
  nowSeconds: () => bigint;
}

export class PaymentChecker {
  readonly #deps: CheckerDeps;

  constructor(deps: CheckerDeps) {
    this.#deps = deps;
  }

  /** Reads only the shape of the body: enough for `settle` to look up whether it knows this payment. */
  read(body: unknown, purpose: CheckContext["purpose"]): ReadPayment {
    const { networks, relayers } = this.#deps;
    return readPayment(body, networks, { purpose, relayers });
  }

  async check(body: unknown): Promise<CheckResult> {
    const read = this.read(body, "verify");
    return read.isValid ? this.checkPayment(read.payment) : read;
  }

  async checkPayment(payment: Payment): Promise<CheckResult> {
    const { scheme } = payment;
    const early = scheme.checkFirst && (await this.#checkEarly(payment));
    if (early) return early;
    const { digest, ecdsa } = scheme.examine(payment);
    if (ecdsa === undefined) return this.#checkWallet(payment, digest);
    const refusal = this.#checkTerms(payment) ?? (await this.#checkAsset(payment));
    if (refusal) return refusal;
    const authorization = signed(payment, ecdsa);
    const { chainId } = payment.network;
    if (await this.#deps.reads.rehearse(chainId, authorization))
      return { isValid: true, payment, authorization };
    // An account with code verifies its signatures itself, even if its key signed (EIP-7702).
    const [hasCode, diagnosis, alone] = await Promise.all([
      this.#deps.reads.hasCode(chainId, payment.authorization.from),
      this.#deps.reads.diagnose(chainId, authorization),
      this.#deps.reads.rehearseAlone(chainId, authorization),
    ]);
    if (alone.goesThrough) return { isValid: true, payment, authorization };
    if (hasCode) return this.#checkWallet(payment, digest);
    const failure = scheme.explainFailure(payment, { ...diagnosis, revert: alone.revert });
    const payerApproval =
      failure.reason === scheme.reasonUnprepared && scheme.payerApproval?.(payment);
    if (!payerApproval) return failure;
    const trouble = await this.#deps.reads.rehearseAfter(chainId, payerApproval, authorization);
    if (!trouble) return { isValid: true, payment, authorization, payerApproval };
    return "why" in trouble
      ? refuse("erc20_approval_broadcast_failed", payment.payer, trouble.why)
      : failure;
  }

  /** For schemes whose reference implementation checks the terms, and then the asset, before the signature. */
  async #checkEarly(payment: Payment): Promise<Refusal | undefined> {
    const { scheme } = payment;
    return (
      scheme.checkFirst?.(payment, this.#deps.nowSeconds()) ?? (await this.#checkAsset(payment))
    );
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
    const isContract = await this.#deps.reads.hasCode(network.chainId, asset);
    return refuse(
      isContract ? payment.scheme.reasonOtherAsset : "asset_not_deployed_contract",
      payer,
      isContract ? "This facilitator settles only USDC on this network." : undefined,
    );
  }

  async #checkWallet(payment: Payment, digest: Hex): Promise<CheckResult> {
    const { reads } = this.#deps;
    const { chainId } = payment.network;
    const badSignature = refuse(payment.scheme.reasonSignature, payment.payer);
    const parts = unwrapSignature(payment.signature);
    if (!parts) return badSignature;
    const isDeployed = await reads.hasCode(chainId, payment.authorization.from);
    if (!isDeployed && !parts.deployment) return badSignature;
    if (isDeployed) {
      const accepted = await reads.acceptsSignature(
        chainId,
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
    if (deployment && !this.#deps.mayDeploy(deployment))
      return refuse("eip6492_factory_not_allowed", payment.payer);
    // A wallet that must be deployed first keeps its envelope, which contains the deployment.
    const authorization = signed(payment, deployment ? (payment.signature as Hex) : parts.inner);
    const { goesThrough, revert } = await reads.rehearseAlone(chainId, authorization);
    if (goesThrough) return { isValid: true, payment, authorization };
    const diagnosis = await reads.diagnose(chainId, authorization);
    return payment.scheme.explainFailure(payment, { ...diagnosis, revert });
  }
}

const signed = ({ authorization }: Payment, signature: Hex): SignedAuthorization => ({
  chainId: authorization.chainId,
  asset: authorization.asset,
  from: authorization.from,
  to: authorization.to,
  value: authorization.value,
  validAfter: authorization.validAfter,
  validBefore: authorization.validBefore,
  nonce: authorization.nonce,
  terms: authorization.terms,
  signature,
});
