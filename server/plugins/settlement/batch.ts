/**
 * Builds transactions from claimed rows: the call of each item with its gas limit (fixed upper bounds, no gas
 * estimate), batches of several (through our batcher contract where it is deployed), gas prices (base fee and tip,
 * with caps), and signing.
 */
import type { Address, Hex, LocalAccount } from "viem";
import { keccakOfHex } from "../../core/keccak.ts";
import type { CallResult, ContractCall } from "../../core/abi.ts";
import { BATCHER_ADDRESS, NO_ANSWERS, NO_TRANSFERS, packTransfers } from "../../core/batcher.ts";
import { MULTICALL3_ADDRESS, type NetworkFacts } from "../../core/networks.ts";
import { readBatcher } from "../../infra/chain/batcher/read.ts";
import { encodeAggregate } from "../../infra/chain/contracts.ts";
import type { Caller } from "../../infra/chain/rpc.ts";
import { schemeOf } from "../../schemes/index.ts";
import type { TransferPlan } from "../../schemes/scheme.ts";
import { DEPLOYMENT_GAS } from "../../core/signatures.ts";
import type { CarriedItem, StoredAttempt, StoredTransaction } from "./lane-store.ts";
import type { SettlementRecord } from "./types.ts";

export const MAX_BATCH = 100;
/** Nodes accept at least sixteen executable transactions of one account. */
export const MAX_IN_FLIGHT = 16;
/** Of these, third-party payments that are sent alone may use at most this many, ... */
export const SOLO_PLACES = 4;
/** ... and all third-party payments together leave this many free for withdrawals and agents. */
export const RESERVED_PLACES = 1;
/** A third-party payment has failed after its transaction was given up this many times. */
export const MAX_GIVEN_UP = 4;

/** Upper bound for an agent's cancellation. */
const CANCEL_GAS = 100_000n;
const TRANSACTION_GAS = 60_000n;
/** Calldata gas of one call in a batch, at the higher rate of non-zero bytes. */
const CALLDATA_GAS_PER_BYTE = 16n;

export interface BatchItem extends CarriedItem {
  record: SettlementRecord;
  call: ContractCall;
  gas: bigint;
  /**
   * Sent alone, with its own gas limit. A payer with contract code runs third-party code, which may burn all
   * gas and make the others in its batch fail; an item that did harm in one batch is not put into another.
   * Preflight reads from the chain whether a payer has code, because its signature may look like a plain key's.
   */
  solo: boolean;
  /**
   * Set when the called contract checks the sender: the call is then simulated exactly as it is sent, not
   * through Multicall3.
   */
  sender?: Address | undefined;
  /** Everything that the transaction's logs show of the payment, where they do not name the authorization. */
  trace?: string | undefined;
}

/** A third party's payment. Agents' wallets are our own keys, without contract code. */
export const isThirdParty = ({ record }: BatchItem): boolean => record.agentId === null;

export function toBatchItem(record: SettlementRecord, gasCapPerItem: bigint): BatchItem {
  const { authorization } = record;
  const scheme = schemeOf(authorization);
  const capped = (gas: bigint): bigint => (gas < gasCapPerItem ? gas : gasCapPerItem);
  const { solo, traceparent } = record;
  if (record.cancelSignature !== null && scheme.cancelCall) {
    // The cancellation is signed by the agent's wallet, which is our own key.
    const call = scheme.cancelCall(authorization, record.cancelSignature);
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
      (plan.isPlainKey && !solo
        ? capped(plan.keyGas)
        : gasCapPerItem + (plan.deployment ? DEPLOYMENT_GAS : 0n)) + (plan.moreGas ?? 0n),
    solo: solo || !plan.isPlainKey || plan.sender !== undefined,
    sender: plan.sender,
    trace: scheme.traceOf(authorization),
    ...authorization,
  };
}

/** Combines several calls into one aggregate, which fails unless the last call succeeds. */
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

/**
 * Mined without effect by its own fault this often, it is not retried. Third parties' payments get fewer
 * attempts than agents'.
 */
export const hasTooManyFaults = ({ record }: BatchItem): boolean =>
  record.faults >= (record.class === 2 ? 2 : 5);

export const gasLimitOf = (items: readonly BatchItem[]): bigint =>
  items.reduce(
    (sum, item) => sum + item.gas + BigInt(item.call.data.length / 2) * CALLDATA_GAS_PER_BYTE,
    TRANSACTION_GAS,
  );

/**
 * One item is a plain call to the token. Several are one call in which each may fail alone: to our batcher
 * where it is deployed and supports them, otherwise to Multicall3's `aggregate3`.
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
 * Transfers of the same payers that are already in flight. A simulation that runs them first sees the balance
 * that these items will find.
 */
