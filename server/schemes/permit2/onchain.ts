/**
 * The interface of Permit2 and x402's two proxies: the digest that a payer signs, the calls that spend it, and the
 * meaning of their reverts. Encoded by hand like EIP-3009's; a test compares it with viem.
 */
import {
  concat,
  hexToBytes,
  keccak256,
  toBytes,
  toFunctionSelector,
  type Address,
  type Hex,
} from "viem";
import {
  addressWord,
  bytesTail,
  rsWords,
  selectorDigits,
  uintOf,
  uintWord,
  vWord,
  type CallResult,
  type ContractCall,
} from "../../core/abi.ts";
import type { Authorization, AuthorizationRef, TokenPermit } from "../../core/authorization.ts";
import { separatorOf } from "../../core/separators.ts";
import type { Reason, RevertMeaning } from "../scheme.ts";

export const PERMIT2: Address = "0x000000000022D473030F116dDEE9F6B43aC78BA3";

/** One of x402's Permit2 proxies: the spender that a payer signs for. It enforces the signed payee. */
export interface Proxy {
  readonly address: Address;
  readonly settle: string;
  readonly settleWithPermit: string;
  /** The type hashes of what the payer signs, and of the part that only the proxy knows. */
  readonly signedType: string;
  readonly witnessType: string;
}

const PERMIT = "((address,uint256),uint256,uint256)";
const EIP2612 = "(uint256,uint256,bytes32,bytes32,uint8)";
const TOKEN_PERMISSIONS = "TokenPermissions(address token,uint256 amount)";
const hashed = (text: string): string => keccak256(toBytes(text)).slice(2);

const proxyAt = (address: Address, spent: string, witnessType: string): Proxy => ({
  address,
  settle: selectorDigits(`settle(${PERMIT},${spent},bytes)`),
  settleWithPermit: selectorDigits(`settleWithPermit(${EIP2612},${PERMIT},${spent},bytes)`),
  signedType: hashed(
    `PermitWitnessTransferFrom(TokenPermissions permitted,address spender,uint256 nonce,uint256 deadline,Witness witness)${TOKEN_PERMISSIONS}${witnessType}`,
  ),
  witnessType: hashed(witnessType),
});

export const EXACT_PROXY = proxyAt(
  "0x402085c248EeA27D92E8b30b2C58ed07f9E20001",
  "address,(address,uint256)",
  "Witness(address to,uint256 validAfter)",
);

export const UPTO_PROXY = proxyAt(
  "0x4020A4f3b7b90ccA423B9fabCc0CE57C6C240002",
  "uint256,address,(address,address,uint256)",
  "Witness(address to,address facilitator,uint256 validAfter)",
);

/** The fields of a payment, as both proxies name them. */
export interface Spending {
  readonly proxy: Proxy;
  readonly owner: string;
  readonly token: string;
  /** The most that may move. */
  readonly maximum: bigint;
  readonly nonce: bigint;
  readonly deadline: bigint;
  readonly to: string;
  readonly validAfter: bigint;
  /** Only for `upto`: the account that may send it, and how much of the maximum it moves. */
  readonly upto?:
    | {
        readonly facilitator: Address;
        readonly amount: bigint;
      }
    | undefined;
}

const PREFIX = "permit2:";
export const storedNonce = (nonce: bigint): `permit2:0x${string}` =>
  `${PREFIX}0x${uintWord(nonce)}`;
export const nonceOf = ({ nonce }: Pick<AuthorizationRef, "nonce">): bigint =>
  BigInt(nonce.slice(PREFIX.length));

/** Permit2 accepts the second of its deadline; `validBefore` is the first second that is too late. */
export const deadlineOf = ({ validBefore }: Pick<Authorization, "validBefore">): bigint =>
  validBefore - 1n;

/** The token's permit (EIP-2612), if it is sent with the payment. */
export const permitOf = (terms: Authorization["terms"]): TokenPermit | undefined =>
  terms && "permit" in terms ? terms.permit : undefined;

