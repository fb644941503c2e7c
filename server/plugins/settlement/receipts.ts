/**
 * What receipts and blocks prove: about everything a transaction carried and which payment made it fail, about one
 * authorization in any transaction, and about which transaction used a nonce. A missing receipt proves nothing.
 */
import type { Hex } from "viem";
import * as reads from "../../infra/chain/contracts.ts";
import type { BlockHeader, RpcReceipt } from "../../infra/chain/contracts.ts";
import { costOf, formatGas } from "../../core/gas.ts";
import { formatAtomic } from "../../core/money.ts";
import { MULTICALL3_ADDRESS } from "../../core/networks.ts";
import { schemeOf } from "../../schemes/index.ts";
import type { ExpectedTransfer } from "../../schemes/scheme.ts";
import type { BatchItem } from "./batch.ts";
import type { EngineContext } from "./context.ts";
import {
  attemptsCarrying,
  isOurTransaction,
  type CarriedItem,
  type StoredTransaction,
} from "./lane-store.ts";
import { findOpenRecord, keyOf } from "./store.ts";
import {
  REASON_CANCELED,
  type EndProof,
  type ProvenOutcome,
  type SettlementRecord,
} from "./types.ts";

/**
 * How many blocks deep; 1 in the newest. A receipt's own block exists even if it is newer than the head that we
 * know.
 */
export const depthOf = (head: bigint, block: bigint): number =>
  head < block ? 1 : Number(head - block) + 1;

const HASH = /^0x[0-9a-f]{64}$/i;
const NUMBER = /^0x[0-9a-f]+$/i;

const isText = (value: unknown, form: RegExp): value is string =>
  typeof value === "string" && form.test(value);

/** A send may return a hash, or the receipt of a pending block, instead of a real receipt. */
export function isReceiptOf(answer: unknown, hash: string): answer is RpcReceipt {
  const { transactionHash, blockHash, blockNumber, logs } = Object(answer) as Record<
    string,
    unknown
  >;
  return (
    isText(transactionHash, HASH) &&
    transactionHash.toLowerCase() === hash.toLowerCase() &&
    isText(blockHash, HASH) &&
    !/^0x0+$/.test(blockHash) &&
    isText(blockNumber, NUMBER) &&
    Array.isArray(logs)
  );
}

export const proofOf = (receipt: RpcReceipt): EndProof => ({
  kind: "receipt",
  tx: receipt.transactionHash,
  block: BigInt(receipt.blockNumber).toString(),
  blockHash: receipt.blockHash,
});

export const stateProof = ({ number, hash, timestampSeconds }: BlockHeader): EndProof => ({
  kind: "state",
  block: number.toString(),
  blockHash: hash,
  timestamp: timestampSeconds.toString(),
});

/**
 * What one receipt proves about everything its transaction carried. A payment is reported as soon as it is in a
 * block; a cancellation releases money, so it waits until it is final.
 */
export function provenBy(
  receipt: RpcReceipt,
  { items, to, calldata }: Pick<StoredTransaction, "items" | "to" | "calldata">,
  isFinal: boolean,
): ProvenOutcome[] {
  const outcomes: ProvenOutcome[] = [];
  const proof = proofOf(receipt);
  // A void transaction called something else and leaves no log that could be mistaken.
  const shown = { logs: receipt.logs, sent: { to, data: calldata } };
  for (const item of items) {
    const { from, asset, nonce } = item;
    const proven = { from, asset, nonce, proof, isFinal };
    const scheme = schemeOf(item);
    const fate = scheme.outcomeIn(shown, item);
    if (fate === "paid")
      outcomes.push({ status: "settled", ...proven, ...amountIn(scheme.chargedIn?.(shown, item)) });
    else if (fate === "canceled" && !isFinal) outcomes.push({ status: "held", ...proven });
    else if (fate === "canceled")
      outcomes.push({
        status: "failed",
        reason: REASON_CANCELED,
        message: "The authorization was canceled on chain.",
        ...proven,
      });
  }
  return outcomes;
}

/** The `amount` of an outcome, where less than the maximum may have moved. */
export const amountIn = (charged: bigint | undefined): { amount?: string } =>
  charged === undefined ? {} : { amount: charged.toString() };

