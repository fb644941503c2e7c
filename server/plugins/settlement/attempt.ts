/** What a transaction offers for its gas, and what it offers when it is stuck. */
import { type Address, type PrivateKeyAccount, keccak256 } from "viem";
import type { StoredAttempt, StoredTransaction } from "./lane-store.ts";

export interface Fees {
  maxFeeWei: bigint;
  priorityFeeWei: bigint;
}

/** Twice the base fee survives six full blocks in a row. */
export function initialFees(baseFeeWei: bigint, priorityFeeWei: bigint): Fees {
  return { maxFeeWei: baseFeeWei * 2n + priorityFeeWei, priorityFeeWei };
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
}): Fees | undefined {
  const now = initialFees(args.baseFeeWei, args.priorityFeeWei);
  const least = {
    maxFeeWei: bumped(args.last.maxFeeWei),
    priorityFeeWei: bumped(args.last.priorityFeeWei),
  };
  const cap = args.first.maxFeeWei * CAP_FACTOR;
  if (least.maxFeeWei > cap) return undefined;
  const wanted = now.maxFeeWei > least.maxFeeWei ? now.maxFeeWei : least.maxFeeWei;
  const maxFeeWei = wanted < cap ? wanted : cap;
  const tip = now.priorityFeeWei > least.priorityFeeWei ? now.priorityFeeWei : least.priorityFeeWei;
  return { maxFeeWei, priorityFeeWei: tip < maxFeeWei ? tip : maxFeeWei };
}

/** Signs one form of a lane's transaction. The hash is ours to compute: no node is needed to know it. */
export async function signAttempt(
  signer: PrivateKeyAccount,
  chainId: number,
  tx: Pick<StoredTransaction, "nonce" | "to" | "calldata" | "gasLimit">,
  terms: { maxFeeWei: bigint; priorityFeeWei: bigint; attempt: number },
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
  return { hash: keccak256(raw), raw, ...terms };
}
