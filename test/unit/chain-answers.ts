// A chain as a list of transactions, nodes that answer JSON-RPC from it (also late, pruned or wrong), and the context of the
// settlement engine around them.
import { decodeFunctionData, encodeFunctionResult, multicall3Abi, type Hex } from "viem";
import type { RpcLog } from "../../server/core/abi.ts";
import type { NetworkFacts } from "../../server/core/networks.ts";
import { TIMINGS } from "../../server/core/timings.ts";
import { ChainRefusal, ChainUnreachable } from "../../server/infra/chain/errors.ts";
import type { RpcReceipt } from "../../server/infra/chain/contracts.ts";
import type { Caller } from "../../server/infra/chain/rpc.ts";
import type { EngineContext } from "../../server/plugins/settlement/context.ts";
import type { SettlementColumns } from "../../server/plugins/settlement/store.ts";
import type { SettlementRecord } from "../../server/plugins/settlement/types.ts";
import { ARC } from "./payment-samples.ts";

export type Log = Pick<RpcLog, "address" | "topics" | "data">;

export interface Transaction {
  hash: Hex;
  block: bigint;
  logs?: Log[];
  /** Its sender and nonce, and its call. */
  from?: string;
  nonce?: bigint;
  sent?: { to: string; data: Hex };
  status?: Hex;
  gasUsed?: bigint;
}

export interface World {
  head?: bigint;
  transactions?: Transaction[];
  /** The block in which each authorization ended, by its nonce; none for "mute": the contract returns no state. */
  ended?: Record<string, bigint | "mute">;
  /** The time of a block is twice its number, unless it is here. */
  times?: Record<string, bigint>;
  /** Accounts with contract code. */
  coded?: string[];
  /** States of blocks before this one are gone. */
  prunedBefore?: bigint;
}

/** What a node answers instead of the truth: undefined for the truth. An error is thrown. */
export type Lie = (method: string, params: unknown[]) => unknown;
export const GONE = Symbol("null");

export const hashOfBlock = (number: bigint): Hex => `0x${number.toString(16).padStart(64, "b")}`;
export const tag = (number: bigint): Hex => `0x${number.toString(16)}`;
const wordOf = (value: bigint): Hex => `0x${value.toString(16).padStart(64, "0")}`;
const timeOf = ({ times }: World, number: bigint): bigint => times?.[String(number)] ?? number * 2n;

const receiptOf = ({ hash, block, logs = [], status, gasUsed }: Transaction): RpcReceipt => ({
  transactionHash: hash,
  blockNumber: tag(block),
  blockHash: hashOfBlock(block),
  status: status ?? "0x1",
  gasUsed: tag(gasUsed ?? 50_000n),
  logs: logs.map((log) => ({
    ...log,
    transactionHash: hash,
    blockNumber: tag(block),
    blockHash: hashOfBlock(block),
  })),
});

const isMatch = (
  log: Log,
  { address, topics }: { address: string; topics: (Hex | Hex[])[] },
): boolean =>
  log.address === address &&
  topics.every((wanted, index) => [wanted].flat().includes(log.topics[index] ?? "0x"));