/** In units of core/gas.ts. If a node does not return the price, the offered maximum counts. */
export function gasCostOf(
  { network }: Pick<EngineContext, "network">,
  { attempts }: Pick<StoredTransaction, "attempts">,
  receipt: RpcReceipt,
): bigint {
  const offered = attempts.find(({ hash }) => hash === receipt.transactionHash)?.maxFeeWei ?? 0n;
  const price = receipt.effectiveGasPrice ? BigInt(receipt.effectiveGasPrice) : offered;
  const wei = BigInt(receipt.gasUsed) * price + BigInt(receipt.l1Fee ?? "0x0");
  return costOf(wei, network.nativePriceAtomic);
}

/** Called once for each transaction, when its outcome is first reported. */
export function measure(
  ctx: EngineContext,
  slot: Pick<StoredTransaction, "items" | "attempts"> & { batch: readonly BatchItem[] | undefined },
  receipt: RpcReceipt,
  outcomes: readonly ProvenOutcome[],
): void {
  ctx.meter.settled(outcomes.length, BigInt(receipt.gasUsed));
  const [first] = slot.batch ?? [];
  ctx.meter.paid(first?.record.kind ?? "none", Number(formatGas(gasCostOf(ctx, slot, receipt))));
  const settled = new Map(
    outcomes.flatMap((outcome) =>
      outcome.status === "settled" ? [[`${outcome.from} ${outcome.nonce}`, outcome] as const] : [],
    ),
  );
  for (const { record } of slot.batch ?? []) {
    ctx.meter.timeToResult(Date.now() - record.createdAt.getTime());
    const outcome = settled.get(`${record.authorization.from} ${record.authorization.nonce}`);
    if (outcome)
      ctx.meter.moved(
        record.kind,
        Number(formatAtomic(BigInt(outcome.amount ?? record.authorization.value))),
      );
  }
  for (const status of ["settled", "failed"] as const)
    ctx.meter.finished(status, outcomes.filter((outcome) => outcome.status === status).length);
  if (outcomes.length < slot.items.length)
    ctx.log.warn(
      { hash: receipt.transactionHash, carried: slot.items.length, proven: outcomes.length },
      "some authorizations had no effect in a mined transaction; they are tried again",
    );
}

interface FailureAttribution {
  /** Nonces of the authorizations that caused their own failure. */
  faults: string[];
  /** Payers that are not batched for a while. */
  offenders: string[];
}

const NO_FAULT: FailureAttribution = { faults: [], offenders: [] };

/**
 * Decides which payment caused a failure in a mined transaction. That payment is sent alone next time, and its
 * payer is not batched for a day.
 * - Used or canceled by someone else meanwhile: no fault, and it costs little gas.
 * - The gas ran out: a payer with contract code burnt it. If no payer has code, every unused item is suspect.
 * - Nothing in a batch had an effect, and gas was left: the token caused it (a paused token, for example), not
 *   the payers.
 * - Some had no effect while others had: their own failure. Our batcher gives each call its own gas limit,
 *   which the simulation does not apply: a payer without code is then only sent alone, with another limit, and
 *   is not marked as an offender.
 */
export async function attributeFailure(
  ctx: EngineContext,
  tx: StoredTransaction,
  receipt: RpcReceipt,
  outcomes: readonly ProvenOutcome[],
): Promise<FailureAttribution> {
  const proven = new Set(outcomes.map(({ nonce }) => nonce));
  const idle = tx.items.filter(({ nonce }) => !proven.has(nonce));
  const states = await reads.readAuthorizationStates(ctx.rpc, idle, BigInt(receipt.blockNumber));
  // A token that does not answer is no payment's fault.
  const unused = idle.filter((_item, index) => states[index] === false);
  const coded = await withCode(ctx, unused);
  const isBurnt =
    BigInt(receipt.status) === 0n || BigInt(receipt.gasUsed) * 20n > tx.gasLimit * 19n;
  if (tx.items.length === 1) return { faults: nonces(unused), offenders: payers(coded) };
  if (isBurnt)
    return { faults: nonces(coded.length > 0 ? coded : unused), offenders: payers(coded) };
  if (proven.size === 0 && unused.length === tx.items.length) return NO_FAULT;
  const isBounded = tx.to.toLowerCase() !== MULTICALL3_ADDRESS.toLowerCase();
  return { faults: nonces(unused), offenders: payers(isBounded ? coded : unused) };
}

const nonces = (items: readonly CarriedItem[]): string[] => items.map(({ nonce }) => nonce);
const payers = (items: readonly CarriedItem[]): string[] => [
  ...new Set(items.map(({ from }) => from.toLowerCase())),
];

