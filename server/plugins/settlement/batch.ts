/** Claimed rows as items of a batch: the call each one makes, the gas it may use, and how many travel together. */
import type { Address, Hex, LocalAccount } from "viem";
import { keccakOfHex } from "../../core/keccak.ts";
import type { ContractCall } from "../../core/abi.ts";
import { packTransfers } from "../../core/batcher.ts";
import { MULTICALL3_ADDRESS } from "../../core/networks.ts";
import { encodeAggregate } from "../../infra/chain/contracts.ts";
import { schemeOf } from "../../schemes/index.ts";
import type { TransferPlan } from "../../schemes/scheme.ts";
import { DEPLOYMENT_GAS } from "../../core/signatures.ts";
import type { CarriedItem, StoredAttempt, StoredTransaction } from "./lane-store.ts";
import { type SettlementRecord, toRow } from "./store.ts";

export const MAX_BATCH = 100;
/** Nodes keep sixteen executable transactions of one account for sure. */
export const MAX_IN_FLIGHT = 16;
/** Of these places, third-party payments that are sent alone take no more than so many, ... */
export const SOLO_PLACES = 4;
/** ... and all third-party payments together leave this many to withdrawals and agents. */
export const KEPT_PLACES = 1;
/** A third-party payment that was given up this often has failed. */
export const MAX_GIVEN_UP = 4;

/** What an agent's cancellation uses at the very most. */
const CANCEL_GAS = 100_000n;
const TRANSACTION_GAS = 60_000n;
/** Calldata of one call inside the batch, at the dearer rate of all-non-zero bytes. */
const CALLDATA_GAS_PER_BYTE = 16n;

export interface BatchItem extends CarriedItem {
  record: SettlementRecord;
  call: ContractCall;
  gas: bigint;
  /**
   * Sent alone, with a gas limit of its own: a payer with code runs third-party code, which may burn
   * all gas it is given and starve its neighbours; and what did harm in a batch is not trusted in another.
   * Preflight reads from the chain whether a payer has code: its signature may look like a key's.
   */
  solo: boolean;
  /** Looked at by the contract it calls: then it is simulated as it is sent, and not through Multicall3. */
  sender?: Address | undefined;
  /** All that a transaction's logs would show of it, where they do not name it. */
  trace?: string | undefined;
}

/** A third party's payment. Agents' keys are ours, and there is no code behind them. */
export const isThirdParty = ({ record }: BatchItem): boolean => record.agent_id === null;

export function toBatchItem(record: SettlementRecord, gasCapPerItem: bigint): BatchItem {
  const { authorization } = toRow(record);
  const scheme = schemeOf(authorization);
  const capped = (gas: bigint): bigint => (gas < gasCapPerItem ? gas : gasCapPerItem);
  const { solo, traceparent } = record;
  if (record.cancel_signature !== null && scheme.cancelCall) {
    // Signed by an agent's key, which is ours.
    const call = scheme.cancelCall(authorization, toHex(record.cancel_signature));
    const gas = capped(CANCEL_GAS);
    return { record, action: "cancel", call, gas, solo, traceparent, ...authorization };
  }
  const plan = scheme.planTransfer(authorization);
  return {
    record,
    traceparent,
    action: "transfer",
    call: oneCall(plan),
    gas:
      plan.isPlainKey && !solo
        ? capped(plan.keyGas)
        : gasCapPerItem + (plan.deployment ? DEPLOYMENT_GAS : 0n),
    solo: solo || !plan.isPlainKey || plan.sender !== undefined,
    sender: plan.sender,
    trace: scheme.traceOf(authorization),
    ...authorization,
  };
}

const toHex = (bytes: Buffer): Hex => `0x${bytes.toString("hex")}`;

/** Several calls go as one aggregate, which fails unless the last succeeds. */
function oneCall(plan: TransferPlan): ContractCall {
  const calls = plan.calls();
  const [first, ...rest] = calls;
  if (rest.length === 0) return first;
  const last = calls.length - 1;
  const data = encodeAggregate(
    calls.map((call, index) => ({ ...call, mustSucceed: index === last })),
  );
  return { target: MULTICALL3_ADDRESS, data };
}

/** Mined without effect by its own doing this often, it is not tried again. Strangers get fewer chances than our own. */
export const hasTooManyFaults = ({ record }: BatchItem): boolean =>
  record.faults >= (record.class === 2 ? 2 : 5);

