/**
 * The interface of a payment scheme, by the parts that use it: facilitator, settlement engine, wallet, paywall.
 * `schemes/index.ts` lists the schemes; no other code knows them by name.
 */
import type { Address, Hex } from "viem";
import type { CallResult, ContractCall, RpcLog } from "../core/abi.ts";
import type {
  Authorization,
  AuthorizationRef,
  Nonce,
  SettlementKey,
  SignedAuthorization,
} from "../core/authorization.ts";
import type { PaywallScheme } from "../../packages/paywall/src/scheme.ts";
import type { NetworkFacts } from "../core/networks.ts";
import type { Deployment } from "../core/signatures.ts";
import { parseAddress, isRecord } from "../core/foreign-text.ts";
import { checksummedAddress } from "../core/keccak.ts";
import { parseAtomic } from "../core/money.ts";

/** A payment as presented by a caller: parsed, not verified yet. Addresses in lower case. */
export interface Payment {
  readonly scheme: Facilitated;
  readonly version: 1 | 2;
  readonly network: NetworkFacts;
  /** As the caller wrote it; the response repeats it. */
  readonly networkName: string;
  readonly payTo: Address;
  readonly amountAtomic: bigint;
  /** What the payer claims to have signed. */
  readonly authorization: Authorization;
  readonly signature: string;
  /** Checksummed, for the response. */
  readonly payer: Address;
}

export type ReadPayment<Read extends Payment = Payment> =
  | { readonly isValid: true; readonly payment: Read }
  | Refusal;

export type Fields = Record<string, unknown>;

/** The parts of a protocol body, split the same way for every scheme. */
export interface PresentedParts {
  readonly version: 1 | 2;
  /** Version 2: `paymentPayload.accepted`; version 1: the payload itself. */
  readonly accepted: Fields;
  /** `paymentPayload.payload`, whose fields the scheme defines. */
  readonly payload: Fields;
  readonly requirements: Fields;
  /** `paymentPayload.extensions`. */
  readonly extensions: Fields;
}

/** What the chain shows about a transfer that would fail. */
export interface Diagnosis {
  /** Undefined if the token does not support the query. */
  readonly used: boolean | undefined;
  readonly balanceAtomic: bigint | undefined;
  /** The token's revert reason, if any. */
  readonly revert?: string | undefined;
  /** The results of `diagnosisCalls`. */
  readonly reads?: readonly CallResult[] | undefined;
}

/**
 * The payer's own transaction, signed and not sent, without which its payment would fail. It is broadcast
 * unchanged, and its sender pays the gas.
 */
export interface PayerApproval {
  readonly raw: Hex;
  /** Lower case. */
  readonly from: Address;
  readonly call: ContractCall;
  readonly nonce: bigint;
  readonly gas: bigint;
  readonly maxFeeWei: bigint;
}

/** The context in which a payment is checked. */
export interface CheckContext {
  readonly networks: readonly NetworkFacts[];
  /** "settle": the required amount may be the used part of a maximum; "verify" checks the maximum. */
  readonly purpose: "verify" | "settle";
  /** The accounts that we send from. */
  readonly relayers: readonly Address[];
}

/** Used by the facilitator's checker. */
export interface Checking<Read extends Payment> {
  /** For a scheme that is not the first of its name: whether the payload is for this one. */
  recognizes?(parts: PresentedParts): boolean;
  read(parts: PresentedParts, checkContext: CheckContext): ReadPayment<Read>;
  /** The digest, and the canonical signature if the payer signed it as an ordinary account. */
  examine(payment: Read): { digest: Hex; ecdsa: Hex | undefined };
  /**
   * Checks before the signature, for schemes whose reference implementation has that order; times as in
   * `checkTerms`.
   */
  checkFirst?(payment: Read, nowSeconds: bigint | undefined): Refusal | undefined;
  /**
   * Checks without the chain. Without a time, the window is not checked, so a payment that was accepted in time
   * keeps its result afterwards.
   */
  checkTerms(payment: Read, nowSeconds: bigint | undefined): Refusal | undefined;
  /** Further reads to explain a failure. */
  diagnosisCalls?(payment: AuthorizationRef): ContractCall[];
  explainFailure(payment: Read, found: Diagnosis): Refusal;
  /** The transaction that the payer sent to be executed first, valid after `checkTerms` passed. */
  payerApproval?(payment: Read): PayerApproval | undefined;
  /** The reason of `explainFailure` when only the payer's approval is missing. */
  readonly reasonUnprepared?: Reason;
  readonly reasonSignature: Reason;
  /** For an asset that is a contract and not the network's USDC. */
  readonly reasonOtherAsset: Reason;
}