export function pendingDebits(
  items: readonly BatchItem[],
  underway: readonly BatchItem[],
): BatchItem[] {
  const payers = new Set(items.map((item) => item.from));
  return underway.filter((item) => item.action === "transfer" && payers.has(item.from));
}

/** What a transaction offers for each unit of gas. */
export interface Fees {
  maxFeeWei: bigint;
  priorityFeeWei: bigint;
}

/** The operator's fee caps. No offer exceeds them, whatever nodes suggest. */
export const feeCapsOf = (network: { maxFeeGwei: number; maxTipGwei: number }): Fees => ({
  maxFeeWei: BigInt(Math.round(network.maxFeeGwei * 1e9)),
  priorityFeeWei: BigInt(Math.round(network.maxTipGwei * 1e9)),
});

const least = (one: bigint, other: bigint): bigint => (one < other ? one : other);
const most = (one: bigint, other: bigint): bigint => (one > other ? one : other);

/** Twice the base fee stays sufficient for six full blocks in a row. */
export function initialFees(baseFeeWei: bigint, priorityFeeWei: bigint, caps: Fees): Fees {
  const tip = least(priorityFeeWei, caps.priorityFeeWei);
  const maxFeeWei = least(baseFeeWei * 2n + tip, caps.maxFeeWei);
  return { maxFeeWei, priorityFeeWei: least(tip, maxFeeWei) };
}

/** No attempt offers more than this multiple of the first one: beyond it, waiting is cheaper. */
const CAP_FACTOR = 50n;

/** Nodes accept a replacement only when both fees rise by at least 12.5 % (plus one wei for rounding). */
const bumped = (wei: bigint): bigint => (wei * 1125n + 999n) / 1000n + 1n;

/** The fees of the next attempt. Undefined when the caps leave no room for a valid replacement. */
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

/** Signs one version of a lane's transaction. The hash is computed locally, without a node. */
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

/** It may be deployed while this process runs. */
const LOOK_AGAIN_MS = 60_000;

const STATE_TEXTS = {
  absent: "is not deployed",
  other: "has different code",
  mute: "is deployed but does not work on this chain",
};

interface BatcherDeps {
  network: Pick<NetworkFacts, "id">;
  rpc: Caller;
  log: { warn(fields: object, message: string): void };
  lookAgainMs?: number;
}

/**
 * Whether our batcher contract is deployed on this chain: checked by its code and a test call, and again in the
 * simulation of each batch. A transaction to an address without code succeeds and does nothing, so this must be
 * certain.
 */
export class Batcher {
  readonly #deps: BatcherDeps;
  #address: Address | undefined;
  #timer: NodeJS.Timeout | undefined;
  #isWarned = false;

  constructor(deps: BatcherDeps) {
    this.#deps = deps;
  }

  /** Undefined until the contract was found; batches use Multicall3 meanwhile. */
  get address(): Address | undefined {
    return this.#address;
  }

  start(): void {
    void this.look();
    this.#timer = setInterval(() => {
      if (this.#address === undefined) void this.look();
    }, this.#deps.lookAgainMs ?? LOOK_AGAIN_MS).unref();
  }

  stop(): void {
    clearInterval(this.#timer);
  }

  async look(): Promise<void> {
    try {
      const found = await readBatcher(this.#deps.rpc, BATCHER_ADDRESS);
      this.#address = found === "ours" ? BATCHER_ADDRESS : undefined;
      if (found === "ours") this.#isWarned = false;
      else this.#warn(STATE_TEXTS[found]);
    } catch {
      // No response proves nothing; the engine reports the endpoint itself.
    }
  }

  /** An empty batch to add to a simulation. Its result shows whether the batcher exists. */
  get probe(): (ContractCall & { target: Address }) | undefined {
    return this.#address && { target: this.#address, data: NO_TRANSFERS };
  }

  /**
   * Handles the result of the probe. Unless it is an empty batch's result, the batcher is not used until it is
   * found again.
   */
  checkProbe(answer: CallResult | undefined): boolean {
    if (answer?.success === true && answer.data === NO_ANSWERS) return true;
    this.#address = undefined;
    this.#warn("no longer responds");
    return false;
  }

  #warn(what: string): void {
    if (this.#isWarned) return;
    this.#isWarned = true;
    const { log, network } = this.#deps;
    log.warn(
      { network: network.id, batcher: BATCHER_ADDRESS },
      `the batcher ${what}: batches use Multicall3, with a little more gas`,
    );
  }
}
