/**
 * What differs between payment schemes, in the words of those who ask: the facilitator, the settlement engine,
 * the wallet, the paywall. `schemes/index.ts` lists the schemes; nobody else knows them by name.
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

/** A payment as somebody presents it: read, and not believed yet. Addresses in lower case. */
export interface Payment {
  readonly scheme: Scheme;
  readonly version: 1 | 2;
  readonly network: NetworkFacts;
  /** As the caller wrote it: the answer repeats it. */
  readonly networkName: string;
  readonly payTo: Address;
  readonly amountAtomic: bigint;
  /** What the payer says it signed. */
  readonly authorization: Authorization;
  readonly signature: string;
  /** Checksummed, for the answer. */
  readonly payer: Address;
}

export type ReadPayment<Read extends Payment = Payment> =
  | { readonly isValid: true; readonly payment: Read }
  | Refusal;

export type Fields = Record<string, unknown>;

/** The parts of a protocol body, taken apart alike for every scheme. */
export interface PresentedParts {
  readonly version: 1 | 2;
  /** Version 2: `paymentPayload.accepted`; version 1: the payload itself. */
  readonly accepted: Fields;
  /** `paymentPayload.payload`: the scheme's own. */
  readonly payload: Fields;
  readonly requirements: Fields;
  /** `paymentPayload.extensions`. */
  readonly extensions: Fields;
}

/** What the chain said when the transfer would not go through. */
export interface Diagnosis {
  /** Undefined when the token does not know the question. */
  readonly used: boolean | undefined;
  readonly balanceAtomic: bigint | undefined;
  /** What the token said against the transfer, where it said anything. */
  readonly revert?: string | undefined;
  /** The answers to `diagnosisCalls`. */
  readonly asked?: readonly CallResult[] | undefined;
}

/**
 * A transaction of the payer's own, signed and not sent, without which its payment would fail. It is sent as it is, at
 * its sender's gas: nothing of ours is in it.
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

/** Whose desk a payment is presented at, and for what. */
export interface CheckContext {
  readonly networks: readonly NetworkFacts[];
  /** To settle: then what is required may be what was used of a maximum, which a check is about. */
  readonly purpose: "verify" | "settle";
  /** The accounts we send from. */
  readonly relayers: readonly Address[];
}

/** Asked by the facilitator's checker. */
interface Checking<Read extends Payment> {
  /** Of two schemes of one name: whose payload this is. */
  recognizes(parts: PresentedParts): boolean;
  read(parts: PresentedParts, checkContext: CheckContext): ReadPayment<Read>;
  /** The digest, and the canonical signature if the payer itself made it as an ordinary account. */
  examine(payment: Read): { digest: Hex; ecdsa: Hex | undefined };
  /** What is looked at before the signature is, where the reference has that order; times as in `checkTerms`. */
  checkFirst?(payment: Read, nowSeconds: bigint | undefined): Refusal | undefined;
  /** What needs no chain. Without a time, a payment that was accepted in time keeps its answer afterwards. */
  checkTerms(payment: Read, nowSeconds: bigint | undefined): Refusal | undefined;
  /** What else is asked of the chain to explain a failure. */
  diagnosisCalls?(payment: AuthorizationRef): ContractCall[];
  explainFailure(payment: Read, found: Diagnosis): Refusal;
  /** What the payer sent along to be done first, after `checkTerms` found no fault with it. */
  payerApproval?(payment: Read): PayerApproval | undefined;
  /** Of `explainFailure`: that only the groundwork is missing. */
  readonly reasonUnprepared?: Reason;
  readonly reasonSignature: Reason;
  /** For an asset that is a contract and not the network's USDC. */
  readonly reasonOtherAsset: Reason;
}

export interface TransferPlan {
  /** What moves the money, in order; where there are several, the last fails the others. Put together when asked for. */
  calls(): readonly [...ContractCall[], ContractCall];
  /** What a plain key signed: no code of strangers runs in it. */
  readonly isPlainKey: boolean;
  readonly deployment: Deployment | undefined;
  /** What one such call of a plain key uses at the very most, in company or not. */
  readonly keyGas: bigint;
  /** The contract takes it from this account alone: it travels by itself, and only on that lane. */
  readonly sender?: Address | undefined;
}