export interface TransferPlan {
  /**
   * The calls that move the money, in order; if there are several, the last must succeed. Encoded when called.
   */
  calls(): readonly [...ContractCall[], ContractCall];
  /** Signed by a plain key: it runs no third-party code. */
  readonly isPlainKey: boolean;
  readonly deployment: Deployment | undefined;
  /** Upper bound for the gas of one such call with a plain key, alone or in a batch. */
  readonly keyGas: bigint;
  /** What a call with several parts may use in addition, above the cap of one payment's gas. */
  readonly moreGas?: bigint;
  /** The contract accepts it only from this account: it is sent alone, and only by that lane. */
  readonly sender?: Address | undefined;
}

/** The call of a transaction, as its sender signed it. */
export interface SentCall {
  readonly to: string;
  readonly data: Hex;
}

/** What a mined transaction shows: its logs and, if the logs do not name a use, its call. */
export interface Shown {
  readonly logs: readonly RpcLog[];
  readonly sent?: SentCall | undefined;
}

/** The transfer that proves this authorization paid. */
export interface ExpectedTransfer extends AuthorizationRef {
  to: string;
  value: bigint;
}

export type AuthorizationOutcome = "paid" | "canceled" | "used_otherwise" | "untouched";

/** Why the contract rejects a call, from its revert reason. */
export interface RevertMeaning {
  readonly reason: Reason;
  readonly message: string;
  /** Used, expired, or not valid yet: this depends on the state at a block, not on the call. */
  readonly isOfState: boolean;
}

/** Used by the checker's simulation and by the settlement engine, so that both use the same bytes. */
export interface Relaying {
  planTransfer(authorization: SignedAuthorization): TransferPlan;
  /** Who is paid in the end, where the money goes to a contract first: the payee of its gas budget. */
  payeeOf?(authorization: Authorization): Address;
  /** The contract that takes the money from the payer, if it is not the one that gets it. Lower case. */
  readonly collector?: Address;
  /** Undefined if the contract accepts a cancellation only from the payer. */
  cancelCall?(key: Pick<SettlementKey, "asset" | "from" | "nonce">, signature: Hex): ContractCall;
  stateCall(ref: AuthorizationRef): ContractCall;
  /** Whether the result of `stateCall` means used or canceled; undefined if it means neither yes nor no. */
  isEnded(ref: AuthorizationRef, answer: CallResult): boolean | undefined;
  /** What one transaction proves. */
  outcomeIn(shown: Shown, expected: ExpectedTransfer): AuthorizationOutcome;
  /** The charged part of a maximum, if that transaction paid. Undefined if the amount is what was signed. */
  chargedIn?(shown: Shown, expected: ExpectedTransfer): bigint | undefined;
  /**
   * Amounts of matching traces in a transaction whose calls cannot be read: someone relayed it through their
   * own contract, or together with similar payments.
   * If the contract's state shows that it was used in that block, and there is one such trace, that was the
   * payment.
   */
  unreadIn?(shown: Shown, expected: ExpectedTransfer): bigint[];
  /**
   * An event names each authorization that it ends. Otherwise `outcomeIn` needs the transaction's call, two
   * payments with the same trace (`traceOf`) never share a transaction, and the contract's state shows in which
   * block a use must be.
   */
  readonly isNamedInLogs: boolean;
  traceOf(expected: ExpectedTransfer): string | undefined;
  /** The `eth_getLogs` filter to find its end: its own events if they name it, otherwise candidates. */
  endFilter(expected: ExpectedTransfer): { address: string; topics: (Hex | Hex[])[] };
  explainRevert(text: string | undefined): RevertMeaning;
  /** It may succeed without an effect, so it shows nothing about the token: an order of a channel's receiver. */
  readonly isOrder?: true;
  readonly reasonUsed: Reason;
  readonly reasonExpired: Reason;
}

