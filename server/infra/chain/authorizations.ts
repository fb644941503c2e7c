/** What the chain says of authorizations: simulated calls, used or not, and by which transaction. */
import { toFunctionSelector, type Hex } from "viem";
import { addressWord, type CallResult, type RpcLog } from "../../core/abi.ts";
import { MULTICALL3_ADDRESS } from "../../core/networks.ts";
import { schemeOf } from "../../schemes/index.ts";
import type { AuthorizationRef } from "../../core/authorization.ts";
import { decodeAggregate, encodeAggregate, type AggregateCall } from "./multicall.ts";
import type { ChainRpc } from "./rpc.ts";
import { balanceOf } from "./token.ts";

/** A block tag, or a number as hex. */
export type BlockTag = Hex | "latest";

/** All numbers of one answer belong to one block. */
export interface AtBlock {
  blockNumber: bigint;
  timestampSeconds: bigint;
}

export interface RpcReceipt {
  transactionHash: Hex;
  blockNumber: Hex;
  blockHash: Hex;
  status: Hex;
  gasUsed: Hex;
  logs: RpcLog[];
}

const MAX_CALLS = 400;
const GET_BLOCK_NUMBER = toFunctionSelector("getBlockNumber()");
const GET_BLOCK_TIMESTAMP = toFunctionSelector("getCurrentBlockTimestamp()");

async function multicall(
  rpc: ChainRpc,
  calls: readonly AggregateCall[],
  block: BlockTag,
): Promise<AtBlock & { results: CallResult[] }> {
  const data = encodeAggregate([
    { target: MULTICALL3_ADDRESS, data: GET_BLOCK_NUMBER },
    { target: MULTICALL3_ADDRESS, data: GET_BLOCK_TIMESTAMP },
    ...calls,
  ]);
  const answer = await rpc.call<Hex>("eth_call", [{ to: MULTICALL3_ADDRESS, data }, block]);
  const [number, timestamp, ...results] = decodeAggregate(answer, calls.length + 2);
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
    const calls = part.map((ref) => schemeOf(ref).stateCall(ref));
    const { results, ...at } = await multicall(rpc, calls, block);
    for (const [index, ref] of part.entries()) {
      const result = results[index];
      const used = result && schemeOf(ref).isEnded(ref, result);
      // Not answering is not "unused": without a clear word there is no proof.
      if (used === undefined)
        throw new Error("the token did not say whether an authorization is used");
      states.push({ ...at, used });
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
    accounts.map((account) => ({ target: asset, data: balanceOf(account) })),
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
 * Tries the calls in order as one `aggregate3`, from the relayer, with the gas and at the price of the real
 * transaction: code that looks at either sees no difference. Throws when the whole thing ran out of gas or
 * reverted, and where the relayer could not pay.
 */
export async function simulate(
  rpc: ChainRpc,
  args: {
    from: string;
    calls: readonly AggregateCall[];
    gas: bigint;
    fees: { maxFeeWei: bigint; priorityFeeWei: bigint };
  },
): Promise<CallResult[]> {
  const answer = await rpc.call<Hex>("eth_call", [
    {
      from: args.from,
      to: MULTICALL3_ADDRESS,
      gas: `0x${args.gas.toString(16)}`,
      maxFeePerGas: `0x${args.fees.maxFeeWei.toString(16)}`,
      maxPriorityFeePerGas: `0x${args.fees.priorityFeeWei.toString(16)}`,
      data: encodeAggregate(args.calls),
    },
    "latest",
  ]);
  return decodeAggregate(answer, args.calls.length);
}

/**
 * `for each word after this code: its EXTCODESIZE`, run as a contract creation that is only called: one
 * question for all, answered as of one block, with the very instruction the token decides by.
 */
const SIZES_CODE = "6024380380602460003960005b81811015601f5780513b8152602001600c565b506000f3";

export async function readCodeSizes(
  rpc: ChainRpc,
  addresses: readonly string[],
): Promise<Map<string, bigint>> {
  const unique = [...new Set(addresses.map((address) => address.toLowerCase()))];
  if (unique.length === 0) return new Map();
  const data = `0x${SIZES_CODE}${unique.map(addressWord).join("")}`;
  const answer = await rpc.call<Hex>("eth_call", [{ data }, "latest"]);
  if (answer.length !== 2 + unique.length * 64)
    throw new Error("the node did not say which accounts have code");
  return new Map(
    unique.map((address, index) => [
      address,
      BigInt(`0x${answer.slice(2 + index * 64, 66 + index * 64)}`),
    ]),
  );
}

/** Whether the token still answers what an EIP-3009 token must: a proxy without code says nothing, to everything. */
export async function tokenAnswers(rpc: ChainRpc, asset: string): Promise<boolean> {
  const nobody = { asset, from: `0x${"0".repeat(40)}`, nonce: `0x${"0".repeat(64)}` };
  const scheme = schemeOf(nobody);
  const { results } = await multicall(rpc, [scheme.stateCall(nobody)], "latest");
  return results[0] !== undefined && scheme.isEnded(nobody, results[0]) !== undefined;
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
  const scheme = schemeOf(ref);
  let to = range.to;
  for (let span = 0; span < MAX_SPANS && to >= range.from && to >= 0n; span += 1) {
    const low = to - SPAN_BLOCKS + 1n;
    const from = low > range.from ? low : range.from;
    const logs = await rpc.call<RpcLog[]>("eth_getLogs", [
      {
        ...scheme.endFilter(ref),
        fromBlock: `0x${from.toString(16)}`,
        toBlock: `0x${to.toString(16)}`,
      },
    ]);
    const [log] = logs;
    if (log) {
      return {
        event: scheme.isUse(log) ? "used" : "canceled",
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