/** What a transaction called, as its sender signed it. */
export interface SentCall {
  readonly to: string;
  readonly data: Hex;
}

/** What a mined transaction shows: its logs and, where a use is not named in them, what it called. */
export interface Shown {
  readonly logs: readonly RpcLog[];
  readonly sent?: SentCall | undefined;
}

/** What must have moved for this authorization to count as paid. */
export interface ExpectedTransfer extends AuthorizationRef {
  to: string;
  value: bigint;
}

export type AuthorizationOutcome = "paid" | "canceled" | "used_otherwise" | "untouched";

/** Why the contract refuses a call, from its revert text. */
export interface RevertMeaning {
  readonly reason: Reason;
  readonly message: string;
  /** Used, past its time, or too early: the state at a block decides that, not a revert. */
  readonly isOfState: boolean;
}

/** Asked by the checker's rehearsal and by the settlement engine, so that both speak of the same bytes. */
export interface Relaying {
  planTransfer(authorization: SignedAuthorization): TransferPlan;
  /** Missing where the contract takes a cancellation from the payer alone. */
  cancelCall?(key: Pick<SettlementKey, "asset" | "from" | "nonce">, signature: Hex): ContractCall;
  stateCall(ref: AuthorizationRef): ContractCall;
  /** Whether that call's answer says used or canceled; undefined where it says neither yes nor no. */
  isEnded(ref: AuthorizationRef, answer: CallResult): boolean | undefined;
  /** What one transaction proves. */
  outcomeIn(shown: Shown, expected: ExpectedTransfer): AuthorizationOutcome;
  /** What of a maximum moved, where that transaction paid. Missing where the amount is what was signed. */
  chargedIn?(shown: Shown, expected: ExpectedTransfer): bigint | undefined;
  /**
   * Amounts that left the payment's trace in a transaction whose calls cannot be read: somebody relayed it through a
   * contract of their own, or beside others alike. Where the contract's state says that it was used in that block, and there is one such trace,
   * that was it.
   */
  unreadIn?(shown: Shown, expected: ExpectedTransfer): bigint[];
  /**
   * An event names each authorization it ends. Where not, `fateIn` must be shown what the transaction called, two that
   * leave the same trace (`traceOf`) never share one, and the contract's state says in which block a use must be.
   */
  readonly isNamedInLogs: boolean;
  traceOf(expected: ExpectedTransfer): string | undefined;
  /** Where to look for its end, for `eth_getLogs`: every log of it where it is named, else candidates. */
  endFilter(expected: ExpectedTransfer): { address: string; topics: (Hex | Hex[])[] };
  explainRevert(text: string | undefined): RevertMeaning;
  readonly reasonUsed: Reason;
  readonly reasonExpired: Reason;
}

/** What a wallet is to pay, before its scheme made an authorization of it. */
export interface WantedPayment {
  readonly network: NetworkFacts;
  readonly from: Address;
  readonly payTo: Address;
  /** Of a metered scheme: the most. */
  readonly amountAtomic: bigint;
  readonly validAfter: bigint;
  readonly validBefore: bigint;
  /** Fresh, from our own side. */
  readonly nonce: Hex;
  /** The seller's. Of it a scheme takes only what is the seller's to choose: no contract, no domain, no spender. */
  readonly extra: Fields;
}