/** What the facilitator needs of a scheme. */
export interface Facilitated<Read extends Payment = Payment> extends Checking<Read>, Relaying {}

/** A payment that a wallet is to make, before its scheme turns it into an authorization. */
export interface WantedPayment {
  readonly network: NetworkFacts;
  readonly from: Address;
  readonly payTo: Address;
  /** For a metered scheme, the maximum. */
  readonly amountAtomic: bigint;
  readonly validAfter: bigint;
  readonly validBefore: bigint;
  /** A new random nonce, the nonce that the seller chose (MPP), or the digest of an approval. */
  readonly nonce: Hex;
  /**
   * The seller's `extra`. A scheme uses only what the seller may choose: never a contract, domain or spender.
   */
  readonly extra: Fields;
}

/** Used by custody and by the client that pays for requests. */
interface Paying {
  /** Why the seller's `extra` describes something that we do not sign; undefined if it does not. */
  whyNotPayable(extra: Fields, network: NetworkFacts): string | undefined;
  authorize(wanted: WantedPayment): Authorization;
  /** Contracts besides the token that must exist on a network for payments with this scheme. */
  readonly contracts?: Readonly<Record<string, Address>>;
  /** The prefix of stored nonces whose contract counts them separately from the token. */
  readonly noncePrefix?: "permit2:";
  /** The most that may move, if that is not the value. */
  mostOf?(authorization: Authorization): bigint;
  /**
   * The contract that takes the money from the wallet by a token allowance, which must cover everything signed
   * for it. Undefined if the token moves it by the signature alone.
   */
  readonly spender?: Address;
  transferDigest(network: NetworkFacts, authorization: Authorization): Uint8Array;
  /** Undefined if a payment cannot be canceled: its budget returns when it expires. */
  cancelDigest?(network: NetworkFacts, authorizer: Address, nonce: Nonce): Uint8Array;
  /** The `payload` of the proof for a seller. */
  proofPayload(authorization: SignedAuthorization): object;
}

/** With the paywall's part: `PaywallScheme`. */
export interface Scheme<Read extends Payment = Payment>
  extends Checking<Read>, Relaying, Paying, PaywallScheme {
  readonly versions: readonly (1 | 2)[];
  /** Charges the used part of a maximum, so a paywall cannot ask a fixed price with it. */
  readonly isMetered?: boolean;
  /** The keys of protocol extensions that it supports on this network. */
  supportedExtensions?(network: NetworkFacts): readonly string[];
  /** The `extra` of the kind that the facilitator announces. */
  supportedExtra?(relayers: readonly Address[]): Fields | undefined;
}

/**
 * The protocol's reason codes for EVM schemes (the exported constants of @x402/evm and the protocol's generic
 * codes), each with a sentence for people. Clients branch on the codes.
 */
