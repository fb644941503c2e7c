/** What the chain says of authorizations: simulated calls, used or not, and by which transaction. */
import type { Hex } from "viem";
import { MULTICALL3_ADDRESS } from "../../core/networks.ts";
import {
  aggregateCalldata,
  authorizationStateCalldata,
  balanceOfCalldata,
  BLOCK_NUMBER_CALLDATA,
  BLOCK_TIMESTAMP_CALLDATA,
  decodeAggregate,
  type Call,
  type CallResult,
} from "../../schemes/exact-eip3009/calldata.ts";
import {
  AUTHORIZATION_CANCELED,
  AUTHORIZATION_USED,
  type RpcLog,
  type RpcReceipt,
} from "../../schemes/exact-eip3009/fate.ts";
import type { ChainRpc } from "./rpc.ts";

/** A block tag, or a number as hex. */
export type BlockTag = Hex | "latest";

/** All numbers of one answer belong to one block. */
export interface AtBlock {
  blockNumber: bigint;
  timestampSeconds: bigint;
}

export interface AuthorizationRef {
  asset: string;
  from: string;
  nonce: string;
}

const MAX_CALLS = 400;

async function multicall(
  rpc: ChainRpc,
  calls: readonly Call[],
  block: BlockTag,
): Promise<AtBlock & { results: CallResult[] }> {
  const data = aggregateCalldata([
    { target: MULTICALL3_ADDRESS, data: BLOCK_NUMBER_CALLDATA },
    { target: MULTICALL3_ADDRESS, data: BLOCK_TIMESTAMP_CALLDATA },
    ...calls,
  ]);
  const answer = await rpc.call<Hex>("eth_call", [{ to: MULTICALL3_ADDRESS, data }, block]);
  const [number, timestamp, ...results] = decodeAggregate(answer);
  if (!number || !timestamp) throw new Error("malformed multicall result");
  return { blockNumber: BigInt(number.data), timestampSeconds: BigInt(timestamp.data), results };
}

/** Which of these authorizations are used or canceled, as of one block per 400. */
export async function readAuthorizationStates(
  rpc: ChainRpc,
  refs: readonly AuthorizationRef[],
  block: BlockTag,
): Promise<(AtBlock & { used: boolean })[]> {
  const states: (AtBlock & { used: boolean })[] = [];
  for (let start = 0; start < refs.length; start += MAX_CALLS) {
    const part = refs.slice(start, start + MAX_CALLS);
    const calls = part.map((ref) => ({
      target: ref.asset,
      data: authorizationStateCalldata(ref.from, ref.nonce),
    }));
    const { results, ...at } = await multicall(rpc, calls, block);
    for (const result of results) {
      // Not answering is not "unused": without a clear word there is no proof.
      if (!result.success || result.data.length !== 66)
        throw new Error("the token did not answer authorizationState");
      states.push({ ...at, used: BigInt(result.data) === 1n });
    }
  }
  return states;
}

export async function readBalances(
  rpc: ChainRpc,
  asset: string,
  accounts: readonly string[],
): Promise<AtBlock & { balances: bigint[] }> {
  const { results, ...at } = await multicall(
    rpc,
    accounts.map((account) => ({ target: asset, data: balanceOfCalldata(account) })),
    "latest",
  );
  return {
    ...at,
    balances: results.map((result) => {
      if (!result.success || result.data === "0x")
        throw new Error("the token did not answer balanceOf");
      return BigInt(result.data);
    }),
  };
}

/**
 * Tries the calls in order as one `aggregate3`, from the relayer and with the gas the real transaction
 * would have. Undefined when the whole thing ran out of gas or reverted.
 */
export async function simulate(
  rpc: ChainRpc,
  args: { from: string; calls: readonly Call[]; gas: bigint },
): Promise<CallResult[]> {
  const answer = await rpc.call<Hex>("eth_call", [
    {
      from: args.from,
      to: MULTICALL3_ADDRESS,
      gas: `0x${args.gas.toString(16)}`,
      data: aggregateCalldata(args.calls),
    },
    "latest",
  ]);
  return decodeAggregate(answer);
}

export interface AuthorizationUse {
  event: "used" | "canceled";
  txHash: Hex;
  blockNumber: bigint;
}

/** Providers limit the span of one log query; 2,000 blocks are accepted nearly everywhere. */
const SPAN_BLOCKS = 2_000n;
const MAX_SPANS = 25;

/** Searches backwards from `to` for the event that used or canceled an authorization. */
export async function findAuthorizationUse(
  rpc: ChainRpc,
  ref: AuthorizationRef,
  range: { from: bigint; to: bigint },
): Promise<AuthorizationUse | undefined> {
  const account = `0x${ref.from.slice(2).toLowerCase().padStart(64, "0")}`;
  let to = range.to;
  for (let span = 0; span < MAX_SPANS && to >= range.from && to >= 0n; span += 1) {
    const low = to - SPAN_BLOCKS + 1n;
    const from = low > range.from ? low : range.from;
    const logs = await rpc.call<RpcLog[]>("eth_getLogs", [
      {
        address: ref.asset,
        topics: [[AUTHORIZATION_USED, AUTHORIZATION_CANCELED], account, ref.nonce],
        fromBlock: `0x${from.toString(16)}`,
        toBlock: `0x${to.toString(16)}`,
      },
    ]);
    const [log] = logs;
    if (log) {
      return {
        event: log.topics[0] === AUTHORIZATION_USED ? "used" : "canceled",
        txHash: log.transactionHash,
        blockNumber: BigInt(log.blockNumber),
      };
    }
    to = from - 1n;
  }
  return undefined;
}

/** Null while the transaction is not in the canonical chain. */
export function readReceipt(rpc: ChainRpc, hash: string): Promise<RpcReceipt | null> {
  return rpc.call<RpcReceipt | null>("eth_getTransactionReceipt", [hash]);
}

export async function readNonce(rpc: ChainRpc, address: string, block: BlockTag): Promise<bigint> {
  return BigInt(await rpc.call<Hex>("eth_getTransactionCount", [address, block]));
}

export async function readNativeBalance(rpc: ChainRpc, address: string): Promise<bigint> {
  return BigInt(await rpc.call<Hex>("eth_getBalance", [address, "latest"]));
}

export async function readBlockTimestamp(rpc: ChainRpc, number: bigint): Promise<bigint> {
  const block = await rpc.call<{ timestamp: Hex } | null>("eth_getBlockByNumber", [
    `0x${number.toString(16)}`,
    false,
  ]);
  if (!block) throw new Error(`the node does not know block ${number}`);
  return BigInt(block.timestamp);
}
