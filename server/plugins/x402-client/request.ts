/**
 * Turns an agent's request into the request to the target, and defines the dependencies of the x402 client.
 */
import type { Hex } from "viem";
import {
  DEFAULT_TIMEOUT_MS,
  type OutboundRequest,
  type OutboundResponse,
} from "../../infra/outbound/outbound.ts";
import type { SIWxPayload } from "@x402/extensions/sign-in-with-x";
import type { PaidAt } from "../custody/covers.ts";
import type { SignInRequest } from "../custody/sign-in.ts";
import { OutboundError } from "../../infra/outbound/guard.ts";
import type { ListingRegistry, ListingPins } from "../listings/index.ts";
import type { NetworkFacts } from "../../core/networks.ts";
import type { IdempotencyRef } from "../guardrails/types.ts";
import type { AgentReserve, Payer } from "../payments/agent-payments.ts";
import type { KeptEvidence } from "../payments/evidence.ts";
import type { PayFlow } from "../payments/pay.ts";
import type { PaymentKey } from "../payments/payment-plan.ts";
import type { Authorization, SettlementKey } from "../../core/authorization.ts";
import type { Settlement } from "../settlement/types.ts";
import type { AnswerCache } from "./cache.ts";
import type { Lease } from "./budget.ts";
import type { FetchLedger } from "./ledger.ts";
import type { Offer, OfferedTerms } from "./offer.ts";
import { stringifyExact } from "../../core/exact-json.ts";
import { parsePayable } from "../../core/money.ts";
import { isOfTransport, type ToolCall } from "./tool-call.ts";
import { ApiError } from "../../errors.ts";

export interface FetchInput {
  url?: string;
  listingId?: string;
  /** A tool of the MCP server at `url`. */
  mcp?: ToolCall;
  method?: string;
  headers?: Record<string, string>;
  body?: unknown;
  maxAmount?: string;
  dryRun?: boolean;
  timeoutMs?: number;
  maxAge?: number;
  requestApproval?: boolean;
  reason?: string;
}

export interface FetchCaller extends Payer {
  ownerId: string;
  /** The agent's own network, preferred among equal prices. */
  network: string;
  /** "sites": requests may go only to sites on the agent's allowlist. */
  fetch: "any" | "sites";
  requestId: string | null;
  idempotency?: IdempotencyRef;
  /** Its share of memory, held until its response is sent. */
  lease: Lease;
}

/** The request to the target, the same with and without the payment proof. */
export interface TargetRequest {
  url: URL;
  method: string;
  headers: Record<string, string>;
  /** The names of the caller's headers that are not forwarded. */
  omittedHeaders: string[];
  body: string | undefined;
  timeoutMs: number;
  mcp?: ToolCall;
}

/**
 * The terms that a payment was made for, stored with it, so that another process can present the proof again.
 */
export interface PaymentTerms {
  x402Version: Offer["x402Version"];
  /** Undefined: x402. */
  protocol?: "mpp";
  accepted: OfferedTerms["raw"];
  resource?: Record<string, unknown>;
  /** The seller's signed offer for these terms, if any. */
  offered?: unknown;
}

/**
 * Payment and delivery are separate facts: the chain proves the payment, and this records what the target did.
 */
export interface DeliveryRecord {
  /** Null if no HTTP response came. */
  upstreamStatus: number | null;
  delivered: boolean;
}

/** The steps of a fetch at which a crash test stops the process. */
export type FetchFault = "submitted" | "answered" | "confirmed";

export interface ClientDeps {
  send(request: OutboundRequest): Promise<OutboundResponse>;
  networks: readonly NetworkFacts[];
  flow: Pick<PayFlow, "run" | "note" | "release">;
  agentReserve: AgentReserve;
  settlement: Pick<Settlement, "find" | "requestCancel" | "wait">;
  signCancel(
    agentId: string,
    key: Omit<SettlementKey, "from"> & Pick<Authorization, "terms">,
  ): Promise<Hex>;
  /** The wallet's signature that it has paid at this site before; undefined if it has not. */
  signIn(request: Omit<SignInRequest, "networks">): Promise<SIWxPayload | undefined>;
  /**
   * Records that this site accepts such a signature for this payment. An unsettled payment never replaces a
   * settled one.
   */
  notePaidSite(paidAt: PaidAt, paymentId: string, how: { isSettled: boolean }): Promise<void>;
  /** Whether this origin is one of the agent's allowed sites now. */
  hasSite(agentId: string, site: string): Promise<boolean>;
  recordDelivery(key: PaymentKey, seen: DeliveryRecord): Promise<void>;
  recordEvidence(key: PaymentKey, evidence: KeptEvidence): Promise<void>;
  remainingOf(agentId: string): Promise<bigint>;
  networkOf(chainId: number): string;
  listings: Pick<ListingRegistry, "forFetch" | "flag" | "countUse">;
  ledger: FetchLedger;
  cache: AnswerCache;
  /** How many bytes of a response are returned. */
  maxBytes: number;
  /** How long a fetch waits for an outcome on chain. */
  settleWaitMs: number;
  /** Does nothing in production. */
  fault(point: FetchFault): Promise<void>;
  log: { warn(fields: object, message: string): void };
}

