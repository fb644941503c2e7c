// Answers of a lagging node and of a denying node, for rpc-proxy.ts.
import {
  decodeFunctionData,
  decodeFunctionResult,
  encodeFunctionResult,
  multicall3Abi,
  parseAbi,
  toFunctionSelector,
  type Hex,
} from "viem";
import { MULTICALL3 } from "../../server/local/chain-contracts.ts";

/** How far behind: some blocks, some time, or stuck at a block. */
export type Age = { blocks: number } | { ms: number } | { atBlock: number };

export interface RpcAnswer {
  result?: unknown;
  error?: { code: number; message: string; data?: unknown };
}
type CallNode = (method: string, params: unknown[]) => Promise<RpcAnswer>;

const LOOK_EVERY_MS = 40;
const REMEMBERED_MS = 120_000;

/** Polls for the newest block all the time and records when it changed, so that "6 seconds ago" can be answered later. */
export class HeadHistory {
  readonly #callNode: CallNode;
  readonly #seen: { atMs: number; number: number }[] = [];
  #stopped = false;

  constructor(callNode: CallNode) {
    this.#callNode = callNode;
  }

  async start(): Promise<void> {
    await this.#look();
    if (!this.#stopped) setTimeout(() => void this.start(), LOOK_EVERY_MS).unref();
  }

  stop(): void {
    this.#stopped = true;
  }

  /** The newest block at that time; before the oldest record, the oldest one. */
  asOf(atMs: number): number | undefined {
    return (this.#seen.findLast((entry) => entry.atMs <= atMs) ?? this.#seen[0])?.number;
  }

  async #look(): Promise<void> {
    const head = await headOf(this.#callNode).catch(() => undefined); // The node may be unreachable.
    const atMs = performance.now();
    if (head !== undefined && head !== this.#seen.at(-1)?.number)
      this.#seen.push({ atMs, number: head });
    // Keep the last entry before the limit: it was the newest block until the next entry.
    while ((this.#seen[1]?.atMs ?? atMs) < atMs - REMEMBERED_MS) this.#seen.shift();
  }
}

async function headOf(callNode: CallNode): Promise<number> {
  return Number((await callNode("eth_blockNumber", [])).result);
}

/** The newest block for a node this far behind; never a block that the chain does not have (any more). */
export async function heightOf(age: Age, heads: HeadHistory, callNode: CallNode): Promise<number> {
  const head = await headOf(callNode);
  if ("atBlock" in age) return Math.min(age.atBlock, head);
  if ("blocks" in age) return Math.max(head - age.blocks, 0);
  return Math.min(heads.asOf(performance.now() - age.ms) ?? head, head);
}

/** The position of the block parameter for each method. */
const BLOCK_PARAMETER: Record<string, number> = {
  eth_call: 1,
  eth_estimateGas: 1,
  eth_createAccessList: 1,
  eth_getBalance: 1,
  eth_getCode: 1,
  eth_getTransactionCount: 1,
  eth_feeHistory: 1,
  eth_getStorageAt: 2,
  eth_getProof: 2,
};
const UNKNOWN_BLOCK = { error: { code: -32000, message: "header not found" } };

/** The answer of a node whose newest block is `height`. */
export async function seenFrom(
  height: number,
  method: string,
  params: unknown[],
  callNode: CallNode,
): Promise<RpcAnswer> {
  switch (method) {
    case "eth_blockNumber":
      return { result: hex(height) };
    case "eth_getTransactionReceipt":
    case "eth_getBlockByHash":
      return unlessNewer(height, await callNode(method, params));
    case "eth_getBlockByNumber":
      return isTag(params[0])
        ? callNode(method, [tagAt(height, params[0]), ...params.slice(1)])
        : unlessNewer(height, await callNode(method, params));
    case "eth_getTransactionByHash":
      return asPending(height, await callNode(method, params));
    case "eth_getLogs":
      return logsFrom(height, params, callNode);
    default: {
      const at = BLOCK_PARAMETER[method];
      return at === undefined
        ? callNode(method, params)
        : stateFrom(height, method, params, at, callNode);
    }
  }
}

async function stateFrom(
  height: number,
  method: string,
  params: unknown[],
  at: number,
  callNode: CallNode,
): Promise<RpcAnswer> {
  const block = params[at] ?? "latest";
  // A lagging node still has the same pending transactions.
  if (method === "eth_getTransactionCount" && block === "pending") return callNode(method, params);
  const known = params.slice(0, at);
  if (isTag(block))
    return callNode(method, [...known, tagAt(height, block), ...params.slice(at + 1)]);
  return (await numberOf(block, callNode)) > height ? UNKNOWN_BLOCK : callNode(method, params);
}

async function logsFrom(height: number, params: unknown[], callNode: CallNode): Promise<RpcAnswer> {
  const filter = (params[0] ?? {}) as { fromBlock?: Hex; toBlock?: Hex; blockHash?: Hex };
  if (filter.blockHash !== undefined)
    return (await numberOf({ blockHash: filter.blockHash }, callNode)) > height
      ? { error: { code: -32000, message: "unknown block" } }
      : callNode("eth_getLogs", params);
  const bound = (block: Hex | undefined): number =>
    isTag(block ?? "latest") ? Number(tagAt(height, block ?? "latest")) : Number(block);
  const from = bound(filter.fromBlock);
  if (from > height) return { result: [] };
  const to = Math.min(bound(filter.toBlock), height);
  return callNode("eth_getLogs", [{ ...filter, fromBlock: hex(from), toBlock: hex(to) }]);
}

function unlessNewer(height: number, answer: RpcAnswer): RpcAnswer {
  return minedAt(answer) > height ? { result: null } : answer;
}

function asPending(height: number, answer: RpcAnswer): RpcAnswer {
  if (minedAt(answer) <= height) return answer;
  const unmined = { blockHash: null, blockNumber: null, transactionIndex: null };
  return { result: { ...(answer.result as object), ...unmined } };
}

/** The block number of a receipt, transaction or block; -1 if it is not mined or does not exist. */
function minedAt(answer: RpcAnswer): number {
  const found = answer.result as { blockNumber?: Hex | null; number?: Hex } | null | undefined;
  const number = found?.blockNumber ?? found?.number;
  return number === undefined ? -1 : Number(number);
}

/** Infinite for a block that no node has. */
async function numberOf(block: unknown, callNode: CallNode): Promise<number> {
  if (typeof block === "string") return Number(block);
  const { blockNumber, blockHash } = block as { blockNumber?: Hex; blockHash?: Hex };
  if (blockNumber !== undefined) return Number(blockNumber);
  const number = minedAt(await callNode("eth_getBlockByHash", [blockHash, false]));
  return number < 0 ? Number.POSITIVE_INFINITY : number;
}

const isTag = (block: unknown): boolean => typeof block === "string" && !block.startsWith("0x");
/** `safe` and `finalized` too: no test needs their lag to differ from the head's. */
const tagAt = (height: number, tag: unknown): Hex => hex(tag === "earliest" ? 0 : height);
const hex = (number: number): Hex => `0x${number.toString(16)}`;

const NOT_THERE = new Set(["eth_getTransactionReceipt", "eth_getTransactionByHash"]);
const STATE = parseAbi(["function authorizationState(address,bytes32) view returns (bool)"]);
const STATE_SELECTOR = toFunctionSelector(STATE[0]);
const UNUSED: Hex = `0x${"0".repeat(64)}`;

/** Denies receipts, logs and used authorizations, whatever the true answer. */
export function denied(method: string, params: unknown[], truth: RpcAnswer): RpcAnswer {
  if (truth.error) return truth;
  if (NOT_THERE.has(method)) return { result: null };
  if (method === "eth_getLogs") return { result: [] };
  if (method !== "eth_call") return truth;
  const { to, data, input } = params[0] as { to?: Hex; data?: Hex; input?: Hex };
  const calldata = data ?? input ?? "0x";
  if (calldata.startsWith(STATE_SELECTOR)) return { result: UNUSED };
  if (to?.toLowerCase() !== MULTICALL3.toLowerCase()) return truth;
  return { result: deniedWithin(calldata, truth.result as Hex) };
}

/** The same inside an aggregate: its other calls keep their results. */
function deniedWithin(calldata: Hex, answer: Hex): Hex {
  const { functionName, args } = decodeFunctionData({ abi: multicall3Abi, data: calldata });
  if (functionName !== "aggregate3") return answer;
  const results = decodeFunctionResult({ abi: multicall3Abi, functionName, data: answer });
  return encodeFunctionResult({
    abi: multicall3Abi,
    functionName,
    result: results.map((result, index) =>
      args[0][index]?.callData.startsWith(STATE_SELECTOR) === true
        ? { ...result, returnData: UNUSED }
        : result,
    ),
  });
}
