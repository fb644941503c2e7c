/**
 * Proves with the seller's own node whether an EIP-3009 authorization was settled. A missing answer or an empty log
 * proves nothing.
 */
import { isRecord } from "./foreign-json.ts";

/** An authorization, and the transfer that it must have made. */
export interface ExpectedTransfer {
  /** CAIP-2 id. */
  network: string;
  asset: string;
  from: string;
  to: string;
  /** Atomic units. */
  value: string;
  nonce: string;
  validBeforeSeconds: number;
}

export type ChainProof =
  | { kind: "settled"; transaction: string }
  /** It was not used while it was valid, so it never settles. */
  | { kind: "expired" }
  | { kind: "unknown" };

/** The event `AuthorizationUsed(address,bytes32)`. */
const USED_EVENT = "0x98de503528ee59b575ef0c0a2576a82497bfc029a5685b209e9ec333479b10a5";
/** The event `Transfer(address,address,uint256)`. */
const TRANSFER_EVENT = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef";
/** The function `authorizationState(address,bytes32)`. */
const STATE_FUNCTION = "0xe94a0102";

const RPC_TIMEOUT_MS = 5_000;
/** Enough for ten minutes of blocks on the fastest networks, and few enough for public nodes. */
const SEARCHED_BLOCKS = 5_000n;
/** Tolerated difference between this process's clock and the chain's. */
const CLOCK_SKEW_SECONDS = 10;
/** An unused authorization counts as expired this long after its end: deeper than reorganisations reach. */
const EXPIRED_FOR_SECONDS = 60;

/**
 * `sinceMs`: when this payment was first sent to a facilitator. An earlier use of the nonce is an earlier purchase, which
 * proves nothing for this one.
 */
export async function proveTransfer(
  rpcUrl: string,
  expected: ExpectedTransfer,
  sinceMs: number,
): Promise<ChainProof> {
  const rpc = (method: string, params: unknown[]) => callNode(rpcUrl, method, params);
  const chainId = BigInt(String(await rpc("eth_chainId", [])));
  if (`eip155:${chainId}` !== expected.network)
    throw new Error(`the node for ${expected.network} serves eip155:${chainId}`);
  const head = await rpc("eth_getBlockByNumber", ["latest", false]);
  if (!isRecord(head)) return { kind: "unknown" };
  const block = String(head["number"]);
  const state = await rpc("eth_call", [
    { to: expected.asset, data: `${STATE_FUNCTION}${word(expected.from)}${word(expected.nonce)}` },
    block,
  ]);
  const flag = BigInt(String(state));
  if (flag === 0n) {
    const isOver = Number(head["timestamp"]) > expected.validBeforeSeconds + EXPIRED_FOR_SECONDS;
    return isOver ? { kind: "expired" } : { kind: "unknown" };
  }
  if (flag !== 1n) return { kind: "unknown" };
  const transaction = await transactionThatUsed(rpc, expected, BigInt(block));
  return transaction === undefined
    ? { kind: "unknown" }
    : proofIn(rpc, transaction, expected, sinceMs);
}

type Rpc = (method: string, params: unknown[]) => Promise<unknown>;

async function transactionThatUsed(
  rpc: Rpc,
  { asset, from, nonce }: ExpectedTransfer,
  head: bigint,
): Promise<string | undefined> {
  const first = head > SEARCHED_BLOCKS ? head - SEARCHED_BLOCKS : 0n;
  const logs = await rpc("eth_getLogs", [
    {
      address: asset,
      topics: [USED_EVENT, `0x${word(from)}`, nonce],
      fromBlock: hex(first),
      toBlock: hex(head),
    },
  ]);
  const log: unknown = Array.isArray(logs) ? logs[0] : undefined;
  const hash = isRecord(log) ? log["transactionHash"] : undefined;
  return typeof hash === "string" ? hash : undefined;
}

/** One transaction may hold many transfers: the one of this nonce is the token's next event. */
async function proofIn(
  rpc: Rpc,
  transaction: string,
  expected: ExpectedTransfer,
  sinceMs: number,
): Promise<ChainProof> {
  const receipt = await rpc("eth_getTransactionReceipt", [transaction]);
  if (!isRecord(receipt) || receipt["status"] !== "0x1") return { kind: "unknown" };
  const block = await rpc("eth_getBlockByHash", [receipt["blockHash"], false]);
  if (!isRecord(block)) return { kind: "unknown" };
  if (Number(block["timestamp"]) + CLOCK_SKEW_SECONDS < sinceMs / 1_000) return { kind: "unknown" };
  const events = tokenEvents(receipt["logs"], expected.asset);
  const used = events.findIndex(
    ({ topics }) =>
      topics[0] === USED_EVENT &&
      topics[1] === `0x${word(expected.from)}` &&
      topics[2] === expected.nonce.toLowerCase(),
  );
  const next = events[used + 1];
  if (used < 0 || !next) return { kind: "unknown" };
  const isExpected =
    next.topics[0] === TRANSFER_EVENT &&
    next.topics[1] === `0x${word(expected.from)}` &&
    next.topics[2] === `0x${word(expected.to)}` &&
    BigInt(next.data) === BigInt(expected.value);
  return isExpected ? { kind: "settled", transaction } : { kind: "unknown" };
}

function tokenEvents(logs: unknown, asset: string): { topics: string[]; data: string }[] {
  if (!Array.isArray(logs)) return [];
  return logs.flatMap((log: unknown) => {
    if (!isRecord(log) || String(log["address"]).toLowerCase() !== asset.toLowerCase()) return [];
    const topics = Array.isArray(log["topics"]) ? log["topics"] : [];
    return [
      { topics: topics.map((topic) => String(topic).toLowerCase()), data: String(log["data"]) },
    ];
  });
}

async function callNode(url: string, method: string, params: unknown[]): Promise<unknown> {
  const response = await fetch(url, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ jsonrpc: "2.0", id: 1, method, params }),
    signal: AbortSignal.timeout(RPC_TIMEOUT_MS),
  });
  const body: unknown = await response.json();
  if (!isRecord(body) || !("result" in body)) throw new Error(`the node refused ${method}`);
  return body["result"];
}

/** 32 bytes in lower case, without `0x`. */
const word = (value: string): string => value.slice(2).toLowerCase().padStart(64, "0");
const hex = (value: bigint): string => `0x${value.toString(16)}`;
