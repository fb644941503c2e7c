/** Decisions about a payment that need no chain: pure, in the reference implementation's order. */
import type { ExactPayment } from "./payment.ts";
import { refuse, type Refusal } from "../reasons.ts";
import type { Diagnosis } from "../scheme.ts";

/** An authorization must outlive the way into a block, as the protocol has it. */
const MIN_LIFETIME_SECONDS = 6n;

/**
 * Recipient, window and value; undefined when all is well. Asked after the signature. Without a time the
 * window is not looked at: a payment that was accepted in time keeps its answer afterwards.
 */
export function checkTerms(
  payment: ExactPayment,
  nowSeconds: bigint | undefined,
): Refusal | undefined {
  const { payer, acceptedMismatch, authorization } = payment;
  if (authorization.to !== payment.payTo || acceptedMismatch === "payTo")
    return refuse("invalid_exact_evm_recipient_mismatch", payer);
  if (nowSeconds !== undefined && authorization.validBefore < nowSeconds + MIN_LIFETIME_SECONDS)
    return refuse("invalid_exact_evm_payload_authorization_valid_before", payer);
  if (nowSeconds !== undefined && authorization.validAfter > nowSeconds)
    return refuse("invalid_exact_evm_payload_authorization_valid_after", payer);
  if (authorization.value !== payment.amountAtomic || acceptedMismatch === "amount") {
    const reason =
      payment.version === 2
        ? "invalid_exact_evm_payload_authorization_value_mismatch"
        : "invalid_exact_evm_authorization_value";
    return refuse(reason, payer);
  }
  if (acceptedMismatch === "asset")
    return refuse("invalid_payload", payer, "accepted.asset differs from the requirements.");
  return undefined;
}

export function explainFailure(payment: ExactPayment, found: Diagnosis): Refusal {
  const { payer, network } = payment;
  if (found.used === undefined) return refuse("invalid_exact_evm_eip3009_not_supported", payer);
  if (found.used) return refuse("invalid_exact_evm_nonce_already_used", payer);
  if (payment.domainName !== network.usdc.name)
    return refuse("invalid_exact_evm_token_name_mismatch", payer);
  if (payment.domainVersion !== network.usdc.version)
    return refuse("invalid_exact_evm_token_version_mismatch", payer);
  if (found.balanceAtomic !== undefined && found.balanceAtomic < payment.amountAtomic)
    return refuse("invalid_exact_evm_insufficient_balance", payer);
  return refuse("invalid_exact_evm_transaction_simulation_failed", payer);
}