export const REASONS = {
  invalid_x402_version: "x402Version must be 1 or 2, and the same in the payment payload.",
  invalid_payload: "The request does not have the format that the protocol requires.",
  unsupported_payload_type: "This scheme does not support this payload type.",
  invalid_network: "This facilitator does not serve this network.",
  unsupported_scheme: "This facilitator does not support this payment scheme.",
  invalid_exact_evm_scheme: "Only the scheme `exact` is supported.",
  invalid_exact_evm_network_mismatch: "The payment and the requirements name different networks.",
  invalid_exact_evm_missing_eip712_domain:
    "paymentRequirements.extra must name the token's EIP-712 domain (name and version).",
  invalid_exact_evm_recipient_mismatch: "The payment's recipient differs from payTo.",
  invalid_exact_evm_signature:
    "The signature is not a valid signature of the payer for this authorization.",
  invalid_exact_evm_payload_authorization_valid_before:
    "The authorization has expired, or expires within 6 seconds.",
  invalid_exact_evm_payload_authorization_valid_after: "The authorization is not valid yet.",
  invalid_exact_evm_authorization_value: "The authorized value differs from the required amount.",
  invalid_exact_evm_payload_authorization_value_mismatch:
    "The authorized value differs from the required amount.",
  asset_not_deployed_contract: "There is no contract at the asset's address.",
  invalid_exact_evm_eip3009_not_supported: "This facilitator settles only USDC on this network.",
  invalid_exact_evm_nonce_already_used: "This authorization was used or cancelled before.",
  invalid_exact_evm_token_name_mismatch: "extra.name differs from the token's EIP-712 name.",
  invalid_exact_evm_token_version_mismatch:
    "extra.version differs from the token's EIP-712 version.",
  invalid_exact_evm_insufficient_balance: "The payer's balance is below the amount.",
  invalid_exact_evm_transaction_simulation_failed: "The token would refuse this transfer.",
  invalid_exact_evm_transaction_failed: "The transfer failed on chain.",
  invalid_permit2_spender: "The spender that the payer signed for is not this scheme's proxy.",
  invalid_permit2_recipient_mismatch: "The payment's recipient differs from payTo.",
  permit2_deadline_expired: "The payment has expired, or expires within 6 seconds.",
  permit2_not_yet_valid: "The payment is not valid yet.",
  permit2_amount_mismatch: "The permitted amount differs from the required amount.",
  permit2_token_mismatch: "The payment's token differs from the required asset.",
  invalid_permit2_signature:
    "The signature is not a valid signature of the payer for this payment.",
  permit2_allowance_required: "The payer's token allowance for Permit2 is below the amount.",
  permit2_insufficient_balance: "The payer's balance is below the amount.",
  permit2_proxy_not_deployed: "The x402 proxy for Permit2 is not deployed on this network.",
  permit2_simulation_failed: "Permit2 would refuse this transfer.",
  permit2_invalid_amount: "The amount is zero.",
  permit2_invalid_destination: "The payee is the zero address.",
  permit2_invalid_owner: "The payer is the zero address.",
  permit2_payment_too_early: "The payment is not valid yet.",
  permit2_invalid_nonce: "This payment was used or cancelled before.",
  upto_amount_exceeds_permitted: "The requested amount is more than the payer signed for.",
  invalid_upto_evm_scheme: "Only the scheme `upto` is supported for this payment.",
  invalid_upto_evm_network_mismatch: "The payment and the requirements name different networks.",
  invalid_upto_evm_payload_settlement_exceeds_amount:
    "The requested amount is more than the payer signed for.",
  invalid_upto_evm_transaction_failed: "The transfer failed on chain.",
  upto_facilitator_mismatch: "The payer signed for a different facilitator account.",
  upto_unauthorized_facilitator: "The payer signed for a different facilitator account.",
  permit2_2612_amount_mismatch: "The amount of the token's permit differs from the payment.",
  invalid_eip2612_extension_format: "The EIP-2612 extension is malformed.",
  eip2612_from_mismatch: "The payer did not sign the token's permit.",
  eip2612_asset_mismatch: "The token's permit is for a different token.",
  eip2612_spender_not_permit2: "The token's permit is not for Permit2.",
  eip2612_deadline_expired: "The token's permit has expired, or expires within 6 seconds.",
  eip6492_factory_not_allowed:
    "The payer's wallet is not deployed yet, and this facilitator does not call its factory.",
  address_screened: "This facilitator does not settle payments between these addresses.",
  screening_unavailable: "The payment's addresses cannot be screened now. Try again later.",
  amount_below_floor: "The payment is smaller than its gas costs.",
  invalid_erc20_approval_extension_format: "The approval extension is malformed.",
  erc20_approval_from_mismatch: "The approval is not from the payer.",
  erc20_approval_asset_mismatch: "The approval is for a different token.",
  erc20_approval_spender_not_permit2: "The approval is not for Permit2.",
  erc20_approval_tx_wrong_target: "The approval's transaction does not call the token.",
  erc20_approval_tx_wrong_selector: "The approval's transaction does not call approve().",
  erc20_approval_tx_wrong_spender: "The approval's transaction is not for Permit2.",
  erc20_approval_tx_invalid_calldata:
    "The approval's transaction has invalid arguments for approve().",
  erc20_approval_tx_signer_mismatch: "The payer did not sign the approval's transaction.",
  erc20_approval_tx_invalid_signature: "The approval's transaction is not signed.",
  erc20_approval_tx_parse_failed: "The approval's transaction cannot be read.",
  erc20_approval_tx_failed: "The approval would not allow the payment.",
  erc20_approval_broadcast_failed: "The network rejected the approval's transaction.",
  gas_budget_exhausted: "The gas budget for this payment is used up for now. Try later.",
  fees_unpaid: "The seller owes this facilitator too many fees. Nothing was sent.",
  invalid_batch_settlement_evm_scheme:
    "Only the scheme `batch-settlement` is supported for this payment.",
  invalid_batch_settlement_evm_network_mismatch:
    "The payment and the requirements name different networks.",
  invalid_batch_settlement_evm_payload_type:
    "The payload must be a deposit, a voucher, a claim, a settle or a refund, as the request allows.",
  invalid_batch_settlement_evm_channel_id_mismatch:
    "The channel's id is not that of its configuration.",
  invalid_batch_settlement_evm_receiver_mismatch: "The channel's receiver differs from payTo.",
  invalid_batch_settlement_evm_receiver_authorizer_mismatch:
    "The channel's receiver authorizer differs from extra.receiverAuthorizer.",
  invalid_batch_settlement_evm_token_mismatch:
    "The channel's token differs from the required asset.",
  invalid_batch_settlement_evm_withdraw_delay_mismatch:
    "The channel's withdraw delay differs from extra.withdrawDelay.",
  invalid_batch_settlement_evm_withdraw_delay_out_of_range:
    "The channel's withdraw delay must be between 15 minutes and 30 days.",
  invalid_batch_settlement_evm_voucher_signature:
    "The signature is not a valid signature of the payer's authorizer for this voucher.",
  invalid_batch_settlement_evm_channel_not_found: "There is no money in this channel.",
  invalid_batch_settlement_evm_cumulative_exceeds_balance:
    "The voucher's ceiling is above what is in the channel.",
  invalid_batch_settlement_evm_cumulative_below_claimed:
    "The voucher's ceiling is not above what was claimed already.",
  invalid_batch_settlement_evm_insufficient_balance: "The payer's balance is below the deposit.",
  invalid_batch_settlement_evm_missing_eip712_domain:
    "extra.name and extra.version must name the token's EIP-712 domain.",
  invalid_batch_settlement_evm_payload_authorization_valid_before:
    "The deposit's authorization has expired, or expires within 6 seconds.",
  invalid_batch_settlement_evm_payload_authorization_valid_after:
    "The deposit's authorization is not valid yet.",
  invalid_batch_settlement_evm_receive_authorization_signature:
    "The signature is not a valid signature of the payer for this deposit.",
  invalid_batch_settlement_evm_erc3009_authorization_required:
    "The deposit has no EIP-3009 authorization.",
  invalid_batch_settlement_evm_permit2_authorization_required:
    "The deposit has no Permit2 authorization.",
  invalid_batch_settlement_evm_permit2_invalid_spender:
    "The payer did not sign for the Permit2 collector of channels.",
  invalid_batch_settlement_evm_permit2_amount_mismatch:
    "The permitted amount differs from the deposit.",
  invalid_batch_settlement_evm_permit2_deadline_expired:
    "The deposit's authorization has expired, or expires within 6 seconds.",
  invalid_batch_settlement_evm_permit2_invalid_signature:
    "The signature is not a valid signature of the payer for this deposit.",
  invalid_batch_settlement_evm_permit2_allowance_required:
    "The payer's token allowance for Permit2 is below the deposit.",
  invalid_batch_settlement_evm_eip2612_amount_mismatch:
    "The amount of the token's permit differs from the deposit.",
  invalid_batch_settlement_evm_erc20_approval_unavailable:
    "This facilitator does not send approvals for deposits. Sign the token's permit instead (eip2612GasSponsoring).",
  invalid_batch_settlement_evm_rpc_read_failed:
    "The channel's state could not be read now. Try again.",
  invalid_batch_settlement_evm_deposit_simulation_failed: "The contract would refuse this deposit.",
  invalid_batch_settlement_evm_deposit_transaction_failed: "The deposit failed on chain.",
  invalid_batch_settlement_evm_claim_simulation_failed: "The contract would refuse this claim.",
  invalid_batch_settlement_evm_claim_transaction_failed: "The claim failed on chain.",
  invalid_batch_settlement_evm_settle_simulation_failed: "The contract would refuse this settle.",
  invalid_batch_settlement_evm_settle_transaction_failed: "The settle failed on chain.",
  invalid_batch_settlement_evm_nothing_to_settle: "Nothing is claimed that is not settled.",
  invalid_batch_settlement_evm_refund_simulation_failed: "The contract would refuse this refund.",
  invalid_batch_settlement_evm_refund_transaction_failed: "The refund failed on chain.",
  invalid_batch_settlement_evm_refund_no_balance: "Nothing is left in the channel to refund.",
  invalid_batch_settlement_evm_authorizer_address_mismatch:
    "The channel names a different receiver authorizer.",
  invalid_batch_settlement_evm_authorizer_not_configured:
    "The receiver's authorizer did not sign, and this facilitator does not sign for this caller.",
  duplicate_settlement: "This payment was settled before for a different request.",
  settlement_pending:
    "The payment was sent and is not final yet. Send the same settle request again to get its outcome.",
  unexpected_verify_error: "The payment could not be checked now. Try again.",
  unexpected_settle_error: "The payment could not be settled now. Try again.",
} as const;

