/** Why an outbound request has no answer. The kind is all the outside may learn. */
export type OutboundFailure =
  /** The target is one we do not talk to; no byte was sent. */
  | "blocked"
  /** No connection, or no HTTP on it. */
  | "unreachable"
  /** The time allowed ran out. */
  | "timeout"
  /** Larger than we accept, in headers, on the wire or unpacked. */
  | "too_large"
  /** Compressed in a way that does not unpack. */
  | "undecodable";

/**
 * The sentences say the same for a closed port and for one that speaks something else, and the
 * same for every forbidden address: the service must not serve as a port scanner. The reason
 * (`cause`) goes to the log only.
 */
const MESSAGES: Record<OutboundFailure, string> = {
  blocked: "This URL cannot be fetched: only public http(s) addresses are allowed",
  unreachable: "The target could not be reached, or did not answer in HTTP",
  timeout: "The target did not answer in time",
  too_large: "The target's answer is larger than allowed",
  undecodable: "The target's answer could not be decompressed",
};

export class OutboundError extends Error {
  readonly failure: OutboundFailure;

  constructor(failure: OutboundFailure, options: { detail?: string; cause?: unknown } = {}) {
    super(options.detail ?? MESSAGES[failure], { cause: options.cause });
    this.name = "OutboundError";
    this.failure = failure;
  }
}

const TIMEOUT_CODES = new Set([
  "UND_ERR_CONNECT_TIMEOUT",
  "UND_ERR_HEADERS_TIMEOUT",
  "UND_ERR_BODY_TIMEOUT",
  "ETIMEDOUT",
]);
const SIZE_CODES = new Set(["UND_ERR_HEADERS_OVERFLOW", "UND_ERR_RES_EXCEEDED_MAX_SIZE"]);

/** Whatever undici, the socket or the resolver threw, in our five words. */
export function toOutboundError(error: unknown): OutboundError {
  for (let cause = error; cause instanceof Error; cause = cause.cause) {
    if (cause instanceof OutboundError) return cause;
    const code = "code" in cause && typeof cause.code === "string" ? cause.code : "";
    if (TIMEOUT_CODES.has(code) || cause.name === "TimeoutError")
      return new OutboundError("timeout", { cause: error });
    if (SIZE_CODES.has(code)) return new OutboundError("too_large", { cause: error });
    // Several addresses were tried: one judgement for all of them.
    if (cause instanceof AggregateError && cause.errors.length > 0)
      return toOutboundError(cause.errors[0]);
  }
  return new OutboundError("unreachable", { cause: error });
}
