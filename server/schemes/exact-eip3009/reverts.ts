/** Why the token refuses a call, from its revert text (FiatToken 2.x), in the protocol's codes and for people. */
import type { Reason } from "../reasons.ts";
import type { RevertMeaning } from "../scheme.ts";

export const REASON_USED: Reason = "invalid_exact_evm_nonce_already_used";
export const REASON_EXPIRED: Reason = "invalid_exact_evm_payload_authorization_valid_before";

interface Known {
  text: RegExp;
  reason: Reason;
  sentence: string;
  isOfState?: boolean;
}

/** In order: the first that matches wins. */
const KNOWN: readonly Known[] = [
  {
    text: /used or canceled/i,
    reason: REASON_USED,
    sentence: "The authorization's nonce has been used.",
    isOfState: true,
  },
  {
    text: /authorization is expired/i,
    reason: REASON_EXPIRED,
    sentence: "The authorization is past its validBefore.",
    isOfState: true,
  },
  {
    text: /not yet valid/i,
    reason: "invalid_exact_evm_payload_authorization_valid_after",
    sentence: "The authorization is not valid yet.",
  },
  {
    text: /exceeds balance|insufficient ?balance/i,
    reason: "invalid_exact_evm_insufficient_balance",
    sentence: "The payer's balance does not cover the amount, given its other pending payments.",
  },
  {
    text: /invalid signature|ECRecover/i,
    reason: "invalid_exact_evm_signature",
    sentence: "The token refuses the signature.",
  },
  {
    text: /blacklist|blocklist/i,
    reason: "invalid_exact_evm_transaction_simulation_failed",
    sentence: "The token blocks the payer or the payee.",
  },
  {
    text: /paused/i,
    reason: "invalid_exact_evm_transaction_simulation_failed",
    sentence: "The token is paused.",
  },
];
const UNKNOWN: Omit<Known, "text"> = {
  reason: "invalid_exact_evm_transaction_failed",
  sentence: "The transfer fails on chain within its gas limit.",
};

export function explainRevert(text: string | undefined): RevertMeaning {
  const known = KNOWN.find((candidate) => candidate.text.test(text ?? "")) ?? UNKNOWN;
  return {
    reason: known.reason,
    message: known.sentence + (text === undefined ? "" : ` (${text.slice(0, 200)})`),
    isOfState: known.isOfState ?? false,
  };
}