/** The true answer. */
export function answer(world: World, method: string, params: unknown[]): unknown {
  const head = world.head ?? 100n;
  const mined = (world.transactions ?? []).filter(({ block }) => block <= head);
  const byHash = mined.find(({ hash }) => hash === params[0]);
  switch (method) {
    case "eth_getTransactionReceipt":
      return byHash ? receiptOf(byHash) : null;
    case "eth_getTransactionByHash":
      return byHash ? { to: byHash.sent?.to ?? null, input: byHash.sent?.data ?? "0x" } : null;
    case "eth_getBlockReceipts":
      return mined.filter(({ block }) => tag(block) === params[0]).map(receiptOf);
    case "eth_getBlockByNumber": {
      const number = BigInt(params[0] as Hex);
      if (number > head) return null;
      const inside = mined.filter(({ block }) => block === number);
      const transactions = inside.map(({ hash, from, nonce }) =>
        params[1] === true
          ? { hash, from: from ?? `0x${"00".repeat(20)}`, nonce: tag(nonce ?? 0n) }
          : hash,
      );
      return { hash: hashOfBlock(number), timestamp: tag(timeOf(world, number)), transactions };
    }
    case "eth_getLogs": {
      const [filter] = params as [
        { address: string; topics: (Hex | Hex[])[]; fromBlock: Hex; toBlock: Hex },
      ];
      return mined
        .filter(({ block }) => block >= BigInt(filter.fromBlock) && block <= BigInt(filter.toBlock))
        .flatMap((one) => receiptOf(one).logs)
        .filter((log) => isMatch(log, filter));
    }
    case "eth_getTransactionCount": {
      const at = stateAt(world, params[1]);
      const own = mined.filter(({ from, block }) => from === params[0] && block <= at);
      return tag(own.reduce((most, { nonce = 0n }) => (nonce >= most ? nonce + 1n : most), 0n));
    }
    case "eth_call":
      return called(world, params[0] as { to?: string; data: Hex }, params[1]);
    default:
      throw new Error(`no answer to ${method}`);
  }
}

function stateAt(world: World, at: unknown): bigint {
  const head = world.head ?? 100n;
  const number = at === "latest" ? head : BigInt(at as Hex);
  if (number > head) throw new ChainRefusal("header not found", -32000, undefined);
  if (number < (world.prunedBefore ?? 0n))
    throw new ChainRefusal("missing trie node", -32000, undefined);
  return number;
}

function called(world: World, { to, data }: { to?: string; data: Hex }, at: unknown): Hex {
  const block = stateAt(world, at);
  if (to === undefined) {
    const words = data.slice(2 + 72).match(/.{64}/g) ?? [];
    const sizes = words.map((word) => (world.coded?.includes(`0x${word.slice(24)}`) ? 1n : 0n));
    return `0x${sizes.map((size) => wordOf(size).slice(2)).join("")}`;
  }
  const { args } = decodeFunctionData({ abi: multicall3Abi, data });
  const result = (args[0] as readonly { callData: Hex }[]).map(({ callData }) => {
    const returnData = stateOf(world, callData.slice(74), block);
    return { success: true, returnData };
  });
  return encodeFunctionResult({ abi: multicall3Abi, functionName: "aggregate3", result });
}

/** The state of a token's authorization, or the word of Permit2's bitmap. */
function stateOf({ ended = {} }: World, word: string, block: bigint): Hex {
  let bits = 0n;
  for (const [nonce, at] of Object.entries(ended)) {
    const isPermit2 = nonce.startsWith("permit2:");
    const value = BigInt(nonce.replace("permit2:", ""));
    if ((isPermit2 ? value >> 8n : value) !== BigInt(`0x${word}`)) continue;
    if (at === "mute") return "0x";
    if (block >= at) bits |= isPermit2 ? 1n << (value & 255n) : 1n;
  }
  return wordOf(bits);
}

export const storedAs = ({
  authorization,
  ...row
}: SettlementRecord): Partial<SettlementColumns> => ({
  id: row.id,
  kind: row.kind,
  agent_id: row.agentId,
  chain_id: BigInt(authorization.chainId),
  asset: authorization.asset,
  from_address: authorization.from,
  to_address: authorization.to,
  value: authorization.value,
  valid_after: authorization.validAfter,
  valid_before: authorization.validBefore,
  nonce: authorization.nonce,
  terms: authorization.terms ?? null,
  signature: Buffer.from(authorization.signature.slice(2), "hex"),
  status: row.status,
  tx_hash: row.txHash,
  accepted_block: row.acceptedBlock,
  final_at: null,
  cancel_signature: null,
});

