/** Contract calls, encoded and decoded by hand: Multicall3, the token, authorizations. */
import { domainSeparator, toFunctionSelector, type Hex, type Address } from "viem";
import {
  addressWord,
  bytesTail,
  selectorDigits,
  uintWord,
  type CallResult,
  type ContractCall,
  type RpcLog,
} from "../../core/abi.ts";
import { tokenDomainOf, MULTICALL3_ADDRESS, type NetworkFacts } from "../../core/networks.ts";
import { classifyChainError, revertData } from "./errors.ts";
import { schemeOf } from "../../schemes/index.ts";
import type { AuthorizationRef } from "../../core/authorization.ts";
import type { ExpectedTransfer, SentCall } from "../../schemes/scheme.ts";
import type { Caller } from "./rpc.ts";

// Multicall3's `aggregate3`. On the hot path the generic ABI coder costs more than everything else around a chain read.
// A test compares this code with viem's coder.

interface AggregateCall extends ContractCall {
  /**
   * If true, a failure of this call fails the whole aggregate. Otherwise a reverting call does not affect the others.
   */
  readonly mustSucceed?: boolean;
}

const SELECTOR = selectorDigits("aggregate3((address,bool,bytes)[])");
const WORD = 64;
const ALLOW_FAILURE = uintWord(1);
const MUST_SUCCEED = uintWord(0);
const WORD_32 = uintWord(32);
const WORD_96 = uintWord(96);

export function encodeAggregate(calls: readonly AggregateCall[]): Hex {
  let offsets = "";
  let tuples = "";
  const headChars = calls.length * WORD;
  for (const { target, data, mustSucceed } of calls) {
    offsets += uintWord((headChars + tuples.length) / 2);
    const failure = mustSucceed === true ? MUST_SUCCEED : ALLOW_FAILURE;
    tuples += addressWord(target) + failure + WORD_96 + bytesTail(data);
  }
  return `0x${SELECTOR}${WORD_32}${uintWord(calls.length)}${offsets}${tuples}`;
}

/** Throws if the number of results differs: then the response did not come from Multicall3. */
export function decodeAggregate(answer: Hex, count: number): CallResult[] {
  const listAt = 2 + numberAt(answer, 2) * 2;
  if (numberAt(answer, listAt) !== count) throw new Error("unexpected answer of Multicall3");
  const headAt = listAt + WORD;
  return Array.from({ length: count }, (_, index) => {
    const tupleAt = headAt + numberAt(answer, headAt + index * WORD) * 2;
    const bytesAt = tupleAt + numberAt(answer, tupleAt + WORD) * 2;
    const length = numberAt(answer, bytesAt) * 2;
    const data = answer.slice(bytesAt + WORD, bytesAt + WORD + length);
    if (data.length !== length) throw new Error("short answer of Multicall3");
    return { success: numberAt(answer, tupleAt) === 1, data: `0x${data}` as const };
  });
}

function numberAt(text: string, at: number): number {
  const value = Number.parseInt(text.slice(at, at + WORD), 16);
  if (!Number.isSafeInteger(value)) throw new Error("unexpected answer of Multicall3");
  return value;
}

// Calldata of the standard functions that a payment check needs, and the check of the token's domain.

const BALANCE_OF = selectorDigits("balanceOf(address)");
const IS_VALID_SIGNATURE = selectorDigits("isValidSignature(bytes32,bytes)");
const DOMAIN_SEPARATOR = toFunctionSelector("DOMAIN_SEPARATOR()");

export const balanceOf = (account: string): Hex => `0x${BALANCE_OF}${addressWord(account)}`;

export const isValidSignature = (digest: Hex, signature: Hex): Hex =>
  `0x${IS_VALID_SIGNATURE}${digest.slice(2)}${uintWord(64)}${bytesTail(signature)}`;

/** `actual` is undefined where the address has no such token. */
type DomainCheck = { ok: true } | { ok: false; expected: Hex; actual: Hex | undefined };

/**
 * Compares the token's DOMAIN_SEPARATOR() with the expected one: with a mismatch, every signature would be worthless.
 * Throws if the chain returned nothing to compare.
 */
