// The transactions that a relayer sent, read from the chain: count, reverts, gas.
import { hexToBytes, type Address, type Hex } from "viem";
import { rpcBatch } from "../../server/local/anvil.ts";
import type { TestChain } from "../helpers/chain.ts";

export interface Sent {
  transactions: number;
  reverted: number;
  gasUsed: bigint;
  hashes: Hex[];
}

export async function sentBy(
  chain: TestChain,
  senders: readonly Address[],
  fromBlock: bigint,
): Promise<Sent> {
  const wanted = new Set(senders.map((sender) => sender.toLowerCase()));
  const sent: Sent = { transactions: 0, reverted: 0, gasUsed: 0n, hashes: [] };
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
      sent.hashes.push(hash);
      sent.gasUsed += receipt.gasUsed;
      if (receipt.status !== "success") sent.reverted += 1;
    }
  }
  return sent;
}

export interface GasSplit {
  transaction: number;
  calldata: number;
  batching: number;
  token: number;
  /** The calldata floor price of EIP-7623. */
  floor: number;
  all: number;
}

/** The parts of the gas of these transactions, per payment. */
export async function gasSplit(
  chain: TestChain,
  hashes: readonly Hex[],
  payments: number,
): Promise<GasSplit> {
  const sum: GasSplit = { transaction: 0, calldata: 0, batching: 0, token: 0, floor: 0, all: 0 };
  for (const hash of hashes) {
    const { input, to } = await chain.publicClient.getTransaction({ hash });
    const { gasUsed } = await chain.publicClient.getTransactionReceipt({ hash });
    const bytes = hexToBytes(input);
    const zeros = bytes.filter((byte) => byte === 0).length;
    const others = bytes.length - zeros;
    const [traced] = (await rpcBatch(chain.rpcUrl, [
      { method: "debug_traceTransaction", params: [hash, { tracer: "callTracer" }] },
    ])) as [{ calls?: { gasUsed: Hex }[] }];
    sum.transaction += 21_000;
    sum.calldata += zeros * 4 + others * 16;
    sum.floor += 21_000 + (zeros + others * 4) * 10;
    sum.all += Number(gasUsed);
    // A single payment calls the token directly, so all of its execution gas is the token's.
    const isAlone = to?.toLowerCase() === chain.usdc.toLowerCase();
    const inner = traced.calls?.reduce((gas, call) => gas + Number(call.gasUsed), 0) ?? 0;
    sum.token += isAlone ? Number(gasUsed) - 21_000 - zeros * 4 - others * 16 : inner;
  }
  sum.batching = sum.all - sum.transaction - sum.calldata - sum.token;
  const each = Object.entries(sum).map(([name, gas]) => [name, Math.round(gas / payments)]);
  return Object.fromEntries(each) as GasSplit;
}
