/** From the agent's request to the one that goes to the target. */
import { parsePayable } from "../../core/money.ts";
import { ApiError } from "../../errors.ts";
import { DEFAULT_TIMEOUT_MS } from "../../infra/outbound/outbound.ts";
import type { ListingPins } from "../listings/book.ts";
import type { FetchInput, TargetRequest } from "./types.ts";

export interface Prepared {
  target: TargetRequest;
  maxAmountAtomic: bigint | undefined;
}

const BODYLESS = new Set(["GET", "HEAD"]);

export function assertOneTarget(input: FetchInput): void {
  if ((input.url === undefined) === (input.listingId === undefined))
    throw invalid("body", "give exactly one of url and listingId");
}

export function prepare(input: FetchInput, listing: ListingPins | undefined): Prepared {
  const source = listing?.url ?? input.url ?? "";
  if (!URL.canParse(source)) throw invalid("body.url", "is not an absolute URL");
  const method = input.method ?? listing?.method ?? "GET";
  const forwarded = forwardedHeaders(input.headers ?? {});
  if (!forwarded.ok) throw invalid("body.headers", `"${forwarded.name}" ${forwarded.reason}`);
  if (input.body !== undefined && BODYLESS.has(method))
    throw invalid("body.body", `is not sent with ${method}`);
  const { body, contentType } = encodeBody(input.body);
  const headers = forwarded.headers;
  if (body !== undefined) headers["content-type"] ??= contentType;
  const url = new URL(source);
  url.hash = "";
  return {
    target: { url, method, headers, body, timeoutMs: input.timeoutMs ?? DEFAULT_TIMEOUT_MS },
    maxAmountAtomic: readMaxAmount(input.maxAmount),
  };
}

/** A string is sent as it is; everything else is JSON. */
function encodeBody(body: unknown): { body: string | undefined; contentType: string } {
  if (body === undefined) return { body: undefined, contentType: "" };
  if (typeof body === "string") return { body, contentType: "text/plain; charset=utf-8" };
  return { body: JSON.stringify(body), contentType: "application/json" };
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
 * Which of the agent's headers go to the target. What belongs to a connection, names another host,
 * carries credentials or speaks for the payment is ours to set or nobody's: it is left out.
 */
export type ForwardedHeaders =
  | { ok: true; headers: Record<string, string> }
  | { ok: false; name: string; reason: string };

const words = (text: string): string[] => text.trim().split(/\s+/);

const LEFT_OUT = new Set([
  // Hop-by-hop (RFC 9110 section 7.6.1), and what frames a message.
  ...words(`connection keep-alive te trailer transfer-encoding upgrade expect content-length
    content-encoding accept-encoding host http2-settings max-forwards`),
  // Credentials: an agent's secrets, the key of this service among them, stay here.
  ...words("authorization cookie cookie2 set-cookie idempotency-key"),
  // Who asks, as only a proxy may say it.
  ...words("forwarded via x-real-ip true-client-ip cf-connecting-ip"),
]);
const LEFT_OUT_PREFIXES = ["proxy-", "payment-", "x-payment", "x-forwarded-", "sec-"];

const MAX_HEADERS = 64;
const MAX_VALUE_LENGTH = 4_096;
/** RFC 9110 tokens. */
const NAME_PATTERN = /^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}$/;
/** Visible ASCII, blanks only inside: no line breaks, so no second header and no second request. */
const VALUE_PATTERN = /^(?:[\x21-\x7e](?:[\t\x20-\x7e]*[\x21-\x7e])?)?$/;
/** An agent key of this service, wherever it stands. */
const OWN_KEY_PATTERN = /purser_[0-9A-Za-z]{8,}/;

export function forwardedHeaders(given: Record<string, string>): ForwardedHeaders {
  const entries = Object.entries(given);
  const headers = new Map<string, string>();
  if (entries.length > MAX_HEADERS)
    return { ok: false, name: "", reason: `has more than ${MAX_HEADERS} members` };
  for (const [name, value] of entries) {
    const key = name.toLowerCase();
    if (!NAME_PATTERN.test(name)) return { ok: false, name, reason: "is not a header name" };
    if (!VALUE_PATTERN.test(value) || value.length > MAX_VALUE_LENGTH)
      return { ok: false, name, reason: "has a value that is not visible ASCII on one line" };
    if (headers.has(key)) return { ok: false, name, reason: "is given twice" };
    if (!isLeftOut(key) && !OWN_KEY_PATTERN.test(value)) headers.set(key, value);
  }
  return { ok: true, headers: Object.fromEntries(headers) };
}

const isLeftOut = (name: string): boolean =>
  LEFT_OUT.has(name) || LEFT_OUT_PREFIXES.some((prefix) => name.startsWith(prefix));
