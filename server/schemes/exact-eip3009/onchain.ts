/**
 * The EIP-3009 interface of the token: EIP-712 digests, calldata, events and reverts.
 * The transfer digest is encoded by hand, because the generic encoder takes longer than the signature check
 * that follows. A test compares it with viem's on random authorizations.
 */
import { type Address, type Hex, hashTypedData, hexToBytes, toEventSelector } from "viem";
import {
  type RpcLog,
  addressTopic,
  addressWord,
  bytesTail,
  rsWords,
  selectorDigits,
  uintWord,
  vWord,
} from "../../core/abi.ts";
import type { Authorization, AuthorizationRef, Nonce } from "../../core/authorization.ts";
import { keccak } from "../../core/keccak.ts";
import { type NetworkFacts, type TokenDomain, tokenDomainOf } from "../../core/networks.ts";
import { separatorOf } from "../../core/separators.ts";
import { isKeySignature } from "../../core/signatures.ts";
import type { Reason, AuthorizationOutcome, ExpectedTransfer, RevertMeaning } from "../scheme.ts";

/** As a wallet is asked to sign it. */
export const TRANSFER_TYPES = {
  TransferWithAuthorization: [
    { name: "from", type: "address" },
    { name: "to", type: "address" },
    { name: "value", type: "uint256" },
    { name: "validAfter", type: "uint256" },
    { name: "validBefore", type: "uint256" },
    { name: "nonce", type: "bytes32" },
  ],
};
const FIELDS = TRANSFER_TYPES.TransferWithAuthorization.map(({ name, type }) => `${type} ${name}`);
const TYPE_HASH = keccak(Buffer.from(`TransferWithAuthorization(${FIELDS.join(",")})`));
const CANCEL = [
  { name: "authorizer", type: "address" },
  { name: "nonce", type: "bytes32" },
] as const;
const WORD = 32;

/** Reused buffers for hashing. Safe, because the code between writing and hashing is synchronous. */
const struct = Buffer.alloc(7 * WORD);
struct.set(TYPE_HASH, 0);
const envelope = Buffer.alloc(2 + 2 * WORD);
envelope.set([0x19, 0x01], 0);

/** The 32-byte digest to sign or to recover the signer from. */
export function transferDigest(
  domain: TokenDomain,
  message: Omit<Authorization, "chainId" | "asset">,
): Uint8Array {
  const { from, to, value, validAfter, validBefore, nonce } = message;
  const written = struct.write(
    addressWord(from) +
      addressWord(to) +
      uintWord(value) +
      uintWord(validAfter) +
      uintWord(validBefore) +
      nonce.slice(2),
    WORD,
    "hex",
  );
  if (written !== 6 * WORD) throw new Error("an authorization is six words");
  envelope.write(separatorOf(domain).slice(2), 2, "hex");
  envelope.set(keccak(struct), 2 + WORD);
  return keccak(envelope);
}

export const cancelDigest = (
  network: NetworkFacts,
  authorizer: Address,
  nonce: Nonce,
): Uint8Array =>
  hexToBytes(
    hashTypedData({
      domain: tokenDomainOf(network),
      types: { CancelAuthorization: CANCEL },
      primaryType: "CancelAuthorization",
      message: { authorizer, nonce: nonce as Hex },
    }),
  );

const TRANSFER_VRS = selectorDigits(
  "transferWithAuthorization(address,address,uint256,uint256,uint256,bytes32,uint8,bytes32,bytes32)",
);
const TRANSFER_BYTES = selectorDigits(
  "transferWithAuthorization(address,address,uint256,uint256,uint256,bytes32,bytes)",
);
const CANCEL_VRS = selectorDigits("cancelAuthorization(address,bytes32,uint8,bytes32,bytes32)");
const CANCEL_BYTES = selectorDigits("cancelAuthorization(address,bytes32,bytes)");
const AUTHORIZATION_STATE = selectorDigits("authorizationState(address,bytes32)");

/**
 * The (v, r, s) form of the call accepts a plain key's signature for less gas, and the token restores the same 65
 * bytes if the payer is a contract. Every other signature is passed as unchanged bytes. An ordinary account's v of 0 or
 * 1 is normalized to 27 or 28 only where the payer is recovered.
 */
const vrs = (signature: Hex): string => vWord(signature) + rsWords(signature);

/** The only encoder of a transfer: what a check simulates is, byte for byte, what is sent. */
export function transferCalldata(authorization: Authorization, signature: Hex): Hex {
  const head =
    addressWord(authorization.from) +
    addressWord(authorization.to) +
    uintWord(authorization.value) +
    uintWord(authorization.validAfter) +
    uintWord(authorization.validBefore) +
    authorization.nonce.slice(2);
  return isKeySignature(signature)
    ? `0x${TRANSFER_VRS}${head}${vrs(signature)}`
    : `0x${TRANSFER_BYTES}${head}${uintWord(7 * 32)}${bytesTail(signature)}`;
}