export async function checkTokenDomain({
  network,
  rpc,
}: {
  network: NetworkFacts;
  rpc: Caller;
}): Promise<DomainCheck> {
  const expected = domainSeparator({ domain: tokenDomainOf(network) });
  const actual = await readDomain(rpc, network.usdc.address);
  return actual === expected ? { ok: true } : { ok: false, expected, actual };
}

export async function readDomain(rpc: Caller, token: Address): Promise<Hex | undefined> {
  try {
    const call = { to: token, data: DOMAIN_SEPARATOR };
    const answer = await rpc.call<Hex>("eth_call", [call, "latest"]);
    return answer.length === 66 ? answer : undefined;
  } catch (error) {
    if (classifyChainError(error).kind === "reverted") return undefined;
    throw error;
  }
}

// Authorizations on the chain: simulated calls, states, and the transaction that used one.

/** A block tag, or a block number as hex. */
type BlockTag = Hex | "latest";

/**
 * One block, from its own header. Every read of a decision uses this number: on some rollups `block.number` in a
 * contract is another chain's, and "latest" can be a different block with each call.
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
  /** Missing in responses of a few old nodes. */
  effectiveGasPrice?: Hex;
  /** What a rollup charges for data on its parent chain, besides gas (OP Stack). */
  l1Fee?: Hex | null;
  logs: RpcLog[];
  /** The transaction's call; read only where the logs are not sufficient. */
  sent?: SentCall;
}

const MAX_CALLS = 400;

/** Several calls, all as of one block. */
export async function readMany(
  rpc: Caller,
  calls: readonly AggregateCall[],
  block: bigint | "latest",
): Promise<CallResult[]> {
  const call = { to: MULTICALL3_ADDRESS, data: encodeAggregate(calls) };
  const tag = block === "latest" ? block : tagOf(block);
  const answer = await rpc.call<Hex>("eth_call", [call, tag]);
  return decodeAggregate(answer, calls.length);
}

/** Which of these authorizations were used or canceled as of this block. Undefined: the token returned no state. */
export async function readAuthorizationStates(
  rpc: Caller,
  refs: readonly AuthorizationRef[],
  block: bigint | "latest",
): Promise<(boolean | undefined)[]> {
  const states: (boolean | undefined)[] = [];
  for (let start = 0; start < refs.length; start += MAX_CALLS) {
    const part = refs.slice(start, start + MAX_CALLS);
    const results = await readMany(
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
  return (await readMany(rpc, calls, block)).map((result) => {
    if (!result.success || result.data === "0x") throw new Error("the token returned no balance");
    return BigInt(result.data);
  });
}

/**
 * Simulates the calls in order as one `aggregate3`, from the relayer, with the gas limit and gas price of the real
 * transaction, so that contracts that read them behave the same. Throws if the whole call ran out of gas or reverted,
 * or if the relayer could not pay.
 */
export async function simulate(
  rpc: Caller,
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
      gas: tagOf(args.gas),
      maxFeePerGas: tagOf(args.fees.maxFeeWei),
      maxPriorityFeePerGas: tagOf(args.fees.priorityFeeWei),
      data: encodeAggregate(args.calls),
    },
    "latest",
  ]);
  return decodeAggregate(answer, args.calls.length);
}

/** One call from a given account, for contracts that check the caller. */
export async function callAs(
  rpc: Caller,
  from: string,
  { target, data }: ContractCall,
  { gas, fees }: { gas: bigint; fees?: { maxFeeWei: bigint; priorityFeeWei: bigint } },
): Promise<CallResult> {
  const priced = fees && {
    maxFeePerGas: tagOf(fees.maxFeeWei),
    maxPriorityFeePerGas: tagOf(fees.priorityFeeWei),
  };
  try {
    const call = { from, to: target, data, gas: tagOf(gas), ...priced };
    return { success: true, data: await rpc.call<Hex>("eth_call", [call, "latest"]) };
  } catch (error) {
    if (classifyChainError(error).kind !== "reverted") throw error;
    return { success: false, data: revertData(error) };
  }
}

/**
 * EVM code that returns the EXTCODESIZE of each address appended to it. It is run as a contract creation in eth_call:
 * one request for all addresses, as of one block, with the same instruction that the token uses.
 */
const SIZES_CODE = "6024380380602460003960005b81811015601f5780513b8152602001600c565b506000f3";

