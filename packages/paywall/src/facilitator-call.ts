/** One call of a facilitator, and what its failure says about the payment. */
import { HTTPFacilitatorClient, type FacilitatorClient } from "@x402/core/server";
import { SettleError, VerifyError, type SettleResponse } from "@x402/core/types";
import { refusalIn } from "./answers.ts";
import { isRecord } from "./foreign-json.ts";

/** Who verifies and settles: a URL, a URL with a key (`Authorization: Bearer`), or a client of the protocol's library. */
export type FacilitatorEntry =
  | string
  | { url: string; key?: string | undefined }
  | FacilitatorClient;

export type CallResult<Answer> =
  | { kind: "answered"; answer: Answer }
  /** The facilitator did not get the payment, or refused the request before working on it. */
  | { kind: "notTaken"; error: unknown }
  /** It may have done the work: no answer, or one that says nothing. */
  | { kind: "unanswered"; error: unknown };

export const isClient = (entry: FacilitatorEntry): entry is FacilitatorClient =>
  typeof entry === "object" && "settle" in entry;
export const isOneClient = (
  given: FacilitatorEntry | readonly FacilitatorEntry[],
): given is FacilitatorClient => typeof given === "object" && "settle" in given;

/** Makes a client for one call, and checks the URL once. */
export function clientMaker(
  entry: FacilitatorEntry,
): (timeoutMs: number, idempotencyKey?: string) => FacilitatorClient {
  if (isClient(entry)) return (timeoutMs) => withDeadlines(entry, timeoutMs);
  const { url, key } = typeof entry === "string" ? { url: entry, key: undefined } : entry;
  const { username, password, search } = new URL(url);
  if (username || password || search)
    throw new Error("a facilitator's URL has no user, password or query: pass the key as `key`");
  const own: Record<string, string> = key === undefined ? {} : { authorization: `Bearer ${key}` };
  return (timeoutMs, idempotencyKey) => {
    // A repeat with the same key gets the first answer, where the facilitator knows this header.
    const settle =
      idempotencyKey === undefined ? own : { ...own, "idempotency-key": idempotencyKey };
    const createAuthHeaders = async () => ({ verify: own, settle, supported: own });
    const client = new HTTPFacilitatorClient({ url, timeoutMs, createAuthHeaders });
    return withDeadlines(client, timeoutMs);
  };
}

/** The library repeats a refused `/supported` for up to a minute, and other clients may have no time-out at all. */
const withDeadlines = (client: FacilitatorClient, timeoutMs: number): FacilitatorClient => ({
  verify: (...sent) => before(client.verify(...sent), timeoutMs),
  settle: (...sent) => before(client.settle(...sent), timeoutMs),
  getSupported: () => before(client.getSupported(), timeoutMs),
});

async function before<Value>(work: Promise<Value>, timeoutMs: number): Promise<Value> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(new CallTimeout()), timeoutMs);
  });
  try {
    return await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
  }
}

class CallTimeout extends Error {
  override name = "FacilitatorTimeoutError";
}

export async function callVerify(
  client: FacilitatorClient,
  ...sent: Parameters<FacilitatorClient["verify"]>
): Promise<CallResult<Awaited<ReturnType<FacilitatorClient["verify"]>>>> {
  try {
    return { kind: "answered", answer: await client.verify(...sent) };
  } catch (error) {
    if (!(error instanceof VerifyError) || error.statusCode >= 500) return failed(error);
    const { invalidReason = "invalid_payload", invalidMessage, payer } = error;
    const answer = {
      isValid: false,
      invalidReason,
      ...(invalidMessage !== undefined && { invalidMessage }),
      ...(payer !== undefined && { payer }),
    };
    return { kind: "answered", answer };
  }
}

export async function callSettle(
  client: FacilitatorClient,
  ...sent: Parameters<FacilitatorClient["settle"]>
): Promise<CallResult<SettleResponse>> {
  try {
    return readable(await client.settle(...sent));
  } catch (error) {
    const refusal =
      error instanceof SettleError && error.statusCode < 500 ? refusalIn(error) : undefined;
    return refusal ? readable(refusal) : failed(error);
  }
}

/** A facilitator that failed inside says nothing about the payment. */
const readable = (answer: SettleResponse): CallResult<SettleResponse> =>
  !answer.success && answer.errorReason === "unexpected_settle_error"
    ? { kind: "unanswered", error: new Error("unexpected_settle_error") }
    : { kind: "answered", answer };

function failed(error: unknown): CallResult<never> {
  return { kind: isNotTaken(error) ? "notTaken" : "unanswered", error };
}

/** These statuses say that the request was refused before any work. */
const REFUSED_REQUEST = new Set([401, 403, 404, 405, 413, 415, 429]);
const statusIn = (error: unknown): number =>
  Number(error instanceof Error && /^Facilitator \w+ failed \((\d{3})\)/.exec(error.message)?.[1]);

function isNotTaken(error: unknown): boolean {
  return REFUSED_REQUEST.has(statusIn(error)) || isNotConnected(error);
}

/** A connection or certificate that was refused, before a byte of the request. */
const NOT_CONNECTED = new RegExp(
  [
    "^UND_ERR_CONNECT_TIMEOUT$",
    "^CERT_",
    "^ERR_TLS_CERT_",
    "SELF_SIGNED_CERT",
    "^UNABLE_TO_(VERIFY|GET_ISSUER)",
    "^ERR_SSL_WRONG_VERSION_NUMBER$",
  ].join("|"),
);
const CONNECTING = new Set(["connect", "getaddrinfo"]);

/**
 * Only errors that cannot come later count. A connection that was reset may have carried the request.
 */
export function isNotConnected(error: unknown, depth = 0): boolean {
  if (!(error instanceof Error) || depth > 4) return false;
  const { code, syscall, errors } = error as {
    code?: string;
    syscall?: string;
    errors?: unknown[];
  };
  if (syscall !== undefined && CONNECTING.has(syscall)) return true;
  if (code !== undefined && NOT_CONNECTED.test(code)) return true;
  // Several addresses were tried.
  if (Array.isArray(errors) && errors.length > 0)
    return errors.every((one) => isNotConnected(one, depth + 1));
  return isNotConnected(error.cause, depth + 1);
}

/** A short name for health reports. Never the text of an answer, which a third party wrote. */
export function nameOf(error: unknown): string {
  const status = statusIn(error);
  if (status > 0) return `HTTP ${status}`;
  for (let one: unknown = error, depth = 0; isErrorLike(one) && depth < 5; depth += 1) {
    const { code } = one;
    if (typeof code === "string" && /^[A-Z0-9_]{2,40}$/.test(code)) return code;
    one = one["cause"];
  }
  return error instanceof Error ? error.name : "unknown";
}

const isErrorLike = (value: unknown): value is Record<string, unknown> =>
  value instanceof Error || isRecord(value);