export interface Surroundings {
  /** One view of each endpoint; the first answers ordinary calls. */
  endpoints?: Lie[];
  network?: Partial<NetworkFacts>;
  /** Hashes of our own transactions, and of those that carried the authorization. */
  ours?: Hex[];
  carried?: Hex[];
  open?: SettlementRecord;
  alike?: SettlementRecord[];
  search?: { spanBlocks: bigint; spansPerRound: number };
  /** The head that this process knows; "unknown" until it refreshes. */
  known?: bigint | "unknown";
}

export interface Noted {
  calls: [string, unknown[]][];
  searches: unknown[][];
  errors: [object, string][];
  warnings: [object, string][];
  metrics: unknown[][];
  suspected: number;
  /** How often every endpoint was queried. */
  witnessed: number;
}

/** A context of the engine on this world, and what the engine did with it. */
export function contextOf(
  world: World,
  around: Surroundings = {},
): { ctx: EngineContext; noted: Noted } {
  const noted: Noted = {
    calls: [],
    searches: [],
    errors: [],
    warnings: [],
    metrics: [],
    suspected: 0,
    witnessed: 0,
  };
  const endpoints = around.endpoints ?? [() => undefined];
  const callers = endpoints.map((lie): Caller => ({
    call: async <T>(method: string, params: unknown[]) => {
      const said = lie(method, params);
      if (said instanceof Error) throw said;
      return (said === GONE ? null : (said ?? answer(world, method, params))) as T;
    },
  }));
  const head = () => {
    const number = typeof around.known === "bigint" ? around.known : (world.head ?? 100n);
    const timestampSeconds = timeOf(world, number);
    return { number, hash: hashOfBlock(number), timestampSeconds, seenAtMs: Infinity };
  };
  const rows = (text: string, values: unknown[]): unknown[] => {
    if (text.includes("settlement_transactions"))
      return (around.carried ?? []).map((hash) => ({ hash }));
    if (text.includes("relayer_attempts"))
      return around.ours?.includes(values[0] as Hex) ? [{}] : [];
    if (text.includes("JOIN settlements r")) return (around.alike ?? []).map(storedAs);
    if (text.includes("searched_up = $5")) noted.searches.push(values.slice(4));
    const { open } = around;
    if (text.includes("FROM settlements") && open && open.id === values[0]) return [storedAs(open)];
    return [];
  };
  const parts = {
    network: { ...ARC, inclusionDepth: 1, confirmations: 1, ...around.network },
    heads: {
      head: around.known === "unknown" ? undefined : head(),
      refresh: async () => head(),
    },
    rpc: {
      endpoints: callers.length,
      call: async (method: string, params: unknown[]) => {
        noted.calls.push([method, params]);
        return callers[0]?.call(method, params);
      },
      witnesses: async <T>(query: (endpoint: Caller) => Promise<T>) => {
        noted.witnessed += 1;
        const results = await Promise.allSettled(callers.map(query));
        const answers = results.flatMap((one) => (one.status === "fulfilled" ? [one.value] : []));
        return { answers, needed: Math.min(callers.length, 2) };
      },
      suspectEndpoint: () => {
        noted.suspected += 1;
      },
    },
    pool: {
      query: async (query: string | { text: string; values: unknown[] }, values: unknown[] = []) =>
        typeof query === "string"
          ? { rows: rows(query, values) }
          : { rows: rows(query.text, query.values) },
    },
    search: around.search ?? { spanBlocks: 2_000n, spansPerRound: 25 },
    timings: TIMINGS,
    log: {
      info: () => undefined,
      warn: (fields: object, text: string) => noted.warnings.push([fields, text]),
      error: (fields: object, text: string) => noted.errors.push([fields, text]),
    },
    meter: new Proxy(
      {},
      {
        get:
          (_, name) =>
          (...args: unknown[]) =>
            noted.metrics.push([name, ...args]),
      },
    ),
  };
  return { ctx: parts as unknown as EngineContext, noted };
}

export const unreachable = (): Error => new ChainUnreachable("no RPC endpoint answered");
