import {
  bytesToHex,
  isAddressEqual,
  isErc6492Signature,
  parseErc6492Signature,
  zeroAddress,
  type Hex,
} from "viem";
import type { SignatureTools } from "../../domain/facilitator/checker.ts";
import { transferDigest } from "./eip3009-digest.ts";
import { parseEcdsa, recoverSigner } from "./recover.ts";

/** A wallet's signature with its deployment; more would be gas for the sake of gas. */
const MAX_SIGNATURE_CHARS = 64_000;

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
