/** What a seller changes if payments are refused for a reason of the protocol. The sentences for the reasons are REASONS. */
import type { Reason } from "../../schemes/scheme.ts";

const NOTHING_HERE = "Nothing in your API: the buyer's program made this mistake.";
const OFFER = "Send the payment on with exactly the requirements that your 402 answer had.";
const BUYER_PAYS = "Nothing in your API: the buyer needs more USDC on this network.";
const AGAIN =
  "Nothing: the buyer may send a new payment. If it is frequent, allow more time in maxTimeoutSeconds.";
const CLOCK = "Nothing in your API: the clock of the buyer's computer is wrong.";
const ONCE =
  "Settle each payment once. Send repeats of your own settle with the same Idempotency-Key.";
const DOMAIN = "Copy name and version for extra from GET /api/x402, for this network and asset.";
const ASSET = "Ask for an asset of GET /api/x402, on the same network.";
const PAYER_WALLET = "Nothing in your API: the buyer's wallet or the token refuses the transfer.";
const PERMIT2 =
  "Offer the scheme exact without assetTransferMethod beside it: it needs no allowance.";
const LATER =
  "Nothing: send the same request again later. If it stays, report it to this service's operator.";
const METERED = "Charge at most the amount in your requirements.";
const UPTO_KIND = "Take extra from the kinds of GET /api/x402/supported.";
const CHANNEL = "Let the channel manager of your paywall package make this request.";
const CHANNEL_OFFER =
  "Offer channels with the terms of the channel's configuration, and do not change them while it is open.";

