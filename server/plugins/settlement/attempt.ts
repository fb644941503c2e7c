import { keccak256, type Address, type PrivateKeyAccount } from "viem";
import type { StoredAttempt, StoredTransaction } from "./lane-store.ts";

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