/** From the agent's request to the request that is sent to the target. */

export interface Prepared {
  target: TargetRequest;
  maxAmountAtomic: bigint | undefined;
}

const BODYLESS = new Set(["GET", "HEAD"]);

/** Safe methods of RFC 9110: repeating the request has no effect on the target. */
export const isSafe = ({ method }: Pick<TargetRequest, "method">): boolean => BODYLESS.has(method);

/** Allowed time before a payment, in addition to the target's responses. */
const SPARE_MS_FOR_REQUEST = 30_000;
/**
 * The target may have received the request, but its response is lost: it is not sent again with the same key.
 */
const ANSWER_LOST: ReadonlySet<string> = new Set([
  "upstream_timeout",
  "upstream_error",
  "upstream_redirect",
]);

const mayHaveActed = ({ code, cause }: ApiError): boolean =>
  ANSWER_LOST.has(code) && !(cause instanceof OutboundError && cause.neverSent);

/**
 * For a request that must not be sent twice: after which errors it may have arrived, and after what time its
 * process has died.
 * A response that did not fit in memory is such an error. Missing memory for the payment is not: the target had
 * only requested payment.
 */
export const sentOnce = (
  { timeoutMs }: Pick<TargetRequest, "timeoutMs">,
  lease: Pick<Lease, "refusal">,
) => ({
  mayHaveActed: (error: ApiError) => error === lease.refusal || mayHaveActed(error),
  longestMs: 2 * timeoutMs + SPARE_MS_FOR_REQUEST,
});

const NOT_FOR_TOOLS = "cannot be used with a tool (`mcp`)";

export function assertOneTarget(input: FetchInput): void {
  if ((input.url === undefined) === (input.listingId === undefined))
    throw invalid("body", "give exactly one of url and listingId");
  if (input.mcp && input.listingId !== undefined) throw invalid("body.listingId", NOT_FOR_TOOLS);
}

export function prepare(input: FetchInput, listing: ListingPins | undefined): Prepared {
  if (input.mcp) return prepareCall(input, input.mcp);
  const source = listing?.url ?? input.url ?? "";
  if (!URL.canParse(source)) throw invalid("body.url", "is not an absolute URL");
  const method = input.method ?? listing?.method ?? "GET";
  const forwarded = forwardedHeaders(input.headers ?? {});
  if (!forwarded.ok) throw invalid("body.headers", `"${forwarded.name}" ${forwarded.reason}`);
  if (input.body !== undefined && BODYLESS.has(method))
    throw invalid("body.body", `cannot be used with ${method}`);
  const { body, contentType } = encodeBody(input.body);
  const headers = forwarded.headers;
  if (body !== undefined) headers["content-type"] ??= contentType;
  const url = new URL(source);
  url.hash = "";
  if (input.dryRun === true && input.method !== undefined && !BODYLESS.has(method))
    throw invalid("body.method", "must be GET or HEAD for a dry run");
  if (input.dryRun === true && body !== undefined)
    throw invalid("body.body", "cannot be used with a dry run");
  if (input.maxAge !== undefined && method !== "GET")
    throw invalid("body.maxAge", `can be used only with GET, not with ${method}`);
  return {
    target: {
      url,
      method,
      headers,
      omittedHeaders: forwarded.omitted,
      body,
      timeoutMs: input.timeoutMs ?? DEFAULT_TIMEOUT_MS,
    },
    maxAmountAtomic: readMaxAmount(input.maxAmount),
  };
}

