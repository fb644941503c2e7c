/** What the chain says of authorizations: simulated calls, used or not, and by which transaction. */
import type { Hex } from "viem";
import type { CallResult, RpcLog } from "../../core/abi.ts";
import { MULTICALL3_ADDRESS } from "../../core/networks.ts";
import { schemeOf } from "../../schemes/index.ts";
import type { AuthorizationRef } from "../../core/authorization.ts";
import { decodeAggregate, encodeAggregate, type AggregateCall } from "./multicall.ts";
import type { Caller } from "./rpc.ts";
import { balanceOf } from "./token.ts";

/** A block tag, or a number as hex. */
export type BlockTag = Hex | "latest";

/**
 * One block, by its own header. Everything a decision reads is read at this number: what a contract says of
 * `block.number` is another chain's on some rollups, and "latest" is another block with each call.
 */
export interface BlockHeader {
  number: bigint;
  hash: Hex;
  timestampSeconds: bigint;
}

export const tagOf = (number: bigint): Hex => `0x${number.toString(16)}`;

export interface RpcReceipt {
  transactionHash: Hex;
  blockNumber: Hex;
  blockHash: Hex;
  status: Hex;
  gasUsed: Hex;
  logs: RpcLog[];
}

const MAX_CALLS = 400;

async function multicall(
  rpc: Caller,
  calls: readonly AggregateCall[],
  block: bigint,
): Promise<CallResult[]> {
  const call = { to: MULTICALL3_ADDRESS, data: encodeAggregate(calls) };
  const answer = await rpc.call<Hex>("eth_call", [call, tagOf(block)]);
  return decodeAggregate(answer, calls.length);
}

/** Which of these authorizations were used or canceled as of this block. Undefined: the token did not say. */
export async function readAuthorizationStates(
  rpc: Caller,
  refs: readonly AuthorizationRef[],
  block: bigint,
): Promise<(boolean | undefined)[]> {
  const states: (boolean | undefined)[] = [];
  for (let start = 0; start < refs.length; start += MAX_CALLS) {
    const part = refs.slice(start, start + MAX_CALLS);
    const results = await multicall(
      rpc,
      part.map((ref) => schemeOf(ref).stateCall(ref)),
      block,
    );
    for (const [index, ref] of part.entries()) {
      const result = results[index];
      states.push(result && schemeOf(ref).isEnded(ref, result));
    }
  }
  return states;
}

export async function readBalances(
  rpc: Caller,
  asset: string,
  accounts: readonly string[],
  block: bigint,
): Promise<bigint[]> {
  const calls = accounts.map((account) => ({ target: asset, data: balanceOf(account) }));
  return (await multicall(rpc, calls, block)).map((result) => {
    if (!result.success || result.data === "0x")
      throw new Error("the token did not answer balanceOf");
    return BigInt(result.data);
  });
}

/**
 * Tries the calls in order as one `aggregate3`, from the relayer and with the gas the real transaction
 * would have. Undefined when the whole thing ran out of gas or reverted.
 */
export async function simulate(
  rpc: Caller,
  args: { from: string; calls: readonly AggregateCall[]; gas: bigint },
): Promise<CallResult[]> {
  const answer = await rpc.call<Hex>("eth_call", [
    {
      from: args.from,
      to: MULTICALL3_ADDRESS,
      gas: `0x${args.gas.toString(16)}`,
      data: encodeAggregate(args.calls),
    },
    "latest",
  ]);
  return decodeAggregate(answer, args.calls.length);
}

export interface AuthorizationUse {
  event: "used" | "canceled";
  txHash: Hex;
  blockNumber: bigint;
}

/** Providers limit the span of one log query; 2,000 blocks are accepted nearly everywhere. */
export const SPAN_BLOCKS = 2_000n;

/** Looks in one span of blocks for the event that used or canceled an authorization. Nothing found proves nothing. */
export async function findAuthorizationUse(
  rpc: Caller,
  ref: AuthorizationRef,
  range: { from: bigint; to: bigint },
): Promise<AuthorizationUse | undefined> {
  const scheme = schemeOf(ref);
  const [log] = await rpc.call<RpcLog[]>("eth_getLogs", [
    { ...scheme.endFilter(ref), fromBlock: tagOf(range.from), toBlock: tagOf(range.to) },
  ]);
  return (
    log && {
      event: scheme.isUse(log) ? "used" : "canceled",
      txHash: log.transactionHash,
      blockNumber: BigInt(log.blockNumber),
    }
  );
}

/** Null while the transaction is not in the canonical chain. */
export function readReceipt(rpc: Caller, hash: string): Promise<RpcReceipt | null> {
  return rpc.call<RpcReceipt | null>("eth_getTransactionReceipt", [hash]);
}

export async function readNonce(rpc: Caller, address: string, block: BlockTag): Promise<bigint> {
  return BigInt(await rpc.call<Hex>("eth_getTransactionCount", [address, block]));
}

export async function readNativeBalance(rpc: Caller, address: string): Promise<bigint> {
  return BigInt(await rpc.call<Hex>("eth_getBalance", [address, "latest"]));
}

/** Undefined where the node knows no such block: yet, or any more. */
export async function readHeader(rpc: Caller, number: bigint): Promise<BlockHeader | undefined> {
  const block = await rpc.call<{ hash: Hex; timestamp: Hex } | null>("eth_getBlockByNumber", [
    tagOf(number),
    false,
  ]);
  return block
    ? { number, hash: block.hash, timestampSeconds: BigInt(block.timestamp) }
    : undefined;
}

/** The hash of the transaction that this account sent with this nonce, if this block holds it. */
export async function findNonceIn(
  rpc: Caller,
  sender: { address: string; nonce: bigint },
  number: bigint,
): Promise<{ txHash: Hex; blockHash: Hex } | undefined> {
  const block = await rpc.call<{
    hash: Hex;
    transactions: { hash: Hex; from: Hex; nonce: Hex }[];
  } | null>("eth_getBlockByNumber", [tagOf(number), true]);
  if (!block) throw new Error(`the node does not know block ${number}`);
  const found = block.transactions.find(
    ({ from, nonce }) =>
      from.toLowerCase() === sender.address.toLowerCase() && BigInt(nonce) === sender.nonce,
  );
  return found && { txHash: found.hash, blockHash: block.hash };
}
