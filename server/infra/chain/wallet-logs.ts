/** Token logs of given wallets: transfers both ways, and authorizations used or canceled. */
import type { Address, Hex } from "viem";
import { addressWord, uintOf } from "../../core/abi.ts";
import type { Nonce, SchemeTerms } from "../../core/authorization.ts";
import { MULTICALL3_ADDRESS } from "../../core/networks.ts";
import {
  AUTHORIZATION_CANCELED,
  AUTHORIZATION_USED,
  TRANSFER,
  useBehind,
} from "../../schemes/index.ts";
import type { SentCall } from "../../schemes/scheme.ts";
import {
  balanceOf,
  decodeAggregate,
  encodeAggregate,
  readSent,
  type RpcReceipt,
} from "./contracts.ts";
import { classifyChainError } from "./errors.ts";
import type { ChainClient } from "./index.ts";

/** Nodes refuse filters with more topics than this. */
const MAX_TOPICS = 1_000;

interface Place {
  txHash: Hex;
  logIndex: number;
  blockNumber: bigint;
  blockHash: Hex;
}
export type TransferLog = Place & {
  event: "transfer";
  from: Address;
  to: Address;
  amountAtomic: bigint;
};
export type EndLog = Place & {
  event: "used" | "canceled";
  from: Address;
  nonce: Nonce;
  /** Set where the use was found in the transaction's calls, and not in an event. */
  terms?: SchemeTerms;
};
export type WalletLog = TransferLog | EndLog;

interface NodeLog {
  topics: Hex[];
  data: Hex;
  transactionHash: Hex;
  logIndex: Hex;
  blockNumber: Hex;
  blockHash: Hex;
}

/** How many queries one range of blocks costs. */
export const queriesFor = (wallets: number): number => Math.ceil(wallets / MAX_TOPICS) * 2;

/** In chain order. Only the token's own logs: some chains also log native transfers, from another address. */
export async function readWalletLogs(
  { rpc, network }: ChainClient,
  args: { wallets: readonly Address[]; fromBlock: bigint; toBlock: bigint },
): Promise<WalletLog[]> {
  const { wallets, fromBlock, toBlock } = args;
  const found = new Map<string, WalletLog>();
  for (let start = 0; start < wallets.length; start += MAX_TOPICS) {
    const those = wallets
      .slice(start, start + MAX_TOPICS)
      .map((wallet) => `0x${addressWord(wallet)}`);
    const query = (topics: unknown[]) =>
      rpc.call<NodeLog[]>("eth_getLogs", [
        {
          address: network.usdc.address,
          fromBlock: `0x${fromBlock.toString(16)}`,
          toBlock: `0x${toBlock.toString(16)}`,
          topics,
        },
      ]);
    // The sender of a transfer and the signer of an authorization are in the same topic.
    const [out, incoming] = await Promise.all([
      query([[TRANSFER, AUTHORIZATION_USED, AUTHORIZATION_CANCELED], those]),
      query([[TRANSFER], null, those]),
    ]);
    for (const log of [...out, ...incoming])
      found.set(`${log.transactionHash}:${log.logIndex}`, readLog(log));
  }
  return [...found.values()].sort(
    (a, b) => Number(a.blockNumber - b.blockNumber) || a.logIndex - b.logIndex,
  );
}

const SENT_AT_ONCE = 8;
const MAX_SENT = 5_000;

/** Cache of transaction calls, which never change: reconciliation reads the same blocks repeatedly. */
export class SentCalls {
  readonly #known = new Map<Hex, SentCall>();