export function cancelCalldata(authorizer: Address, nonce: Nonce, signature: Hex): Hex {
  const head = addressWord(authorizer) + nonce.slice(2);
  return isKeySignature(signature)
    ? `0x${CANCEL_VRS}${head}${vrs(signature)}`
    : `0x${CANCEL_BYTES}${head}${uintWord(3 * 32)}${bytesTail(signature)}`;
}

export const authorizationStateCalldata = (authorizer: string, nonce: string): Hex =>
  `0x${AUTHORIZATION_STATE}${addressWord(authorizer)}${nonce.slice(2)}`;

export const AUTHORIZATION_USED = toEventSelector("AuthorizationUsed(address,bytes32)");
export const AUTHORIZATION_CANCELED = toEventSelector("AuthorizationCanceled(address,bytes32)");
export const TRANSFER = toEventSelector("Transfer(address,address,uint256)");

/** The events that end an authorization. */
export const endFilter = ({ asset, from, nonce }: AuthorizationRef) => ({
  address: asset,
  topics: [[AUTHORIZATION_USED, AUTHORIZATION_CANCELED], addressTopic(from), nonce as Hex],
});

interface TokenLogs {
  own: RpcLog[];
  /** The index in `own` of the use of each authorization, by `keyOf`. */
  usedAt: Map<string, number>;
  canceled: Set<string>;
}

const keyOf = (from: Hex | undefined, nonce: string | undefined): string =>
  `${from ?? ""}${nonce ?? ""}`.toLowerCase();

/** A receipt is parsed once, although it is queried for each payment of its batch. */
const read = new WeakMap<readonly RpcLog[], Map<string, TokenLogs>>();

function logsOf(logs: readonly RpcLog[], asset: string): TokenLogs {
  const ofTokens = read.get(logs) ?? new Map<string, TokenLogs>();
  read.set(logs, ofTokens);
  const known = ofTokens.get(asset);
  if (known) return known;
  const own = logs.filter((log) => log.address.toLowerCase() === asset);
  const usedAt = new Map<string, number>();
  const canceled = new Set<string>();
  for (const [index, log] of own.entries()) {
    const key = keyOf(log.topics[1], log.topics[2]);
    if (log.topics[0] === AUTHORIZATION_USED) usedAt.set(key, index);
    if (log.topics[0] === AUTHORIZATION_CANCELED) canceled.add(key);
  }
  const found = { own, usedAt, canceled };
  ofTokens.set(asset, found);
  return found;
}

/**
 * The outcome of one authorization in one transaction. The transaction's status proves nothing, because calls in a
 * batch fail individually. Only logs of the token itself count: on Arc the system
 * logs native transfers with the same event.
 * A nonce may also have been used by a different authorization of the same signer, so the transfer that follows
 * must be the expected one.
 */
export function outcomeIn(
  logs: readonly RpcLog[],
  expected: ExpectedTransfer,
): AuthorizationOutcome {
  const from = addressTopic(expected.from);
  const { own, usedAt, canceled } = logsOf(logs, expected.asset.toLowerCase());
  const key = keyOf(from, expected.nonce);
  const used = usedAt.get(key);
  if (used === undefined) return canceled.has(key) ? "canceled" : "untouched";
  const transfer = own.slice(used + 1).find(({ topics }) => topics[0] === TRANSFER);
  const isExpected =
    transfer !== undefined &&
    transfer.topics[1]?.toLowerCase() === from &&
    transfer.topics[2]?.toLowerCase() === addressTopic(expected.to) &&
    BigInt(transfer.data) === expected.value;
  return isExpected ? "paid" : "used_otherwise";
}

export const REASON_USED: Reason = "invalid_exact_evm_nonce_already_used";
export const REASON_EXPIRED: Reason = "invalid_exact_evm_payload_authorization_valid_before";

interface Known {
  text: RegExp;
  reason: Reason;
  sentence: string;
  isOfState?: boolean;
}

/** In order: the first match applies. */
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
    isOfState: true,
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
  sentence: "The transfer fails on chain with its gas limit.",
};

/** The token's reverts (FiatToken 2.x) as the protocol's reason codes and readable sentences. */
export function explainRevert(text: string | undefined): RevertMeaning {
  const known = KNOWN.find((candidate) => candidate.text.test(text ?? "")) ?? UNKNOWN;
  return {
    reason: known.reason,
    message: known.sentence + (text === undefined ? "" : ` (${text.slice(0, 200)})`),
    isOfState: known.isOfState ?? false,
  };
}
