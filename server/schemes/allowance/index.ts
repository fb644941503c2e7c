/**
 * A token permit (EIP-2612), by which a wallet allows a contract to take money from it. Not a payment, but
 * handled like one: signed by the wallet, relayed by our lanes, proven on chain.
 */
import {
  domainSeparator,
  hexToBytes,
  keccak256,
  toBytes,
  toEventSelector,
  concat,
  bytesToHex,
  type Address,
} from "viem";
import {
  addressTopic,
  addressWord,
  rsWords,
  selectorDigits,
  uintOf,
  uintWord,
  vWord,
  type ContractCall,
} from "../../core/abi.ts";
import type { Authorization, AuthorizationRef } from "../../core/authorization.ts";
import { tokenDomainOf, type NetworkFacts } from "../../core/networks.ts";
import type { ExpectedTransfer, Relaying } from "../scheme.ts";

const TYPE_HASH = keccak256(
  toBytes("Permit(address owner,address spender,uint256 value,uint256 nonce,uint256 deadline)"),
);
const PERMIT = selectorDigits("permit(address,address,uint256,uint256,uint8,bytes32,bytes32)");
const NONCES = selectorDigits("nonces(address)");
const ALLOWANCE = selectorDigits("allowance(address,address)");
const APPROVAL = toEventSelector("Approval(address,address,uint256)");
/** Upper bound: a first approval, through the token's proxy contract. */
const KEY_GAS = 100_000n;

export interface AllowanceWanted {
  readonly network: NetworkFacts;
  readonly owner: Address;
  readonly spender: Address;
  readonly value: bigint;
  /** The token's permit nonce of this owner: the number of permits used so far. */
  readonly count: bigint;
  readonly deadline: bigint;
}

/** The 32-byte digest to sign. */
export function permitDigest(wanted: AllowanceWanted): Uint8Array {
  const { network, owner, spender, value, count, deadline } = wanted;
  const struct = keccak256(
    `${TYPE_HASH}${addressWord(owner)}${addressWord(spender)}${uintWord(value)}${uintWord(count)}${uintWord(deadline)}`,
  );
  const domain = domainSeparator({ domain: tokenDomainOf(network) });
  return hexToBytes(keccak256(concat(["0x1901", domain, struct])));
}

/** As the engine takes it. The token accepts the second of the deadline, so `validBefore` is one later. */
export const allowanceOf = (wanted: AllowanceWanted): Authorization => ({
  chainId: wanted.network.chainId,
  asset: wanted.network.usdc.address.toLowerCase() as Address,
  from: wanted.owner.toLowerCase() as Address,
  to: wanted.spender.toLowerCase() as Address,
  value: wanted.value,
  validAfter: 0n,
  validBefore: wanted.deadline + 1n,
  nonce: `eip2612:${bytesToHex(permitDigest(wanted))}`,
  terms: { scheme: "allowance", count: wanted.count.toString() },
});

export const allowanceCall = (token: string, owner: string, spender: string): ContractCall => ({
  target: token,
  data: `0x${ALLOWANCE}${addressWord(owner)}${addressWord(spender)}`,
});
export const permitsCall = (token: string, owner: string): ContractCall => ({
  target: token,
  data: `0x${NONCES}${addressWord(owner)}`,
});

export const allowance: Relaying = {
  planTransfer: ({ asset, from, to, value, validBefore, signature }) => ({
    calls: () => [
      {
        target: asset,
        data: `0x${PERMIT}${addressWord(from)}${addressWord(to)}${uintWord(value)}${uintWord(validBefore - 1n)}${vWord(signature)}${rsWords(signature)}`,
      },
    ],
    isPlainKey: true,
    deployment: undefined,
    keyGas: KEY_GAS,
  }),
  stateCall: ({ asset, from }) => permitsCall(asset, from),
  isEnded: (ref, answer) => {
    const taken = uintOf(answer);
    return taken === undefined ? undefined : taken > countOf(ref);
  },
  // Whoever relayed it: the token's event shows what was approved, and in the block in which the nonce advanced
  // it was this permit.
  outcomeIn: ({ logs }, expected) => (logs.some(isApproved(expected)) ? "paid" : "untouched"),
  isNamedInLogs: false,
  traceOf: ({ asset, from }) => `${asset} ${from} allowance`.toLowerCase(),
  endFilter: ({ asset, from, to }) => ({
    address: asset,
    topics: [[APPROVAL], addressTopic(from), addressTopic(to)],
  }),
  explainRevert: (text) => ({
    reason: "unexpected_settle_error",
    message: `The token refuses the permit.${text === undefined ? "" : ` (${text.slice(0, 200)})`}`,
    isOfState: /expired/i.test(text ?? ""),
  }),
  reasonUsed: "permit2_invalid_nonce",
  reasonExpired: "permit2_deadline_expired",
};

function countOf({ terms }: AuthorizationRef): bigint {
  if (terms?.scheme !== "allowance") throw new Error("not an allowance");
  return BigInt(terms.count);
}

const isApproved =
  ({ asset, from, to, value }: ExpectedTransfer) =>
  (log: { address: string; topics: string[]; data: string }): boolean =>
    log.address.toLowerCase() === asset.toLowerCase() &&
    log.topics[0] === APPROVAL &&
    log.topics[1]?.toLowerCase() === addressTopic(from) &&
    log.topics[2]?.toLowerCase() === addressTopic(to) &&
    BigInt(log.data) === value;
