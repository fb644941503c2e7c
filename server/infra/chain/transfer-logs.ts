import { parseAbiItem, type Address, type Hex } from "viem";
import type { ChainClient } from "./index.ts";

const TRANSFER = parseAbiItem(
  "event Transfer(address indexed from, address indexed to, uint256 value)",
);
/** Nodes refuse filters with very many topics; above this, all transfers of the token are read. */
const MAX_TOPICS = 500;
const MAX_FILTERS = 4;

export interface TransferLog {
  from: Address;
  to: Address;
  amountAtomic: bigint;
  txHash: Hex;
  logIndex: number;
  blockNumber: bigint;
}

/** The token's own logs only: some chains also log native moves, from another address, in 18 decimals. */
export async function readTransfersTo(
  { client, network }: ChainClient,
  args: { wallets: readonly Address[]; fromBlock: bigint; toBlock: bigint },
): Promise<TransferLog[]> {
  const { fromBlock, toBlock, wallets } = args;
  if (wallets.length === 0) return [];
  const range = { address: network.usdc.address, event: TRANSFER, fromBlock, toBlock } as const;
  const batches: Address[][] = [];
  for (let start = 0; start < wallets.length; start += MAX_TOPICS)
    batches.push(wallets.slice(start, start + MAX_TOPICS));
  const found =
    batches.length > MAX_FILTERS
      ? [await client.getLogs({ ...range, strict: true })]
      : await Promise.all(
          batches.map((to) => client.getLogs({ ...range, args: { to }, strict: true })),
        );
  const wanted = new Set(wallets);
  return found.flat().flatMap((log) => {
    const to = log.args.to.toLowerCase() as Address;
    if (!wanted.has(to) || log.args.value === 0n || log.removed) return [];
    return [
      {
        from: log.args.from.toLowerCase() as Address,
        to,
        amountAtomic: log.args.value,
        txHash: log.transactionHash,
        logIndex: log.logIndex,
        blockNumber: log.blockNumber,
      },
    ];
  });
}

export interface BlockFacts {
  hash: Hex;
  at: Date;
}

/** Undefined where the chain has no such block (yet, or any more). */
export async function readBlock(
  { rpc }: ChainClient,
  blockNumber: bigint,
): Promise<BlockFacts | undefined> {
  const block = await rpc.call<{ hash: Hex; timestamp: Hex } | null>("eth_getBlockByNumber", [
    `0x${blockNumber.toString(16)}`,
    false,
  ]);
  return block ? { hash: block.hash, at: new Date(Number(block.timestamp) * 1000) } : undefined;
}