export async function readCodeSizes(
  rpc: Caller,
  addresses: readonly string[],
): Promise<Map<string, bigint>> {
  const unique = [...new Set(addresses.map((address) => address.toLowerCase()))];
  if (unique.length === 0) return new Map();
  const data = `0x${SIZES_CODE}${unique.map(addressWord).join("")}`;
  const answer = await rpc.call<Hex>("eth_call", [{ data }, "latest"]);
  if (answer.length !== 2 + unique.length * 64)
    throw new Error("the node did not return which accounts have code");
  return new Map(
    unique.map((address, index) => [
      address,
      BigInt(`0x${answer.slice(2 + index * 64, 66 + index * 64)}`),
    ]),
  );
}

/**
 * Searches a range of blocks for the event that used or canceled an authorization, and returns the candidate
 * transactions. An empty result proves nothing.
 */
export async function findAuthorizationUse(
  rpc: Caller,
  expected: ExpectedTransfer,
  range: { from: bigint; to: bigint },
): Promise<Hex[]> {
  const logs = await rpc.call<RpcLog[]>("eth_getLogs", [
    {
      ...schemeOf(expected).endFilter(expected),
      fromBlock: tagOf(range.from),
      toBlock: tagOf(range.to),
    },
  ]);
  return [...new Set(logs.map(({ transactionHash }) => transactionHash))];
}

/** Null while the transaction is not in the canonical chain. */
export function readReceipt(rpc: Caller, hash: string): Promise<RpcReceipt | null> {
  return rpc.call<RpcReceipt | null>("eth_getTransactionReceipt", [hash]);
}

/** The receipt, with everything needed to decide about this authorization. */
export async function readReceiptWithCall(
  rpc: Caller,
  hash: string,
  ref: AuthorizationRef,
): Promise<RpcReceipt | null> {
  const receipt = await readReceipt(rpc, hash);
  return receipt && withCall(rpc, receipt, ref);
}

/** Adds the transaction's call if needed. The hash commits to it, so the answer of any endpoint will do. */
export async function withCall(
  rpc: Caller,
  receipt: RpcReceipt,
  ref: AuthorizationRef,
): Promise<RpcReceipt | null> {
  if (receipt.sent || schemeOf(ref).isNamedInLogs) return receipt;
  const sent = await readSent(rpc, receipt.transactionHash);
  return sent ? { ...receipt, sent } : null;
}

export async function readSent(rpc: Caller, hash: Hex): Promise<SentCall | undefined> {
  const sent = await rpc.call<{ to: Hex | null; input: Hex } | null>("eth_getTransactionByHash", [
    hash,
  ]);
  return sent ? { to: sent.to ?? "0x", data: sent.input } : undefined;
}

/** All receipts of a block; undefined if the node does not return every one of them. */
export async function readBlockReceipts(
  rpc: Caller,
  { number, hash }: BlockHeader,
): Promise<RpcReceipt[] | undefined> {
  const [block, receipts] = await Promise.all([
    rpc.call<{ hash: Hex; transactions: Hex[] } | null>("eth_getBlockByNumber", [
      tagOf(number),
      false,
    ]),
    rpc.call<RpcReceipt[] | null>("eth_getBlockReceipts", [tagOf(number)]),
  ]);
  const isWhole =
    block?.hash === hash &&
    receipts?.length === block.transactions.length &&
    receipts.every(({ blockHash }) => blockHash === hash);
  return isWhole ? receipts : undefined;
}

export async function readNonce(rpc: Caller, address: string, block: BlockTag): Promise<bigint> {
  return BigInt(await rpc.call<Hex>("eth_getTransactionCount", [address, block]));
}

export async function readNativeBalance(rpc: Caller, address: string): Promise<bigint> {
  return BigInt(await rpc.call<Hex>("eth_getBalance", [address, "latest"]));
}

/** Undefined if the node does not have the block (not yet, or not any more). */
export async function readHeader(rpc: Caller, number: bigint): Promise<BlockHeader | undefined> {
  const block = await rpc.call<{ hash: Hex; timestamp: Hex } | null>("eth_getBlockByNumber", [
    tagOf(number),
    false,
  ]);
  return block
    ? { number, hash: block.hash, timestampSeconds: BigInt(block.timestamp) }
    : undefined;
}

/** The hash of the transaction that this account sent with this nonce, if it is in this block. */
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