/** Asked by the wallet: custody, and the client that pays for requests. */
interface Paying {
  /** A seller's `extra` may describe what we do not sign: then the sentence that says so. */
  whyNotPayable(extra: Fields, network: NetworkFacts): string | undefined;
  authorize(wanted: WantedPayment): Authorization;
  /** What must be on a network beside the token, or nothing can be paid by it there. */
  readonly contracts?: Readonly<Record<string, Address>>;
  /** How a nonce is stored whose contract counts apart from the token. */
  readonly noncePrefix?: "permit2:";
  /** The most that may move by it, where that is not its value. */
  mostOf?(authorization: Authorization): bigint;
  /**
   * The contract that takes the money out of the wallet by an allowance of the token, which must cover everything that
   * is signed for it. Missing where the token moves it by the signature alone.
   */
  readonly spender?: Address;
  transferDigest(network: NetworkFacts, authorization: Authorization): Uint8Array;
  /** Missing where nobody can cancel for the payer: the budget returns when it has run out. */
  cancelDigest?(network: NetworkFacts, authorizer: Address, nonce: Nonce): Uint8Array;
  /** `payload` of the proof a seller is shown. */
  proofPayload(authorization: SignedAuthorization): object;
}

/** Asked by the paywall: `PaywallScheme`. */
export interface Scheme<Read extends Payment = Payment>
  extends Checking<Read>, Relaying, Paying, PaywallScheme {
  readonly versions: readonly (1 | 2)[];
  /** Charges what was used of a maximum: there is no price that a paywall could ask for. */
  readonly isMetered?: boolean;
  /** Keys of the protocol's extensions it understands on this network. */
  supportedExtensions?(network: NetworkFacts): readonly string[];
  /** `extra` of the kind the facilitator announces. */
  supportedExtra?(relayers: readonly Address[]): Fields | undefined;
}

/**
 * The protocol's own reason codes for EVM schemes (the exported constants of @x402/evm and
 * the protocol's generic codes), each with the sentence a person reads. Clients branch on the codes.
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
  duplicate_settlement: "This payment was settled before for a different request.",
  settlement_pending:
    "The payment was sent and is not final yet. Send the same settle request again to get its outcome.",
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

/** The frame of a protocol body, which is the same whatever scheme pays. */

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

/** What the seller asks for. */
export function readSellerTerms(
  { version, requirements }: PresentedParts,
  mayBeNothing = false,
): SellerTerms | Refusal {
  const asset = parseAddress(requirements["asset"]);
  if (!asset.ok) return invalid(`paymentRequirements.asset ${asset.reason}.`);
  const payTo = parseAddress(requirements["payTo"]);
  if (!payTo.ok) return invalid(`paymentRequirements.payTo ${payTo.reason}.`);
  const amountField = version === 2 ? "amount" : "maxAmountRequired";
  const amountAtomic = parseAtomic(requirements[amountField]);
  if (amountAtomic === undefined || (amountAtomic === 0n && !mayBeNothing))
    return invalid(`paymentRequirements.${amountField} must be atomic units above zero.`);
  return { asset: asset.address, payTo: payTo.address, amountAtomic };
}

/** Version 2: a core field of `accepted` that contradicts the requirements. It may leave one out. */
export function contradiction(
  { version, accepted }: PresentedParts,
  asked: SellerTerms,
): "payTo" | "amount" | "asset" | undefined {
  if (version === 1) return undefined;
  const { asset, payTo, amount } = accepted;
  if (payTo !== undefined && lower(payTo) !== asked.payTo) return "payTo";
  if (amount !== undefined && parseAtomic(amount) !== asked.amountAtomic) return "amount";
  if (asset !== undefined && lower(asset) !== asked.asset) return "asset";
  return undefined;
}

/** Version 2 names networks by CAIP-2 id, version 1 by its own names: never the other way round. */
export const findServed = (
  version: 1 | 2,
  name: string,
  networks: readonly NetworkFacts[],
): NetworkFacts | undefined =>
  networks.find((network) => (version === 2 ? network.id === name : network.v1Name === name));

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

/** What the caller called the network, also where nothing else was readable. */
export function networkNameOf(body: unknown): string {
  if (!isRecord(body)) return "";
  const { paymentPayload, paymentRequirements } = body;
  for (const holder of [paymentRequirements, paymentPayload]) {
    if (isRecord(holder) && typeof holder["network"] === "string") return holder["network"];
  }
  return "";
}
