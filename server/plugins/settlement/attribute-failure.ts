/**
 * Decides which payment caused a failure in a mined transaction. That payment is sent alone next time, and its
 * payer is not batched for a day.
 */
import { MULTICALL3_ADDRESS } from "../../core/networks.ts";
import type { RpcReceipt } from "../../infra/chain/contracts.ts";
import type { EngineContext } from "./context.ts";
import type { CarriedItem, StoredTransaction } from "./lane-store.ts";
import type { ProvenOutcome } from "./store.ts";

export interface FailureAttribution {
  /** Nonces of the authorizations that caused their own failure. */
  faults: string[];
  /** Payers that are not batched for a while. */
  offenders: string[];
}

const NO_FAULT: FailureAttribution = { faults: [], offenders: [] };

/**
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
  if (idle.length === 0) return NO_FAULT;
  const states = await ctx.reads.readAuthorizationStates(
    ctx.rpc,
    idle,
    BigInt(receipt.blockNumber),
  );
  // A token that does not answer is no payment's fault.
  const unused = idle.filter((_item, index) => states[index] === false);
  if (unused.length === 0) return NO_FAULT;
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
  const sizes = await ctx.reads.readCodeSizes(
    ctx.rpc,
    items.map(({ from }) => from),
  );
  return items.filter(({ from }) => (sizes.get(from.toLowerCase()) ?? 0n) > 0n);
}