const TOKEN_PERMISSIONS_HASH = hashed(TOKEN_PERMISSIONS);
export const domainOf = (chainId: number) => ({
  name: "Permit2",
  chainId,
  verifyingContract: PERMIT2,
});

const witnessWords = ({ to, validAfter, upto }: Spending): string =>
  addressWord(to) + (upto ? addressWord(upto.facilitator) : "") + uintWord(validAfter);

/** The 32-byte digest to sign or to recover the signer from. */
export function spendingDigest(chainId: number, spending: Spending): Uint8Array {
  const { proxy, token, maximum, nonce, deadline } = spending;
  const permitted = keccak256(
    `0x${TOKEN_PERMISSIONS_HASH}${addressWord(token)}${uintWord(maximum)}`,
  );
  const witness = keccak256(`0x${proxy.witnessType}${witnessWords(spending)}`);
  const struct = keccak256(
    `0x${proxy.signedType}${permitted.slice(2)}${addressWord(proxy.address)}${uintWord(nonce)}${uintWord(deadline)}${witness.slice(2)}`,
  );
  return hexToBytes(keccak256(concat(["0x1901", separatorOf(domainOf(chainId)), struct])));
}

function spendingWords(spending: Spending): string {
  const { token, maximum, nonce, deadline, owner, upto } = spending;
  return (
    addressWord(token) +
    uintWord(maximum) +
    uintWord(nonce) +
    uintWord(deadline) +
    (upto ? uintWord(upto.amount) : "") +
    addressWord(owner) +
    witnessWords(spending)
  );
}

export function settleCall(
  spending: Spending,
  signature: Hex,
  permit: TokenPermit | undefined,
): ContractCall {
  const { proxy } = spending;
  const words = (permit ? permitWords(permit) : "") + spendingWords(spending);
  const offset = uintWord(words.length / 2 + 32);
  const selector = permit ? proxy.settleWithPermit : proxy.settle;
  return {
    target: proxy.address.toLowerCase(),
    data: `0x${selector}${words}${offset}${bytesTail(signature)}`,
  };
}

/** The signature has 65 bytes; reading.ts enforces that. */
const permitWords = ({ amount, deadline, signature }: TokenPermit): string =>
  uintWord(BigInt(amount)) + uintWord(BigInt(deadline)) + rsWords(signature) + vWord(signature);

const NONCE_BITMAP = selectorDigits("nonceBitmap(address,uint256)");

export const stateCall = (ref: AuthorizationRef): ContractCall => ({
  target: PERMIT2.toLowerCase(),
  data: `0x${NONCE_BITMAP}${addressWord(ref.from)}${uintWord(nonceOf(ref) >> 8n)}`,
});

export function isEnded(ref: AuthorizationRef, answer: CallResult): boolean | undefined {
  const word = uintOf(answer);
  return word === undefined ? undefined : ((word >> (nonceOf(ref) & 255n)) & 1n) === 1n;
}

/** Reads that explain a failed payment: whether the proxy is deployed, and the allowance for Permit2. */
const ASK_PERMIT2 = selectorDigits("PERMIT2()");
const ALLOWANCE = selectorDigits("allowance(address,address)");
export const allowanceCall = (ref: AuthorizationRef): ContractCall => ({
  target: ref.asset,
  data: `0x${ALLOWANCE}${addressWord(ref.from)}${addressWord(PERMIT2)}`,
});
export const diagnosisCalls = (proxy: Proxy, ref: AuthorizationRef): ContractCall[] => [
  { target: proxy.address, data: `0x${ASK_PERMIT2}` },
  allowanceCall(ref),
];

export const REASON_USED: Reason = "permit2_invalid_nonce";
export const REASON_EXPIRED: Reason = "permit2_deadline_expired";

/** Reverts of Permit2, its proxies and the token, as the protocol's reason codes and readable sentences. */
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
