/** Which payment caused a failure in a mined transaction: which is sent alone next time, and which payer for a day. */
import { MULTICALL3_ADDRESS } from "../../core/networks.ts";
import type { RpcReceipt } from "../../infra/chain/contracts.ts";
import type { EngineContext } from "./context.ts";
import type { CarriedItem, StoredTransaction } from "./lane-store.ts";
import type { ProvenOutcome } from "./store.ts";

export interface FailureAttribution {
  /** Nonces of the authorizations that failed by their own doing. */
  faults: string[];
  /** Payers that are not sent in a batch for a while. */
  offenders: string[];
}

const NOBODY: FailureAttribution = { faults: [], offenders: [] };

/**
 * - Used or canceled by somebody else meanwhile: nobody's fault, and no gas worth a word.
 * - The gas ran out: a payer with code at its address burnt it; where no payer has code, all are suspects.
 * - Nothing in a batch had an effect, and gas was left: the token caused it (it was paused, for example), not the payers.
 * - Some had no effect among others that had: their own doing. Through our batcher each has a bound of gas of its own,
 *   which no simulation knows: who has no code there goes alone, where the bound is another, and is held in no doubt.
 */
export async function attributeFailure(
  ctx: EngineContext,
  tx: StoredTransaction,
  receipt: RpcReceipt,
  outcomes: readonly ProvenOutcome[],
): Promise<FailureAttribution> {
  const proven = new Set(outcomes.map(({ nonce }) => nonce));
  const idle = tx.items.filter(({ nonce }) => !proven.has(nonce));
  if (idle.length === 0) return NOBODY;
  const states = await ctx.reads.readAuthorizationStates(
    ctx.rpc,
    idle,
    BigInt(receipt.blockNumber),
  );
  // Where the token does not even answer, it is nobody's fault.
  const unused = idle.filter((_item, index) => states[index] === false);
  if (unused.length === 0) return NOBODY;
  const coded = await withCode(ctx, unused);
  const isBurnt =
    BigInt(receipt.status) === 0n || BigInt(receipt.gasUsed) * 20n > tx.gasLimit * 19n;
  if (tx.items.length === 1) return { faults: nonces(unused), offenders: payers(coded) };
  if (isBurnt)
    return { faults: nonces(coded.length > 0 ? coded : unused), offenders: payers(coded) };
  if (proven.size === 0 && unused.length === tx.items.length) return NOBODY;
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
