/** Turns an agent's fetch into the request that is sent to the target, with and without the payment proof. */
import { stringifyExact } from "../../core/exact-json.ts";
import { plainWords } from "../../core/foreign-text.ts";
import { parsePayable } from "../../core/money.ts";
import { refuseField } from "../../core/refuse-field.ts";
import type { ApiError } from "../../errors.ts";
import { OutboundError } from "../../infra/outbound/guard.ts";
import {
  DEFAULT_TIMEOUT_MS,
  type OutboundRequest,
  type OutboundResponse,
} from "../../infra/outbound/outbound.ts";
import type { ListingPins } from "../listings/index.ts";
import type { Lease } from "./budget.ts";

export type SendRequest = (request: OutboundRequest) => Promise<OutboundResponse>;

/** A tool of a remote MCP server, and its arguments. */
export interface ToolCall {
  tool: string;
  arguments?: Record<string, unknown>;
}

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
  task?: string;
  requestApproval?: boolean;
  reason?: string;
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

/**
 * Whether the target may have acted on a request that failed with this error. A response that did not fit in
 * memory is such an error. Missing memory for the payment is not: the target had only requested payment.
 */
export const mayHaveActed = (error: ApiError, lease: Pick<Lease, "refusal">): boolean =>
  error === lease.refusal ||
  (ANSWER_LOST.has(error.code) && !(error.cause instanceof OutboundError && error.cause.neverSent));

/** The second attempt to send an authorization gets less time than the first. */
export const SECOND_TRY_MS = 10_000;
/** Beyond all the waits that a fetch makes after it reserved: then its process has died. */
const ABANDONED_AFTER_MS = 5_000;

/** The longest time that a fetch runs: after it reserved, and before, if it holds its key because a target may act on it. */
export function longestFetch(
  input: Pick<FetchInput, "timeoutMs" | "method" | "mcp" | "listingId">,
  settleWaitMs: number,
): { longestMs: number; longestClaimMs?: number } {
  const { timeoutMs = DEFAULT_TIMEOUT_MS, method, mcp, listingId } = input;
  // Without a method of its own, a listing's decides, which is not read yet.
  const isSurelySafe =
    !mcp && (method === undefined ? listingId === undefined : isSafe({ method }));
  const longestMs =
    timeoutMs + Math.min(timeoutMs, SECOND_TRY_MS) + settleWaitMs + ABANDONED_AFTER_MS;
  return isSurelySafe
    ? { longestMs }
    : { longestMs, longestClaimMs: 2 * timeoutMs + SPARE_MS_FOR_REQUEST };
}

/** How long a fetch may use a payment channel. */
export const busySecondsOf = (
  input: Parameters<typeof longestFetch>[0],
  settleWaitMs: number,
): number => Math.ceil(longestFetch(input, settleWaitMs).longestMs / 1_000);

/** Headers that belong to the MCP transport, which the caller cannot set. */
const isOfTransport = (header: string): boolean =>
  /^(mcp-.*|accept|content-type|last-event-id)$/i.test(header);

const NOT_FOR_TOOLS = "cannot be used with a tool (`mcp`)";

/** Names the tool for the owner, because the URL alone does not show it. */
export function readableTarget(url: URL, mcp: ToolCall | undefined): string {
  return mcp ? `${url.href}#${encodeURIComponent(plainWords(mcp.tool, 128))}` : url.href;
}

export function assertOneTarget(input: FetchInput): void {
  if ((input.url === undefined) === (input.listingId === undefined))
    throw invalid("body", "must have exactly one of url and listingId");
  if (input.mcp && input.listingId !== undefined) throw invalid("body.listingId", NOT_FOR_TOOLS);
}

/** `localhost:3000/data` is a valid URL whose scheme is "localhost". */
const WITHOUT_SCHEME = /^[\w.-]+:\d+(?:[/?#]|$)/;

export function prepare(input: FetchInput, listing: ListingPins | undefined): Prepared {
  if (input.mcp) return prepareCall(input, input.mcp);
  const source = listing?.url ?? input.url ?? "";
  if (!URL.canParse(source) || WITHOUT_SCHEME.test(source))
    throw invalid("body.url", 'needs its scheme, such as "https://api.example.com/data"');
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
  if (!parsed.ok) throw refuseField("invalid_amount", "body.maxAmount", parsed.reason);
  return parsed.atomic;
}

const invalid = (path: string, message: string): ApiError =>
  refuseField("validation_failed", path, message);

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
/** A key or token of this service, anywhere in a value. */
const OWN_KEY_PATTERN = /purser_(?:[a-z]{1,6}[0-9]{0,3}_){0,2}[0-9A-Za-z]{8,}/;

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