export type Reason = keyof typeof REASONS;

/** Why a payment is refused. `payer` is set as soon as it is known. */
export interface Refusal {
  readonly isValid: false;
  readonly reason: Reason;
  readonly message: string;
  readonly payer?: string | undefined;
}

export const refuse = (
  reason: Reason,
  payer?: string,
  message: string = REASONS[reason],
): Refusal => ({ isValid: false, reason, message, payer });

export const invalid = (message: string, payer?: string): Refusal =>
  refuse("invalid_payload", payer, message);

export function splitPayload(body: unknown): PresentedParts | Refusal {
  if (!isRecord(body)) return invalid("The body must be a JSON object.");
  const { paymentPayload, paymentRequirements: requirements } = body;
  if (!isRecord(paymentPayload)) return invalid("paymentPayload must be an object.");
  const version = body["x402Version"] ?? paymentPayload["x402Version"];
  if ((version !== 1 && version !== 2) || (paymentPayload["x402Version"] ?? version) !== version)
    return refuse("invalid_x402_version", payerOf(paymentPayload));
  if (!isRecord(requirements)) return invalid("paymentRequirements must be an object.");
  const accepted = version === 2 ? paymentPayload["accepted"] : paymentPayload;
  if (!isRecord(accepted)) return invalid("paymentPayload.accepted must be an object.");
  const { payload } = paymentPayload;
  if (!isRecord(payload)) return invalid("paymentPayload.payload must be an object.");
  const extensions = isRecord(paymentPayload["extensions"]) ? paymentPayload["extensions"] : {};
  return { version, accepted, payload, requirements, extensions };
}

