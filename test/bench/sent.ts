// The transactions that a relayer sent, read from the chain: count, reverts, gas.
import type { Address } from "viem";
import type { TestChain } from "../helpers/chain.ts";

export interface Sent {
  transactions: number;
  reverted: number;
  gasUsed: bigint;
}

export async function sentBy(
  chain: TestChain,
  senders: readonly Address[],
  fromBlock: bigint,
): Promise<Sent> {
  const wanted = new Set(senders.map((sender) => sender.toLowerCase()));
  const sent: Sent = { transactions: 0, reverted: 0, gasUsed: 0n };
  const last = await chain.publicClient.getBlockNumber();
  for (let number = fromBlock; number <= last; number += 1n) {
    const block = await chain.publicClient.getBlock({
      blockNumber: number,
      includeTransactions: true,
    });
    for (const { from, hash } of block.transactions) {
      if (!wanted.has(from.toLowerCase())) continue;
      const receipt = await chain.publicClient.getTransactionReceipt({ hash });
      sent.transactions += 1;
      sent.gasUsed += receipt.gasUsed;
      if (receipt.status !== "success") sent.reverted += 1;
    }
  }
  return sent;
}
