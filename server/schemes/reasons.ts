/**
 * The protocol's own reason codes for EVM schemes (the exported constants of @x402/evm and
 * the protocol's generic codes), each with the sentence a person reads. Clients branch on the codes.
 */
export const REASONS = {
  invalid_x402_version: "x402Version must be 1 or 2, and the same in the payment payload.",
  invalid_payload: "The request does not have the shape the protocol asks for.",
  unsupported_payload_type: "Only EIP-3009 authorizations are supported here.",
  invalid_network: "This facilitator does not serve this network.",
  invalid_exact_evm_scheme: "Only the scheme `exact` is supported.",
  invalid_exact_evm_network_mismatch: "The payment is for another network than the requirements.",
  invalid_exact_evm_missing_eip712_domain:
    "paymentRequirements.extra must name the token's EIP-712 domain (name and version).",
  invalid_exact_evm_recipient_mismatch: "The payment is to another address than payTo.",
  invalid_exact_evm_signature: "The signature is not the payer's over this authorization.",
  invalid_exact_evm_payload_authorization_valid_before:
    "The authorization has expired, or expires within 6 seconds.",
  invalid_exact_evm_payload_authorization_valid_after: "The authorization is not valid yet.",
  invalid_exact_evm_authorization_value: "The authorized value is not the required amount.",
  invalid_exact_evm_payload_authorization_value_mismatch:
    "The authorized value is not the required amount.",
  asset_not_deployed_contract: "There is no contract at the asset's address.",
  invalid_exact_evm_eip3009_not_supported: "This facilitator settles only USDC on this network.",
  invalid_exact_evm_nonce_already_used: "This authorization was used or cancelled before.",
  invalid_exact_evm_token_name_mismatch: "extra.name is not the token's EIP-712 name.",
  invalid_exact_evm_token_version_mismatch: "extra.version is not the token's EIP-712 version.",
  invalid_exact_evm_insufficient_balance: "The payer's balance is below the amount.",
  invalid_exact_evm_transaction_simulation_failed: "The token would refuse this transfer.",
  invalid_exact_evm_transaction_failed: "The transfer failed on chain.",
  eip6492_factory_not_allowed:
    "The payer's wallet is not deployed yet, and its factory is not one this facilitator calls.",
  duplicate_settlement: "This payment was settled before, for another request.",
  settlement_pending:
    "The payment was sent and is not final yet. Post the same settle again to hear its outcome.",
  unexpected_verify_error: "The payment could not be checked now. Try again.",
  unexpected_settle_error: "The payment could not be settled now. Try again.",
} as const;

export type Reason = keyof typeof REASONS;

/** Why a payment is refused. `payer` is told as soon as it is known. */
export interface Refusal {
  readonly isValid: false;
  readonly reason: Reason;
  readonly message: string;
  readonly payer?: string;
}

export function refuse(reason: Reason, payer?: string, message: string = REASONS[reason]): Refusal {
  return { isValid: false, reason, message, ...(payer !== undefined && { payer }) };
}
