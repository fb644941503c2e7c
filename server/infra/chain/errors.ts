/**
 * The one place that knows what a chain error means. Nodes agree on little: some send codes, most send
 * English. Everything else asks here and gets a word.
 */
import type { Hex } from "viem";

export type ChainErrorKind =
  /** No usable answer: down, timed out, rate limited, broken. Whether a write arrived is unknown. */
  | "unreachable"
  /** The node has this very transaction: as good as accepted. Proves nothing until it is mined. */
  | "already_known"
  | "nonce_too_low"
  | "nonce_too_high"
  /** Another transaction of this nonce waits there, and ours does not outbid it. */
  | "replacement_underpriced"
  /** The fee is below what the node or the block takes now. */
  | "fee_too_low"
  /** The sender cannot pay the gas. */
  | "insufficient_gas_money"
  | "gas_limit"
  | "method_missing"
  /** A waiting send gave up waiting; the transaction is in the node's pool. */
  | "sent_not_mined"
  | "reverted"
  | "rejected";

export interface ChainErrorVerdict {
  kind: ChainErrorKind;
  message: string;
}

/** Our transport throws it when no endpoint gave a usable answer. */
export class ChainUnreachable extends Error {
  override name = "ChainUnreachable";
}

/** A JSON-RPC error a node answered with. */
export class ChainRefusal extends Error {
  override name = "ChainRefusal";
  readonly code: number;
  readonly data: unknown;
  constructor(message: string, code: number, data: unknown) {
    super(message);
    this.code = code;
    this.data = data;
  }
}

const TRANSPORT_NAMES = new Set([
  "ChainUnreachable",
  "HttpRequestError",
  "TimeoutError",
  "WebSocketRequestError",
  "SocketClosedError",
  "LimitExceededRpcError",
  "AbortError",
]);
const TRANSPORT_CODES = /^(ECONN|ETIMEDOUT|ENOTFOUND|EPIPE|EAI_|EHOST|UND_ERR)/;
/**
 * Answers that speak of the endpoint, not of the call: another endpoint may do better. A node that does not
 * know the block asked for, yet or any more, has not answered.
 */
const ENDPOINT_CODES = new Set([-32005, -32016, -32097, 429]);
const ENDPOINT_TEXT =
  /rate limit|too many requests|limit exceeded|temporarily unavailable|header not found|block not found|unknown block|BlockOutOfRange|block .*out of range|missing trie node|state .*(not available|unavailable|pruned)|no backend|upstream|overloaded|internal error$/i;

/** In order: the first that matches wins. */
const BY_TEXT: readonly [RegExp, ChainErrorKind][] = [
  [
    /already known|already imported|known transaction|alreadyknown|already in mempool/i,
    "already_known",
  ],
  [
    /nonce too low|nonce is too low|old nonce|invalid nonce.*expected|nonce.*already been used/i,
    "nonce_too_low",
  ],
  [/nonce too high|nonce gap|nonce.*too far/i, "nonce_too_high"],
  [
    /replacement.*underpriced|underpriced.*replacement|gas price too low to replace/i,
    "replacement_underpriced",
  ],
  [
    /underpriced|max fee per gas less than|fee cap less than|feecap|max fee.*below|gas price.*(low|below)|tip.*below/i,
    "fee_too_low",
  ],
  [
    /insufficient (funds|balance).*(gas|value|transfer|cost)|insufficient funds|overshot/i,
    "insufficient_gas_money",
  ],
  [
    /exceeds block gas limit|gas limit reached|intrinsic gas|gas limit.*(high|exceed)|cap: /i,
    "gas_limit",
  ],
  [
    /wasn't processed|was not (processed|mined|included)|added to the mempool but|confirmation timeout|timeout.*(receipt|inclusion)/i,
    "sent_not_mined",
  ],
  [
    /method.*(not|isn't).*(found|supported|available|exist)|unsupported method|unknown method/i,
    "method_missing",
  ],
  [/revert|out ?of ?gas|invalid opcode|execution error/i, "reverted"],
];

export function classifyChainError(error: unknown): ChainErrorVerdict {
  const links = chainOf(error);
  const message = links.map((link) => link.message).find((text) => text !== "") ?? "unknown error";
  const text = links.map((link) => `${link.message} ${link.details}`).join(" | ");
  const isTransport = links.some(
    (link) => TRANSPORT_NAMES.has(link.name) || TRANSPORT_CODES.test(String(link.code)),
  );
  if (isTransport) return { kind: "unreachable", message };
  if (links.some((link) => link.code === -32601 || link.code === -32004))
    return { kind: "method_missing", message };
  for (const [pattern, kind] of BY_TEXT) if (pattern.test(text)) return { kind, message };
  if (isEndpointTrouble(error)) return { kind: "unreachable", message };
  return { kind: "rejected", message };
}

/** True when the answer is about the endpoint, so that the next endpoint is worth a try. */
export function isEndpointTrouble(error: unknown): boolean {
  return chainOf(error).some(
    (link) => ENDPOINT_CODES.has(Number(link.code)) || ENDPOINT_TEXT.test(link.message),
  );
}

interface Link {
  name: string;
  message: string;
  details: string;
  code: unknown;
}

function chainOf(error: unknown): Link[] {
  const links: Link[] = [];
  let current = error;
  while (current instanceof Error && links.length < 6) {
    const { code, details } = current as { code?: unknown; details?: unknown };
    links.push({
      name: current.name,
      message: current.message,
      details: typeof details === "string" ? details : "",
      code,
    });
    current = current.cause;
  }
  return links;
}

const ERROR_STRING = "08c379a0";

/** The text of `Error(string)` in what a reverted call returned; none where it ran out of gas or gave a custom error. */
export function revertText(data: Hex): string | undefined {
  if (data.slice(2, 10) !== ERROR_STRING) return undefined;
  const length = Number(BigInt(`0x${data.slice(74, 138) || "0"}`));
  return Buffer.from(data.slice(138, 138 + length * 2), "hex").toString("utf8");
}