async function withCode(ctx: EngineContext, items: readonly CarriedItem[]): Promise<CarriedItem[]> {
  const sizes = await reads.readCodeSizes(
    ctx.rpc,
    items.map(({ from }) => from),
  );
  return items.filter(({ from }) => (sizes.get(from.toLowerCase()) ?? 0n) > 0n);
}

/**
 * What a transaction proves about one authorization. Functions return undefined while it is in no block, or not
 * deep enough to report.
 */
export interface Finding {
  fate: ReturnType<ReturnType<typeof schemeOf>["outcomeIn"]>;
  receipt: RpcReceipt;
  blockNumber: bigint;
  isFinal: boolean;
  /** The charged part of a signed maximum. */
  charged: bigint | undefined;
}

/**
 * Whether the chain has a receipt's block. One endpoint may show a receipt although a reorganisation removed its block,
 * or nobody ever had it. A node that has lost the block may return an error: then a receipt is not final.
 */
export async function isInChain(
  { rpc, network }: Pick<EngineContext, "rpc" | "network">,
  receipt: RpcReceipt,
  headNumber: bigint,
): Promise<boolean> {
  const number = BigInt(receipt.blockNumber);
  const header = await reads.readHeader(rpc, number).catch(() => undefined);
  const isDeep = depthOf(headNumber, number) >= network.confirmations;
  if (header ? header.hash === receipt.blockHash : !isDeep)
    return !isDeep || isFinalBlock({ rpc, network }, number, receipt.blockHash);
  rpc.suspectEndpoint();
  return false;
}

/** Whether enough endpoints have this block, which is deep enough: one may stay on a branch that the chain has left. */
export async function isFinalBlock(
  { rpc, network }: Pick<EngineContext, "rpc" | "network">,
  number: bigint,
  hash: string,
): Promise<boolean> {
  // Where the first block is final, none is ever removed.
  if (rpc.endpoints === 1 || network.confirmations === 1) return true;
  const { answers, needed } = await rpc.witnesses((endpoint) => reads.readHeader(endpoint, number));
  // One that is behind has no such block yet, and contradicts nobody.
  if (answers.some((header) => header && header.hash !== hash)) rpc.suspectEndpoint();
  return answers.filter((header) => header?.hash === hash).length >= needed;
}

export async function findingIn(
  ctx: EngineContext,
  txHash: string,
  expected: ExpectedTransfer,
  headNumber: bigint,
): Promise<Finding | undefined> {
  const receipt = await reads.readReceiptWithCall(ctx.rpc, txHash, expected);
  if (!receipt) return undefined;
  const blockNumber = BigInt(receipt.blockNumber);
  const depth = depthOf(headNumber, blockNumber);
  if (depth < ctx.network.inclusionDepth) return undefined;
  if (!(await isInChain(ctx, receipt, headNumber))) return undefined;
  const scheme = schemeOf(expected);
  return {
    fate: scheme.outcomeIn(receipt, expected),
    receipt,
    blockNumber,
    isFinal: depth >= ctx.network.confirmations,
    charged: scheme.chargedIn?.(receipt, expected),
  };
}

/** Our own transactions that carried it, checked before other evidence. */
export async function findingInOwnTransactions(
  ctx: EngineContext,
  record: SettlementRecord,
  headNumber: bigint,
): Promise<Finding | undefined> {
  const { chainId } = ctx.network;
  const hashes = await attemptsCarrying(ctx.pool, chainId, keyOf(record));
  for (const hash of hashes) {
    const found = await findingIn(ctx, hash, record.authorization, headNumber);
    if (found && found.fate !== "untouched") return found;
  }
  return undefined;
}

/**
 * A third party names the transaction that used an authorization. The hash is only a hint: its receipt, from
 * our own node, either shows exactly this transfer or proves nothing.
 */
export async function proveByTransaction(
  ctx: EngineContext,
  id: string,
  txHash: string,
): Promise<{ record: SettlementRecord | undefined; outcome: ProvenOutcome | undefined }> {
  const record = await findOpenRecord(ctx.pool, id);
  if (!record) return { record, outcome: undefined };
  const head = ctx.heads.head ?? (await ctx.heads.refresh());
  const [found, isOurs] = await Promise.all([
    findingIn(ctx, txHash, record.authorization, head.number),
    isOurTransaction(ctx.pool, txHash),
  ]);
  if (found?.fate !== "paid") return { record, outcome: undefined };
  const { receipt, isFinal, charged } = found;
  const proof = proofOf(receipt);
  const settled = { status: "settled" as const, proof, isFinal, byOther: !isOurs };
  return { record, outcome: { ...keyOf(record), ...settled, ...amountIn(charged) } };
}

