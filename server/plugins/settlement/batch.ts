/** Claimed rows as work: the call each one makes, the gas it may use, and how many travel together. */
import { isErc6492Signature, parseErc6492Signature, type Hex } from "viem";
import type { CarriedItem } from "./lane-store.ts";
import type { SettlementRecord } from "./store.ts";
import { MULTICALL3_ADDRESS } from "../../core/networks.ts";
import {
  aggregateCalldata,
  cancelCalldata,
  isEcdsaSized,
  transferCalldata,
  type Call,
} from "../../schemes/exact-eip3009/calldata.ts";

export const MAX_BATCH = 100;
/** Nodes keep sixteen executable transactions of one account for sure. */
export const MAX_IN_FLIGHT = 16;

/** What a plain key's transfer uses at the very most (first payment to a new payee, a busy token proxy). */
const ECDSA_ITEM_GAS = 100_000n;
const TRANSACTION_GAS = 60_000n;
/** For making a smart wallet before its first payment. */
const DEPLOYMENT_GAS = 1_500_000n;
/** Calldata of one call inside the batch, at the dearer rate of all-non-zero bytes. */
const CALLDATA_GAS_PER_BYTE = 16n;

export interface WorkItem extends CarriedItem {
  record: SettlementRecord;
  call: Call;
  gas: bigint;
  /**
   * Travels alone, with a gas limit of its own: a smart wallet runs code of strangers, which may burn all
   * gas it is given and starve its neighbours; and what failed once in a batch is not trusted in another.
   */
  solo: boolean;
}

export function toWork(record: SettlementRecord, gasCapPerItem: bigint): WorkItem {
  const isCancel = record.cancel_signature !== null;
  const signature: Hex = `0x${(record.cancel_signature ?? record.signature).toString("hex")}`;
  const plain = isEcdsaSized(signature);
  return {
    action: isCancel ? "cancel" : "transfer",
    from: record.from_address,
    asset: record.asset,
    nonce: record.nonce,
    to: record.to_address,
    value: record.value,
    record,
    call: isCancel
      ? {
          target: record.asset,
          data: cancelCalldata(record.from_address, record.nonce, signature),
        }
      : transferCall(record, signature),
    gas: itemGas(signature, gasCapPerItem),
    solo: !plain || record.attempts > 0,
  };
}

/**
 * A wallet that does not exist yet signs in an ERC-6492 envelope, which names the factory call that makes
 * it: then both calls go as one aggregate, which fails unless the transfer succeeds. The facilitator lets
 * only factories through that the operator allows.
 */
function transferCall(record: SettlementRecord, signature: Hex): Call {
  const authorization = {
    chainId: Number(record.chain_id),
    asset: record.asset,
    from: record.from_address,
    to: record.to_address,
    value: record.value,
    validAfter: record.valid_after,
    validBefore: record.valid_before,
    nonce: record.nonce,
  };
  const transfer = (inner: Hex): Call => ({
    target: record.asset,
    data: transferCalldata(authorization, inner),
  });
  if (!isErc6492Signature(signature)) return transfer(signature);
  const { address, data, signature: inner } = parseErc6492Signature(signature);
  if (!address || !data) return transfer(inner);
  const calls = [
    { target: address, data },
    { ...transfer(inner), mustSucceed: true },
  ];
  return { target: MULTICALL3_ADDRESS, data: aggregateCalldata(calls) };
}

function itemGas(signature: Hex, gasCapPerItem: bigint): bigint {
  if (isErc6492Signature(signature)) return gasCapPerItem + DEPLOYMENT_GAS;
  const isKey = isEcdsaSized(signature);
  return isKey && gasCapPerItem > ECDSA_ITEM_GAS ? ECDSA_ITEM_GAS : gasCapPerItem;
}

/** Mined without effect this often, it is not tried again. Strangers get fewer chances than our own. */
export const isWornOut = ({ record }: WorkItem): boolean =>
  record.attempts >= (record.kind === "facilitated" ? 2 : 5);

export const gasLimitOf = (items: readonly WorkItem[]): bigint =>
  items.reduce(
    (sum, item) => sum + item.gas + BigInt(item.call.data.length / 2) * CALLDATA_GAS_PER_BYTE,
    TRANSACTION_GAS,
  );

/** The share of the gas limit that counts against the daily ceiling: facilitated work only. */
export const meteredGasOf = (items: readonly WorkItem[], gasLimit: bigint): bigint =>
  (gasLimit * BigInt(items.filter((item) => item.record.kind === "facilitated").length)) /
  BigInt(items.length);

/** One item is a plain call to the token; several are one `aggregate3` in which each may fail alone. */
export function transactionOf(items: readonly WorkItem[]): { to: string; calldata: Hex } {
  const [first] = items;
  if (!first) throw new Error("a transaction needs an item");
  if (items.length === 1) return { to: first.call.target, calldata: first.call.data };
  return { to: MULTICALL3_ADDRESS, calldata: aggregateCalldata(items.map((item) => item.call)) };
}

/**
 * Debits of the same payers that are on their way already. A simulation that runs them first sees the
 * balance these items will really find.
 */
export function pendingDebits(
  items: readonly WorkItem[],
  underway: readonly WorkItem[],
): WorkItem[] {
  if (underway.length === 0) return [];
  const payers = new Set(items.map((item) => item.from));
  return underway.filter((item) => item.action === "transfer" && payers.has(item.from));
}