/** An MCP call is not a safe method: it is sent once, like a POST. */
function prepareCall(input: FetchInput, mcp: ToolCall): Prepared {
  for (const name of ["method", "body", "maxAge"] as const)
    if (input[name] !== undefined) throw invalid(`body.${name}`, NOT_FOR_TOOLS);
  const { headers = {} } = input;
  const plain = Object.entries(headers).filter(([name]) => !isOfTransport(name));
  const { target, maxAmountAtomic } = prepare(
    { ...input, mcp: undefined, headers: Object.fromEntries(plain) },
    undefined,
  );
  const omitted = Object.keys(headers).filter(isOfTransport);
  const omittedHeaders = [...target.omittedHeaders, ...omitted];
  return { target: { ...target, method: "POST", mcp, omittedHeaders }, maxAmountAtomic };
}

/** A string is sent byte for byte; everything else as JSON, with numbers as the caller wrote them. */
function encodeBody(body: unknown): { body: string | undefined; contentType: string } {
  if (body === undefined) return { body: undefined, contentType: "" };
  if (typeof body === "string") return { body, contentType: "text/plain; charset=utf-8" };
  return { body: stringifyExact(body), contentType: "application/json" };
}

function readMaxAmount(text: string | undefined): bigint | undefined {
  if (text === undefined) return undefined;
  const parsed = parsePayable(text);
  if (!parsed.ok)
    throw new ApiError("invalid_amount", {
      detail: `body.maxAmount ${parsed.reason}`,
      extra: { errors: [{ path: "body.maxAmount", message: parsed.reason }] },
    });
  return parsed.atomic;
}

const invalid = (path: string, message: string): ApiError =>
  new ApiError("validation_failed", {
    detail: `${path} ${message}`,
    extra: { errors: [{ path, message }] },
  });

/**
 * Which of the agent's headers are forwarded to the target. Headers of the connection, other hosts, credentials
 * and payment are left out: Purser sets them itself, or they are not sent.
 */
type ForwardedHeaders =
  | { ok: true; headers: Record<string, string>; omitted: string[] }
  | { ok: false; name: string; reason: string };

const splitWords = (text: string): string[] => text.trim().split(/\s+/);

const LEFT_OUT = new Set([
  // Hop-by-hop headers (RFC 9110 section 7.6.1), and message framing.
  ...splitWords(`connection keep-alive te trailer transfer-encoding upgrade expect content-length
    content-encoding accept-encoding host http2-settings max-forwards`),
  // Credentials: an agent's secrets, including the key of this service, are not forwarded.
  ...splitWords("authorization cookie cookie2 set-cookie idempotency-key"),
  // The client's address, which only a proxy may set.
  ...splitWords("forwarded via x-real-ip true-client-ip cf-connecting-ip"),
]);
const LEFT_OUT_PREFIXES = [
  "proxy-",
  "payment-",
  "x-payment",
  "x-forwarded-",
  "sec-",
  "sign-in-with-x",
];

const MAX_HEADERS = 64;
const MAX_VALUE_LENGTH = 4_096;
/** RFC 9110 tokens. */
const NAME_PATTERN = /^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}$/;
/** Visible ASCII, with spaces only inside: no line breaks, so no header or request can be injected. */
const VALUE_PATTERN = /^(?:[\x21-\x7e](?:[\t\x20-\x7e]*[\x21-\x7e])?)?$/;
/** An agent key of this service, anywhere in a value. */
const OWN_KEY_PATTERN = /purser_[0-9A-Za-z]{8,}/;

export function forwardedHeaders(given: Record<string, string>): ForwardedHeaders {
  const entries = Object.entries(given);
  const headers = new Map<string, string>();
  const omitted: string[] = [];
  if (entries.length > MAX_HEADERS)
    return { ok: false, name: "", reason: `has more than ${MAX_HEADERS} members` };
  for (const [name, value] of entries) {
    const key = name.toLowerCase();
    if (!NAME_PATTERN.test(name)) return { ok: false, name, reason: "is not a header name" };
    if (!VALUE_PATTERN.test(value) || value.length > MAX_VALUE_LENGTH)
      return { ok: false, name, reason: "has a value that is not visible ASCII on one line" };
    if (headers.has(key)) return { ok: false, name, reason: "is given twice" };
    if (isLeftOut(key) || OWN_KEY_PATTERN.test(value)) omitted.push(name);
    else headers.set(key, value);
  }
  return { ok: true, headers: Object.fromEntries(headers), omitted };
}

const isLeftOut = (name: string): boolean =>
  LEFT_OUT.has(name) || LEFT_OUT_PREFIXES.some((prefix) => name.startsWith(prefix));
