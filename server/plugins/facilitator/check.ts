/**
 * The one checker of payments: `verify` answers with its verdict, `settle` acts on it.
 *
 * An ordinary account's payment costs one chain read, shared with the payments checked at the same
 * time. Everything else (smart wallets, and finding out why a transfer would fail) asks for more.
 */
import type { Address, Hex } from "viem";
import type { NetworkFacts } from "../../core/networks.ts";
import type { SignedAuthorization } from "../../core/authorization.ts";
import type { Deployment, SignatureTools } from "../../schemes/exact-eip3009/signatures.ts";
import { readPayment, type ExactPayment } from "../../schemes/exact-eip3009/payment.ts";
import { refuse, type Refusal } from "../../schemes/exact-eip3009/reasons.ts";
import { checkTerms, explainFailure, type Diagnosis } from "../../schemes/exact-eip3009/terms.ts";

/** What the checker asks the chain. All of it is bounded in time and gas. */
export interface PaymentReads {
  /** Would the token move the money now? Shared with payments checked at the same time. */
  rehearse(chainId: number, authorization: SignedAuthorization): Promise<boolean>;
  /** The same, alone and under the gas cap; deploys the payer's wallet first if told how. */
  rehearseAlone(
    chainId: number,
    authorization: SignedAuthorization,
    deployment?: Deployment,
  ): Promise<boolean>;
  diagnose(chainId: number, authorization: SignedAuthorization): Promise<Diagnosis>;
  hasCode(chainId: number, address: Address): Promise<boolean>;
  /** ERC-1271. */
  acceptsSignature(chainId: number, wallet: Address, digest: Hex, signature: Hex): Promise<boolean>;
}

export interface Approved {
  readonly isValid: true;
  readonly payment: ExactPayment;
  /** With the signature in the form the token takes. */
  readonly authorization: SignedAuthorization;
  readonly deployment?: Deployment;
}
export type Verdict = Approved | Refusal;

export interface CheckerParts {
  networks: readonly NetworkFacts[];
  reads: PaymentReads;
  signatures: SignatureTools;
  nowSeconds: () => bigint;
}

export class PaymentChecker {
  readonly #parts: CheckerParts;

  constructor(parts: CheckerParts) {
    this.#parts = parts;
  }

  /** Shape only: what `settle` needs to find out whether it has seen this payment. */
  read(body: unknown) {
    return readPayment(body, this.#parts.networks);
  }

  async check(body: unknown): Promise<Verdict> {
    const read = this.read(body);
    return read.isValid ? this.checkPayment(read.payment) : read;
  }

  async checkPayment(payment: ExactPayment): Promise<Verdict> {
    const { digest, ecdsa } = this.#parts.signatures.examine(payment);
    if (ecdsa === undefined) return this.#checkWallet(payment, digest);
    const refusal = this.#checkTerms(payment) ?? (await this.#checkAsset(payment));
    if (refusal) return refusal;
    const authorization = signed(payment, ecdsa);
    const { chainId } = payment.network;
    if (await this.#parts.reads.rehearse(chainId, authorization))
      return { isValid: true, payment, authorization };
    // An account with code answers for its signatures itself, whatever its key signed (EIP-7702).
    const [hasCode, diagnosis, goesAlone] = await Promise.all([
      this.#parts.reads.hasCode(chainId, payment.from),
      this.#parts.reads.diagnose(chainId, authorization),
      this.#parts.reads.rehearseAlone(chainId, authorization),
    ]);
    if (goesAlone) return { isValid: true, payment, authorization };
    if (hasCode) return this.#checkWallet(payment, digest);
    return explainFailure(payment, diagnosis);
  }

  #checkTerms(payment: ExactPayment): Refusal | undefined {
    return checkTerms(payment, this.#parts.nowSeconds());
  }

  /** Only the network's own USDC is settled; the code says what is wrong with another asset. */
  async #checkAsset(payment: ExactPayment): Promise<Refusal | undefined> {
    const { asset, network, payer } = payment;
    if (asset === network.usdc.address.toLowerCase()) return undefined;
    const isContract = await this.#parts.reads.hasCode(network.chainId, asset);
    return refuse(
      isContract ? "invalid_exact_evm_eip3009_not_supported" : "asset_not_deployed_contract",
      payer,
    );
  }

  async #checkWallet(payment: ExactPayment, digest: Hex): Promise<Verdict> {
    const { reads, signatures } = this.#parts;
    const { chainId } = payment.network;
    const badSignature = refuse("invalid_exact_evm_signature", payment.payer);
    const parts = signatures.unwrap(payment.signature);
    if (!parts) return badSignature;
    const isDeployed = await reads.hasCode(chainId, payment.from);
    if (!isDeployed && !parts.deployment) return badSignature;
    if (isDeployed) {
      const accepted = await reads.acceptsSignature(chainId, payment.from, digest, parts.inner);
      if (!accepted) return badSignature;
    }
    const refusal = this.#checkTerms(payment) ?? (await this.#checkAsset(payment));
    if (refusal) return refusal;
    const deployment = isDeployed ? undefined : parts.deployment;
    const authorization = signed(payment, parts.inner);
    if (await reads.rehearseAlone(chainId, authorization, deployment))
      return { isValid: true, payment, authorization, ...(deployment && { deployment }) };
    return explainFailure(payment, await reads.diagnose(chainId, authorization));
  }
}

function signed(payment: ExactPayment, signature: Hex): SignedAuthorization {
  const { network, asset, from, to, value, validAfter, validBefore, nonce } = payment;
  return {
    chainId: network.chainId,
    asset,
    from,
    to,
    value,
    validAfter,
    validBefore,
    nonce,
    signature,
  };
}