  async read(rpc: ChainClient["rpc"], wanted: ReadonlySet<Hex>): Promise<Map<Hex, SentCall>> {
    const found = new Map<Hex, SentCall>();
    const missing = [...wanted].filter((hash) => {
      const call = this.#known.get(hash);
      if (call) found.set(hash, call);
      return !call;
    });
    for (let from = 0; from < missing.length; from += SENT_AT_ONCE)
      await Promise.all(
        missing.slice(from, from + SENT_AT_ONCE).map(async (hash) => {
          const call = await readSent(rpc, hash);
          if (!call) return;
          found.set(hash, call);
          this.#known.set(hash, call);
        }),
      );
    for (const [oldest] of this.#known) {
      if (this.#known.size <= MAX_SENT) break;
      this.#known.delete(oldest);
    }
    return found;
  }
}

/**
 * For outgoing transfers that no event of the token explains, adds the authorization use found in the transaction's
 * calls, as if its event preceded the transfer.
 */
export async function withUses(
  { rpc, network }: Pick<ChainClient, "rpc" | "network">,
  logs: readonly WalletLog[],
  { unexplained, known }: { unexplained: ReadonlySet<WalletLog>; known: SentCalls },
): Promise<WalletLog[]> {
  const sent = await known.read(rpc, new Set([...unexplained].map(({ txHash }) => txHash)));
  const all: WalletLog[] = [];
  for (const log of logs) {
    if (log.event === "transfer" && unexplained.has(log)) {
      const { event: _, to, amountAtomic: value, ...place } = log;
      const calls = sent.get(log.txHash);
      const use =
        calls && useBehind(calls, { asset: network.usdc.address, from: log.from, to, value });
      if (use) all.push({ ...place, event: "used", ...use });
    }
    all.push(log);
  }
  return all;
}

/** All logs of the token in a receipt, of any wallet. They are complete, because a receipt is one response. */
export function readReceiptLogs(receipt: RpcReceipt, token: Address): WalletLog[] {
  const { transactionHash, blockNumber, blockHash } = receipt;
  const own = receipt.logs.filter(({ address }) => address.toLowerCase() === token.toLowerCase());
  return own
    .filter(({ topics: [event] }) => EVENTS.has(event))
    .map((log, index) =>
      // Numbered in their order from the first one.
      readLog({
        ...log,
        transactionHash,
        blockNumber,
        blockHash,
        logIndex: `0x${index.toString(16)}`,
      }),
    );
}

const EVENTS = new Set<Hex | undefined>([TRANSFER, AUTHORIZATION_USED, AUTHORIZATION_CANCELED]);

function readLog({ topics, data, ...log }: NodeLog): WalletLog {
  const [event, first = "0x", second = "0x"] = topics;
  const place: Place = {
    txHash: log.transactionHash,
    logIndex: Number(log.logIndex),
    blockNumber: BigInt(log.blockNumber),
    blockHash: log.blockHash,
  };
  const from = addressIn(first);
  if (event === TRANSFER)
    return { ...place, event: "transfer", from, to: addressIn(second), amountAtomic: BigInt(data) };
  const nonce = second.toLowerCase() as Hex;
  return { ...place, event: event === AUTHORIZATION_USED ? "used" : "canceled", from, nonce };
}

const addressIn = (topic: Hex): Address => `0x${topic.slice(-40).toLowerCase()}`;

export interface BlockFacts {
  hash: Hex;
  at: Date;
}

/** Undefined if the chain does not have the block (not yet, or not any more). */
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

/** Balances as of one block; undefined if the node has pruned that state, or does not have it yet. */
export async function readBalancesAt(
  { rpc, network }: ChainClient,
  wallets: readonly Address[],
  block: bigint,
): Promise<Map<Address, bigint> | undefined> {
  const calls = wallets.map((wallet) => ({
    target: network.usdc.address,
    data: balanceOf(wallet),
  }));
  try {
    const answer = await rpc.call<Hex>("eth_call", [
      { to: MULTICALL3_ADDRESS, data: encodeAggregate(calls) },
      `0x${block.toString(16)}`,
    ]);
    const results = decodeAggregate(answer, calls.length).map(uintOf);
    return results.includes(undefined)
      ? undefined
      : new Map(wallets.map((wallet, index) => [wallet, results[index] ?? 0n]));
  } catch (error) {
    if (classifyChainError(error).kind === "unreachable") throw error;
    return undefined;
  }
}