export interface SellerTerms extends Pick<Payment, "payTo" | "amountAtomic"> {
  readonly asset: Address;
}

/** What the seller requires. */
export function readSellerTerms(
  { version, requirements }: PresentedParts,
  payer: Address | undefined,
  mayBeNothing: boolean,
): SellerTerms | Refusal {
  const asset = parseAddress(requirements["asset"]);
  if (!asset.ok) return invalid(`paymentRequirements.asset ${asset.reason}.`, payer);
  const payTo = parseAddress(requirements["payTo"]);
  if (!payTo.ok) return invalid(`paymentRequirements.payTo ${payTo.reason}.`, payer);
  const amountField = version === 2 ? "amount" : "maxAmountRequired";
  const amountAtomic = parseAtomic(requirements[amountField]);
  if (amountAtomic === undefined || (amountAtomic === 0n && !mayBeNothing))
    return invalid(`paymentRequirements.${amountField} must be atomic units above zero.`, payer);
  return { asset: asset.address, payTo: payTo.address, amountAtomic };
}

/** Version 2: a core field of `accepted` that contradicts the requirements. A field may be omitted. */
export function contradiction(
  { version, accepted }: PresentedParts,
  required: SellerTerms,
): "payTo" | "amount" | "asset" | undefined {
  if (version === 1) return undefined;
  const { asset, payTo, amount } = accepted;
  if (payTo !== undefined && lower(payTo) !== required.payTo) return "payTo";
  if (amount !== undefined && parseAtomic(amount) !== required.amountAtomic) return "amount";
  if (asset !== undefined && lower(asset) !== required.asset) return "asset";
  return undefined;
}