/** A transaction in a block. */
interface Placed {
  txHash: Hex;
  blockNumber: bigint;
  blockHash: Hex;
}

/**
 * Progress of the block-by-block search: upwards from the block in which ours was signed, and downwards,
 * because a second signer may have used the nonce earlier. The caller keeps it between rounds.
 */
export interface NonceSearch {
  nonce: bigint;
  up: bigint;
  down: bigint;
}

const BLOCKS_PER_ROUND = 16n;

/**
 * Finds the transaction that used a nonce of the sender, up to the block `to`. Only the body of a block shows
 * it; a nonce count does not.
 * Bisects the range while the node still has the states, and otherwise reads it block by block over several
 * rounds.
 */
async function findReplacement(
  ctx: EngineContext,
  address: string,
  search: NonceSearch,
  to: bigint,
): Promise<Placed | undefined> {
  const at = await firstUse(ctx, address, search, to).catch(() => "unknown" as const);
  if (at === "not yet") return undefined;
  const isUp = search.up <= to;
  const last = search.up + BLOCKS_PER_ROUND - 1n;
  const first = search.down - BLOCKS_PER_ROUND + 1n;
  let [low, high] = [at, at] as [bigint, bigint];
  if (at === "unknown")
    [low, high] = isUp
      ? [search.up, last < to ? last : to]
      : [first > 0n ? first : 0n, search.down];
  if (high < 0n) return undefined;
  const numbers = Array.from({ length: Number(high - low) + 1 }, (_, index) => low + BigInt(index));
  const sender = { address, nonce: search.nonce };
  const found = await Promise.all(
    numbers.map((number) => reads.findNonceIn(ctx.rpc, sender, number)),
  );
  const index = found.findIndex((placed) => placed !== undefined);
  const placed = found[index];
  if (!placed) {
    if (isUp) search.up = high + 1n;
    else search.down = low - 1n;
    return undefined;
  }
  const place = { ...placed, blockNumber: numbers[index] ?? low };
  return (await isWitnessed(ctx, sender, place)) ? place : undefined;
}

/** The first block as of which the nonce counts as used, by the states, which nodes do not keep forever. */
async function firstUse(
  ctx: EngineContext,
  address: string,
  { nonce, up }: NonceSearch,
  to: bigint,
): Promise<bigint | "not yet"> {
  const isUsedAt = async (block: bigint): Promise<boolean> =>
    (await reads.readNonce(ctx.rpc, address, reads.tagOf(block))) > nonce;
  if (!(await isUsedAt(to))) return "not yet";
  let [low, high] = [up < to ? up : to, to];
  for (let step = 1n; low > 0n && (await isUsedAt(low - 1n)); step *= 2n) {
    high = low - 1n;
    low = high > step ? high - step : 0n;
  }
  while (low < high) {
    const middle = (low + high) / 2n;
    if (await isUsedAt(middle)) high = middle;
    else low = middle + 1n;
  }
  return high;
}

/**
 * For our transaction whose nonce is used although none of its attempts has a receipt. "nowhere": every block
 * has been searched, as far as this node returns them.
 */
export async function takenByOther(
  ctx: EngineContext,
  address: string,
  slot: StoredTransaction & { search: NonceSearch | undefined },
  headNumber: bigint,
): Promise<Placed | "nowhere" | undefined> {
  const final = headNumber - BigInt(ctx.network.confirmations - 1);
  const signed = slot.sentBlock ?? final;
  slot.search ??= { nonce: slot.nonce, up: signed + 1n, down: signed };
  const taken = await findReplacement(ctx, address, slot.search, final);
  if (!taken) return slot.search.up > final ? "nowhere" : undefined;
  // One of our own attempts: its receipt is late.
  return slot.attempts.some(({ hash }) => hash === taken.txHash) ? "nowhere" : taken;
}

async function isWitnessed(
  ctx: EngineContext,
  sender: { address: string; nonce: bigint },
  place: Placed,
): Promise<boolean> {
  if (ctx.rpc.endpoints === 1) return true;
  const { answers, needed } = await ctx.rpc.witnesses((endpoint) =>
    reads.findNonceIn(endpoint, sender, place.blockNumber),
  );
  return answers.filter((answer) => answer?.txHash === place.txHash).length >= needed;
}
