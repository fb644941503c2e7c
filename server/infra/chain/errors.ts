/** Classifies chain errors, in this one place. Nodes hardly agree: some send codes, most send English text. */
import type { Hex } from "viem";

export type ChainErrorKind =
  /** No usable response: down, timed out, rate limited or broken. Whether a write arrived is unknown. */
  | "unreachable"
  /** The node already has this transaction, so it counts as accepted. Proves nothing until it is mined. */
  | "already_known"
  | "nonce_too_low"
  | "nonce_too_high"
  /** The node has another transaction with this nonce, and ours does not outbid it. */
  | "replacement_underpriced"
  /** The fee is below what the node or the block accepts now. */
  | "fee_too_low"
  /** The sender cannot pay for the gas. */
  | "insufficient_gas_money"
  | "gas_limit"
  /** The node refuses transactions whose total fee may reach this much (`--rpc.txfeecap`). */
  | "node_fee_cap"
  | "method_missing"
  /** A send that waits for the receipt timed out; the transaction is in the node's pool. */
  | "sent_not_mined"
  | "reverted"
  | "rejected";

interface ChainErrorVerdict {
  kind: ChainErrorKind;
  message: string;
}

/** Thrown by our transport when no endpoint gave a usable response. */
export class ChainUnreachable extends Error {
  override name = "ChainUnreachable";
}

/** A JSON-RPC error returned by a node. */
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
 * Errors about the endpoint and not the call, so another endpoint may succeed. A node that does not have the requested
 * block (not yet, or not any more) counts as well.
 */
const ENDPOINT_CODES = new Set([-32005, -32016, -32097, 429]);
const ENDPOINT_TEXT =
  /rate limit|too many requests|limit exceeded|temporarily unavailable|header not found|block not found|unknown block|BlockOutOfRange|block .*out of range|missing trie node|state .*(not available|unavailable|pruned)|no backend|upstream|overloaded|internal error$/i;

/** In order: the first match decides. */
const BY_TEXT: readonly [RegExp, ChainErrorKind][] = [
  [
    /already known|already imported|known transaction|alreadyknown|already in mempool/i,
    "already_known",
  ],
  [
    /nonce too low|nonce is too low|old nonce|invalid nonce.*expected|nonce.*already been used/i,
    "nonce_too_low",
  ],
  [/nonce too high|nonce gap|nonce.*too far|gapped.nonce/i, "nonce_too_high"],
  [
    /replacement.*underpriced|underpriced.*replacement|gas price too low to replace|could not replace existing|replacementnotallowed/i,
    "replacement_underpriced",
  ],
  // geth, reth, erigon: "tx fee (1.20 ether) exceeds the configured cap (1.00 ether)"; Besu: "Transaction fee cap
  // exceeded".
  [
    /(tx|transaction|gas) ?fee.*exceeds? .*cap|transaction fee cap exceeded|feecap ?exceeded|exceeds the configured cap/i,
    "node_fee_cap",
  ],
  // Text of all nodes; Nethermind: FeeTooLow, FeeTooLowToCompete; Besu: GAS_PRICE_TOO_LOW, gas price below current base
  // fee.
  [
    /underpriced|(max ?fee|fee ?cap|gas ?fee ?cap|max fee) ?(per ?gas)?[^|]*(less than|below|lower than|too low)|fee_?too_?low|gas[_ ]?price[^|]*(low|below|less)|tip[^|]*(below|too low)|tip above|base fee exceeds|feecap/i,
    "fee_too_low",
  ],
  [
    /insufficient (funds|balance).*(gas|value|transfer|cost)|insufficient_?funds|upfront_cost_exceeds_balance|upfront cost exceeds|lack of funds|doesn't have enough funds|overshot/i,
    "insufficient_gas_money",
  ],
  // Nethermind: GasLimitExceeded; Besu: EXCEEDS_BLOCK_GAS_LIMIT, INTRINSIC_GAS_EXCEEDS_GAS_LIMIT; anvil:
  // CallGasCostMoreThanGasLimit.
  [
    /exceeds[ _](the )?(block|transaction|tx|max)[ _]?(block )?gas[ _]?limit|gas limit reached|intrinsic[ _]gas|gas[ _]?limit[^|]*(high|exceed|too (low|big|large))|gas (cost )?more ?than ?gas ?limit|transaction gas limit too|tx gas limit|floor data gas|cap: /i,
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

/** Permanent refusals: the node will refuse the same bytes again, so neither waiting nor a higher fee helps. */
const FOR_GOOD: ReadonlySet<ChainErrorKind> = new Set([
  "rejected",
  "gas_limit",
  "node_fee_cap",
  "reverted",
]);
export const isPermanentRefusal = (kind: ChainErrorKind): boolean => FOR_GOOD.has(kind);

export function classifyChainError(error: unknown): ChainErrorVerdict {
  const links = chainOf(error);
  const message = links.map((link) => link.message).find((text) => text !== "") ?? "unknown error";
  const text = links.map((link) => `${link.message} ${link.details}`).join(" | ");
  const isTransport = links.some(
    (link) => TRANSPORT_NAMES.has(link.name) || TRANSPORT_CODES.test(String(link.code)),
  );
  if (isTransport) return { kind: "unreachable", message };
  for (const [pattern, kind] of BY_TEXT) if (pattern.test(text)) return { kind, message };
  // After the texts, because Besu sends -32004 when the sender cannot pay.
  if (links.some((link) => link.code === -32601 || link.code === -32004))
    return { kind: "method_missing", message };
  if (isEndpointFailure(error)) return { kind: "unreachable", message };
  return { kind: "rejected", message };
}

/** True if the error is about the endpoint, so that the next endpoint is worth a try. */
export function isEndpointFailure(error: unknown): boolean {
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

/** The return data of a reverted call. Nodes put it in one of two places, or omit it. */
export function revertData(error: unknown): Hex {
  const data = error instanceof ChainRefusal ? error.data : undefined;
  const found =
    typeof data === "object" && data !== null ? (data as { data?: unknown }).data : data;
  return typeof found === "string" && /^0x[0-9a-f]*$/i.test(found) ? (found as Hex) : "0x";
}

const ERROR_STRING = "08c379a0";

/** The revert text, or the selector of the custom error; undefined if there is neither. */
export function revertReason(data: Hex): string | undefined {
  const text = revertText(data);
  return text === undefined && data.length >= 10 ? `custom error ${data.slice(0, 10)}` : text;
}

/**
 * The text of `Error(string)` in a reverted call's return data; undefined if it ran out of gas or used a custom error.
 */
export function revertText(data: Hex): string | undefined {
  if (data.slice(2, 10) !== ERROR_STRING) return undefined;
  const length = Number(BigInt(`0x${data.slice(74, 138) || "0"}`));
  return Buffer.from(data.slice(138, 138 + length * 2), "hex").toString("utf8");
}
