import {
  bytesToHex,
  isAddressEqual,
  isErc6492Signature,
  parseErc6492Signature,
  zeroAddress,
  type Address,
  type Hex,
} from "viem";
import { transferDigest } from "./digest.ts";
import type { ExactPayment } from "./payment.ts";
import { parseEcdsa, recoverSigner } from "../../core/curve.ts";

/** A wallet's signature with its deployment; more would be gas for the sake of gas. */
const MAX_SIGNATURE_CHARS = 64_000;

/** How an undeployed wallet comes to be (ERC-6492). */
export interface Deployment {
  readonly factory: Address;
  readonly data: Hex;
}

export interface SignatureTools {
  /** The digest, and the canonical signature if the payer itself made it as an ordinary account. */
  examine(payment: ExactPayment): { digest: Hex; ecdsa: Hex | undefined };
  /** Takes an ERC-6492 envelope apart; without one, the signature is its own inside. */
  unwrap(signature: string): { inner: Hex; deployment: Deployment | undefined } | undefined;
}

/** The checker's signature work, done in this process. */
export const paymentSignatures: SignatureTools = {
  examine(payment) {
    const domain = {
      name: payment.domainName,
      version: payment.domainVersion,
      chainId: payment.network.chainId,
      verifyingContract: payment.asset,
    };
    const digest = transferDigest(domain, payment);
    const signature = parseEcdsa(payment.signature);
    const isPayers = signature !== undefined && recoverSigner(digest, signature) === payment.from;
    return { digest: bytesToHex(digest), ecdsa: isPayers ? signature.hex : undefined };
  },

  unwrap(signature) {
    if (signature.length > MAX_SIGNATURE_CHARS) return undefined;
    if (!/^0x(?:[0-9a-fA-F]{2})+$/.test(signature)) return undefined;
    if (!isErc6492Signature(signature as Hex))
      return { inner: signature as Hex, deployment: undefined };
    try {
      const { address, data, signature: inner } = parseErc6492Signature(signature as Hex);
      if (!address || !data || isAddressEqual(address, zeroAddress)) return undefined;
      // An envelope in an envelope could only mean to pass the list of allowed factories.
      if (isErc6492Signature(inner)) return undefined;
      return { inner, deployment: { factory: address, data } };
    } catch {
      // Ends like an ERC-6492 envelope, but holds nothing that decodes: not a signature.
      return undefined;
    }
  },
};