export const gasLimitOf = (items: readonly BatchItem[]): bigint =>
  items.reduce(
    (sum, item) => sum + item.gas + BigInt(item.call.data.length / 2) * CALLDATA_GAS_PER_BYTE,
    TRANSACTION_GAS,
  );

/**
 * One item is a plain call to the token. Several are one call in which each may fail alone: of our batcher, where it stands
 * and they are what it takes, or else Multicall3's `aggregate3`.
 */
export function transactionOf(
  items: readonly BatchItem[],
  batcher?: Address,
): { to: string; calldata: Hex } {
  const [first] = items;
  if (!first) throw new Error("a transaction needs an item");
  if (items.length === 1) return { to: first.call.target, calldata: first.call.data };
  const calls = items.map((item) => item.call);
  const gasEach = items.reduce((high, { gas }) => most(high, gas), 0n);
  const packed = batcher && packTransfers(calls, gasEach);
  if (batcher && packed) return { to: batcher, calldata: packed };
  return { to: MULTICALL3_ADDRESS, calldata: encodeAggregate(calls) };
}

/**
 * Debits of the same payers that are on their way already. A simulation that runs them first sees the
 * balance these items will really find.
 */
export function pendingDebits(
  items: readonly BatchItem[],
  underway: readonly BatchItem[],
): BatchItem[] {
  if (underway.length === 0) return [];
  const payers = new Set(items.map((item) => item.from));
  return underway.filter((item) => item.action === "transfer" && payers.has(item.from));
}

/** What a transaction offers for its gas, and what it offers when it is stuck. */

export interface Fees {
  maxFeeWei: bigint;
  priorityFeeWei: bigint;
}

/** The operator's caps: no offer is ever above them, whatever nodes suggest. */
export const feeCapsOf = (network: { maxFeeGwei: number; maxTipGwei: number }): Fees => ({
  maxFeeWei: BigInt(Math.round(network.maxFeeGwei * 1e9)),
  priorityFeeWei: BigInt(Math.round(network.maxTipGwei * 1e9)),
});

const least = (one: bigint, other: bigint): bigint => (one < other ? one : other);
const most = (one: bigint, other: bigint): bigint => (one > other ? one : other);

/** Twice the base fee survives six full blocks in a row. */
export function initialFees(baseFeeWei: bigint, priorityFeeWei: bigint, caps: Fees): Fees {
  const tip = least(priorityFeeWei, caps.priorityFeeWei);
  const maxFeeWei = least(baseFeeWei * 2n + tip, caps.maxFeeWei);
  return { maxFeeWei, priorityFeeWei: least(tip, maxFeeWei) };
}

/** No attempt offers more than this many times the first one: beyond it, waiting is cheaper. */
const CAP_FACTOR = 50n;

/** Nodes take a replacement only when both fees grow by at least 12.5 % (with one wei for the rounding). */
const bumped = (wei: bigint): bigint => (wei * 1125n + 999n) / 1000n + 1n;

/** The next attempt's fees, or nothing when the cap leaves no room for a valid replacement. */
export function replacementFees(args: {
  first: Fees;
  last: Fees;
  baseFeeWei: bigint;
  priorityFeeWei: bigint;
  caps: Fees;
}): Fees | undefined {
  const now = initialFees(args.baseFeeWei, args.priorityFeeWei, args.caps);
  const fee = bumped(args.last.maxFeeWei);
  const tip = bumped(args.last.priorityFeeWei);
  const cap = least(args.first.maxFeeWei * CAP_FACTOR, args.caps.maxFeeWei);
  if (fee > cap || tip > args.caps.priorityFeeWei) return undefined;
  const maxFeeWei = least(most(now.maxFeeWei, fee), cap);
  return { maxFeeWei, priorityFeeWei: least(most(now.priorityFeeWei, tip), maxFeeWei) };
}

/** Signs one form of a lane's transaction. The hash is ours to compute: no node is needed to know it. */
export async function signAttempt(
  signer: LocalAccount,
  chainId: number,
  tx: Pick<StoredTransaction, "nonce" | "to" | "calldata" | "gasLimit">,
  terms: Fees & { attempt: number; purpose: StoredAttempt["purpose"] },
): Promise<StoredAttempt> {
  const raw = await signer.signTransaction({
    type: "eip1559",
    chainId,
    nonce: Number(tx.nonce),
    to: tx.to as Address,
    data: tx.calldata,
    gas: tx.gasLimit,
    maxFeePerGas: terms.maxFeeWei,
    maxPriorityFeePerGas: terms.priorityFeeWei,
  });
  return { hash: keccakOfHex(raw), raw, answer: undefined, ...terms };
}
