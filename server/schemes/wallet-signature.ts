/** Signatures of smart wallets, whichever scheme they sign for. */
import {
  isAddressEqual,
  isErc6492Signature,
  parseErc6492Signature,
  zeroAddress,
  type Address,
  type Hex,
} from "viem";

/** A wallet's signature with its deployment; more would be gas for the sake of gas. */
const MAX_SIGNATURE_CHARS = 64_000;

/** For making a smart wallet before its first payment. */
export const DEPLOYMENT_GAS = 1_500_000n;

/** How an undeployed wallet comes to be (ERC-6492). */
export interface Deployment {
  readonly factory: Address;
  readonly data: Hex;
}

export interface WalletSignature {
  /** What the wallet itself is shown. */
  readonly inner: Hex;
  readonly deployment: Deployment | undefined;
}

/** Takes an ERC-6492 envelope apart; without one, the signature is its own inside. Undefined: no signature. */
export function unwrapSignature(signature: string): WalletSignature | undefined {
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
}