/** Version 2 names networks by CAIP-2 id, version 1 by its own names; never the other way round. */
export const findServed = (
  version: 1 | 2,
  name: string,
  networks: readonly NetworkFacts[],
): NetworkFacts | undefined =>
  networks.find((network) => (version === 2 ? network.id === name : network.v1Name === name));

/** The network that both sides name. */
export function readNetwork(
  { version, accepted, requirements }: PresentedParts,
  networks: readonly NetworkFacts[],
  { payer, reasonMismatch }: { payer: Address | undefined; reasonMismatch: Reason },
): Pick<Payment, "network" | "networkName"> | Refusal {
  const networkName = requirements["network"];
  if (typeof networkName !== "string" || accepted["network"] !== networkName)
    return refuse(reasonMismatch, payer);
  const network = findServed(version, networkName, networks);
  return network ? { network, networkName } : refuse("invalid_network", payer);
}

const lower = (value: unknown): unknown =>
  typeof value === "string" ? value.toLowerCase() : value;

export function checksummed(value: unknown): Address | undefined {
  const parsed = parseAddress(value);
  return parsed.ok ? checksummedAddress(parsed.address) : undefined;
}

export function payerOf({ payload }: Fields): Address | undefined {
  const { authorization, permit2Authorization } = isRecord(payload) ? payload : {};
  const signed = isRecord(permit2Authorization) ? permit2Authorization : authorization;
  return isRecord(signed) ? checksummed(signed["from"]) : undefined;
}

/** The caller's name for the network, even if nothing else was readable. */
export function networkNameOf(body: unknown): string {
  if (!isRecord(body)) return "";
  const { paymentPayload, paymentRequirements } = body;
  for (const holder of [paymentRequirements, paymentPayload]) {
    if (isRecord(holder) && typeof holder["network"] === "string") return holder["network"];
  }
  return "";
}
