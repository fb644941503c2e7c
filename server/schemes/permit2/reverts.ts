/**
 * Maps reverts of Permit2, its proxies and the token to the protocol's reason codes and readable sentences.
 */
import { toFunctionSelector } from "viem";
import type { Reason, RevertMeaning } from "../scheme.ts";

export const REASON_USED: Reason = "permit2_invalid_nonce";
export const REASON_EXPIRED: Reason = "permit2_deadline_expired";

interface Known {
  reason: Reason;
  sentence: string;
  isOfState?: boolean;
}
const custom = (signature: string): string => `custom error ${toFunctionSelector(signature)}`;
const badSignature: Known = {
  reason: "invalid_permit2_signature",
  sentence: "Permit2 rejects the signature.",
};
const KNOWN = new Map<string, Known>([
  [
    custom("InvalidNonce()"),
    { reason: REASON_USED, sentence: "The nonce has been used.", isOfState: true },
  ],
  [
    custom("SignatureExpired(uint256)"),
    { reason: REASON_EXPIRED, sentence: "The deadline has passed.", isOfState: true },
  ],
  [
    custom("PaymentTooEarly()"),
    {
      reason: "permit2_payment_too_early",
      sentence: "The payment is not valid yet.",
      isOfState: true,
    },
  ],
  [custom("InvalidSigner()"), badSignature],
  [custom("InvalidSignature()"), badSignature],
  [custom("InvalidSignatureLength()"), badSignature],
  [custom("InvalidContractSignature()"), badSignature],
  [
    custom("InvalidAmount()"),
    { reason: "permit2_invalid_amount", sentence: "The amount is zero." },
  ],
  [
    custom("InvalidDestination()"),
    { reason: "permit2_invalid_destination", sentence: "The payee is the zero address." },
  ],
  [
    custom("InvalidOwner()"),
    { reason: "permit2_invalid_owner", sentence: "The payer is the zero address." },
  ],
  [
    custom("Permit2612AmountMismatch()"),
    {
      reason: "permit2_2612_amount_mismatch",
      sentence: "The amount of the token's permit differs from the payment.",
    },
  ],
  [
    custom("AmountExceedsPermitted()"),
    {
      reason: "upto_amount_exceeds_permitted",
      sentence: "The amount is more than the payer signed for.",
    },
  ],
  [
    custom("UnauthorizedFacilitator()"),
    {
      reason: "upto_unauthorized_facilitator",
      sentence: "Only a different account may send this payment.",
    },
  ],
  [
    "TRANSFER_FROM_FAILED",
    {
      reason: "permit2_simulation_failed",
      sentence:
        "The token rejects the transfer: the payer's balance or its allowance for Permit2 is too low with its other pending payments, or the token blocks the payer or the payee.",
    },
  ],
]);

export function explainRevert(text: string | undefined, otherwise: Reason): RevertMeaning {
  const known = KNOWN.get(text ?? "");
  const sentence = known?.sentence ?? "The transfer fails on chain with its gas limit.";
  return {
    reason: known?.reason ?? otherwise,
    message: sentence + (text === undefined ? "" : ` (${text.slice(0, 200)})`),
    isOfState: known?.isOfState ?? false,
  };
}