export const FIXES = {
  invalid_x402_version: "Send x402Version 1 or 2, as the payment has it.",
  invalid_payload:
    "Send x402Version, paymentPayload and paymentRequirements as the protocol has them.",
  unsupported_payload_type: "Ask for a scheme of GET /api/x402/supported.",
  invalid_network: "Ask for a network of GET /api/x402/supported.",
  unsupported_scheme: "Ask for a scheme of GET /api/x402/supported.",
  invalid_exact_evm_scheme: "Ask for the scheme exact.",
  invalid_exact_evm_network_mismatch: OFFER,
  invalid_exact_evm_missing_eip712_domain: DOMAIN,
  invalid_exact_evm_recipient_mismatch: OFFER,
  invalid_exact_evm_signature: `Nothing if it is one buyer. If it is every buyer: ${DOMAIN.charAt(0).toLowerCase()}${DOMAIN.slice(1)}`,
  invalid_exact_evm_payload_authorization_valid_before: AGAIN,
  invalid_exact_evm_payload_authorization_valid_after: CLOCK,
  invalid_exact_evm_authorization_value: OFFER,
  invalid_exact_evm_payload_authorization_value_mismatch: OFFER,
  asset_not_deployed_contract: ASSET,
  invalid_exact_evm_eip3009_not_supported: ASSET,
  invalid_exact_evm_nonce_already_used: ONCE,
  invalid_exact_evm_token_name_mismatch: DOMAIN,
  invalid_exact_evm_token_version_mismatch: DOMAIN,
  invalid_exact_evm_insufficient_balance: BUYER_PAYS,
  invalid_exact_evm_transaction_simulation_failed: PAYER_WALLET,
  invalid_exact_evm_transaction_failed: PAYER_WALLET,
  invalid_permit2_spender: NOTHING_HERE,
  invalid_permit2_recipient_mismatch: OFFER,
  permit2_deadline_expired: AGAIN,
  permit2_not_yet_valid: CLOCK,
  permit2_amount_mismatch: OFFER,
  permit2_token_mismatch: OFFER,
  invalid_permit2_signature: NOTHING_HERE,
  permit2_allowance_required: PERMIT2,
  permit2_insufficient_balance: BUYER_PAYS,
  permit2_proxy_not_deployed: PERMIT2,
  permit2_simulation_failed: PAYER_WALLET,
  permit2_invalid_amount: "Ask for more than zero.",
  permit2_invalid_destination: "Set payTo to your wallet's address.",
  permit2_invalid_owner: NOTHING_HERE,
  permit2_payment_too_early: CLOCK,
  permit2_invalid_nonce: ONCE,
  upto_amount_exceeds_permitted: METERED,
  invalid_upto_evm_scheme: "Ask for the scheme upto in both places.",
  invalid_upto_evm_network_mismatch: OFFER,
  invalid_upto_evm_payload_settlement_exceeds_amount: METERED,
  invalid_upto_evm_transaction_failed: PAYER_WALLET,
  upto_facilitator_mismatch: UPTO_KIND,
  upto_unauthorized_facilitator: UPTO_KIND,
  permit2_2612_amount_mismatch: NOTHING_HERE,
  invalid_eip2612_extension_format: NOTHING_HERE,
  eip2612_from_mismatch: NOTHING_HERE,
  eip2612_asset_mismatch: NOTHING_HERE,
  eip2612_spender_not_permit2: NOTHING_HERE,
  eip2612_deadline_expired: AGAIN,
  eip6492_factory_not_allowed:
    "Ask this service's operator to allow the factory of the buyer's wallet.",
  amount_below_floor: "Ask for a higher price, or offer payment channels.",
  invalid_erc20_approval_extension_format: NOTHING_HERE,
  erc20_approval_from_mismatch: NOTHING_HERE,
  erc20_approval_asset_mismatch: NOTHING_HERE,
  erc20_approval_spender_not_permit2: NOTHING_HERE,
  erc20_approval_tx_wrong_target: NOTHING_HERE,
  erc20_approval_tx_wrong_selector: NOTHING_HERE,
  erc20_approval_tx_wrong_spender: NOTHING_HERE,
  erc20_approval_tx_invalid_calldata: NOTHING_HERE,
  erc20_approval_tx_signer_mismatch: NOTHING_HERE,
  erc20_approval_tx_invalid_signature: NOTHING_HERE,
  erc20_approval_tx_parse_failed: NOTHING_HERE,
  erc20_approval_tx_failed: PAYER_WALLET,
  erc20_approval_broadcast_failed: PAYER_WALLET,
  gas_budget_exhausted: "Send it again later, or ask this service's operator to admit your wallet.",
  invalid_batch_settlement_evm_scheme: "Ask for the scheme batch-settlement in both places.",
  invalid_batch_settlement_evm_network_mismatch: OFFER,
  invalid_batch_settlement_evm_payload_type: CHANNEL,
  invalid_batch_settlement_evm_channel_id_mismatch: NOTHING_HERE,
  invalid_batch_settlement_evm_receiver_mismatch: CHANNEL_OFFER,
  invalid_batch_settlement_evm_receiver_authorizer_mismatch: CHANNEL_OFFER,
  invalid_batch_settlement_evm_token_mismatch: CHANNEL_OFFER,
  invalid_batch_settlement_evm_withdraw_delay_mismatch: CHANNEL_OFFER,
  invalid_batch_settlement_evm_withdraw_delay_out_of_range:
    "Set extra.withdrawDelay between 900 and 2592000 seconds.",
  invalid_batch_settlement_evm_voucher_signature: NOTHING_HERE,
  invalid_batch_settlement_evm_channel_not_found: NOTHING_HERE,
  invalid_batch_settlement_evm_cumulative_exceeds_balance: BUYER_PAYS,
  invalid_batch_settlement_evm_cumulative_below_claimed: CHANNEL,
  invalid_batch_settlement_evm_insufficient_balance: BUYER_PAYS,
  invalid_batch_settlement_evm_missing_eip712_domain: DOMAIN,
  invalid_batch_settlement_evm_payload_authorization_valid_before: AGAIN,
  invalid_batch_settlement_evm_payload_authorization_valid_after: CLOCK,
  invalid_batch_settlement_evm_receive_authorization_signature: NOTHING_HERE,
  invalid_batch_settlement_evm_erc3009_authorization_required: NOTHING_HERE,
  invalid_batch_settlement_evm_permit2_authorization_required: NOTHING_HERE,
  invalid_batch_settlement_evm_permit2_invalid_spender: NOTHING_HERE,
  invalid_batch_settlement_evm_permit2_amount_mismatch: NOTHING_HERE,
  invalid_batch_settlement_evm_permit2_deadline_expired: AGAIN,
  invalid_batch_settlement_evm_permit2_invalid_signature: NOTHING_HERE,
  invalid_batch_settlement_evm_permit2_allowance_required: NOTHING_HERE,
  invalid_batch_settlement_evm_eip2612_amount_mismatch: NOTHING_HERE,
  invalid_batch_settlement_evm_erc20_approval_unavailable: NOTHING_HERE,
  invalid_batch_settlement_evm_rpc_read_failed: LATER,
  invalid_batch_settlement_evm_deposit_simulation_failed: PAYER_WALLET,
  invalid_batch_settlement_evm_deposit_transaction_failed: PAYER_WALLET,
  invalid_batch_settlement_evm_claim_simulation_failed: CHANNEL,
  invalid_batch_settlement_evm_claim_transaction_failed: CHANNEL,
  invalid_batch_settlement_evm_settle_simulation_failed: CHANNEL,
  invalid_batch_settlement_evm_settle_transaction_failed: CHANNEL,
  invalid_batch_settlement_evm_nothing_to_settle: "Nothing: there is no claimed money to settle.",
  invalid_batch_settlement_evm_refund_simulation_failed: CHANNEL,
  invalid_batch_settlement_evm_refund_transaction_failed: CHANNEL,
  invalid_batch_settlement_evm_refund_no_balance: "Nothing: the channel is empty.",
  invalid_batch_settlement_evm_authorizer_address_mismatch: CHANNEL_OFFER,
  invalid_batch_settlement_evm_authorizer_not_configured:
    "Sign claims with your own authorizer, or ask this service's operator to admit your wallet.",
  duplicate_settlement: ONCE,
  settlement_pending: "Send the same settle request again to get its outcome.",
  unexpected_verify_error: LATER,
  unexpected_settle_error: LATER,
  fees_unpaid:
    "Pay what you owe for earlier settlements: Fees on the merchant page, or POST /api/merchant/fees/pay.",
  address_screened: "Nothing: this service's operator does not settle for these addresses.",
  screening_unavailable: LATER,
} as const satisfies Record<Reason, string>;

/** Null for reasons of the chain, such as a revert. */
export const fixOf = (reason: string): string | null =>
  Object.hasOwn(FIXES, reason) ? FIXES[reason as Reason] : null;
