/** What a receipt proves about authorizations. A transaction's status proves nothing: calls fail alone. */
import { toEventSelector, type Hex } from "viem";
import { addressWord, type RpcLog } from "../../core/abi.ts";
import type { AuthorizationRef } from "../../core/authorization.ts";
import type { AuthorizationFate, ExpectedTransfer } from "../scheme.ts";

export const AUTHORIZATION_USED = toEventSelector("AuthorizationUsed(address,bytes32)");
export const AUTHORIZATION_CANCELED = toEventSelector("AuthorizationCanceled(address,bytes32)");
export const TRANSFER = toEventSelector("Transfer(address,address,uint256)");

const topicOf = (address: string): Hex => `0x${addressWord(address)}`;

/** The events that end an authorization. */
export const endFilter = ({ asset, from, nonce }: AuthorizationRef) => ({
  address: asset,
  topics: [[AUTHORIZATION_USED, AUTHORIZATION_CANCELED], topicOf(from), nonce as Hex],
});

export const isUse = (log: RpcLog): boolean => log.topics[0] === AUTHORIZATION_USED;

/**
 * The fate of one authorization in one transaction. Only logs of the token itself count: on Arc the
 * system logs native moves under the same event. A nonce may also have been used by a different
 * authorization of the same signer, so the transfer that follows must be the expected one.
 */
export function fateIn(logs: readonly RpcLog[], expected: ExpectedTransfer): AuthorizationFate {
  const asset = expected.asset.toLowerCase();
  const from = topicOf(expected.from);
  const own = logs.filter((log) => log.address.toLowerCase() === asset);
  const isMine = (log: RpcLog): boolean =>
    log.topics[1]?.toLowerCase() === from && log.topics[2]?.toLowerCase() === expected.nonce;
  const used = own.findIndex((log) => isUse(log) && isMine(log));
  if (used === -1)
    return own.some((log) => log.topics[0] === AUTHORIZATION_CANCELED && isMine(log))
      ? "canceled"
      : "untouched";
  const transfer = own.slice(used + 1).find((log) => log.topics[0] === TRANSFER);
  const isExpected =
    transfer !== undefined &&
    transfer.topics[1]?.toLowerCase() === from &&
    transfer.topics[2]?.toLowerCase() === topicOf(expected.to) &&
    BigInt(transfer.data) === expected.value;
  return isExpected ? "paid" : "used_otherwise";
}
