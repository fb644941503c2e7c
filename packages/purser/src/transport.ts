/** One request to the service, and what can be said of what came back. */
import type { Problem } from "./problem.ts";

export type Answer<T> =
  | { kind: "success"; value: T }
  /** The service's own word. */
  | { kind: "problem"; problem: Problem; retryAfterMs: number }
  /** It may have arrived, and nothing of the service came back: the same key finds out. */
  | { kind: "lost"; problem: Problem; retryAfterMs: number; mayPass: boolean }
  /** Nobody was there, or somebody else: nothing was done, and asking again would not help. */
  | { kind: "elsewhere"; problem: Problem; isConnected: boolean };

export interface Asked {
  method: string;
  path: string;
  body: object | undefined;
  headers: Record<string, string>;
  signal: AbortSignal;
  /** A member that each successful answer to this has. */
  member: string;
}

/** No byte of a request can have gone out. */
const UNCONNECTED = new Set([
  "ENOTFOUND",
  "EAI_AGAIN",
  "EAI_FAIL",
  "ECONNREFUSED",
  "EHOSTUNREACH",
  "ENETUNREACH",
  "EADDRNOTAVAIL",
  "ERR_INVALID_URL",
  "UND_ERR_CONNECT_TIMEOUT",
]);
const TLS = /^(CERT_|ERR_TLS_|ERR_SSL_|UNABLE_TO_|SELF_SIGNED|DEPTH_ZERO|HOSTNAME_|EPROTO)/;
/** What a gateway in front of a service says while the service is away. */
const GATEWAY = new Set([408, 429, 502, 503, 504]);

export async function ask<T>(
  fetch: typeof globalThis.fetch,
  baseUrl: string,
  { method, path, body, headers, signal, member }: Asked,
): Promise<Answer<T>> {
  if (!URL.canParse(baseUrl) || !/^https?:$/.test(new URL(baseUrl).protocol))
    return notReached(baseUrl, "it is no http:// or https:// URL");
  let response: Response;
  let text: string;
  try {
    response = await fetch(`${baseUrl}${path}`, {
      method,
      signal,
      // Followed, the key would travel to wherever it leads.
      redirect: "manual",
      headers: { ...headers, ...(body !== undefined && { "content-type": "application/json" }) },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    });
    text = await response.text();
  } catch (error) {
    return whyUnanswered(baseUrl, error);
  }
  const retryAfterMs = (Number(response.headers.get("retry-after")) || 0) * 1_000;
  const value = readObject(text);
  if (value && response.ok && member in value) return { kind: "success", value: value as T };
  if (value && !response.ok && typeof value["code"] === "string")
    return { kind: "problem", problem: value as Problem, retryAfterMs };
  if (response.status >= 500 || GATEWAY.has(response.status)) {
    const why = `HTTP ${response.status} came from ${baseUrl}, and not from the service itself`;
    const mayPass = GATEWAY.has(response.status);
    return { kind: "lost", problem: noAnswer(why, response.status), retryAfterMs, mayPass };
  }
  return notPurser(baseUrl, response);
}

/** What a failed `fetch` says of the service. */
export function whyUnanswered(
  baseUrl: string,
  error: unknown,
): Extract<Answer<never>, { kind: "lost" | "elsewhere" }> {
  const code = codeOf(error);
  // Ports that no fetch goes to (9, 25, ...) have no code.
  if (messageOf(error) === "bad port")
    return notReached(baseUrl, "its port is one that is blocked");
  if (TLS.test(code)) {
    const why = `the encrypted connection fails (${code})`;
    return notReached(baseUrl, why, "Check https:// or http://, the port, and the certificate.");
  }
  if (UNCONNECTED.has(code) || code.startsWith("HPE_"))
    return notReached(baseUrl, code.startsWith("HPE_") ? "what answers speaks no HTTP" : code);
  const why = `The service gave no answer: ${code || messageOf(error)}`;
  return { kind: "lost", problem: noAnswer(why), retryAfterMs: 0, mayPass: true };
}

/** The system's own code, which `fetch` hides in the cause. */
function codeOf(error: unknown): string {
  if (typeof error !== "object" || error === null) return "";
  const { code, cause, errors } = error as { code?: unknown; cause?: unknown; errors?: unknown[] };
  if (typeof code === "string") return code;
  return codeOf(cause ?? errors?.[0]);
}

function messageOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return error.cause === undefined ? error.message : messageOf(error.cause);
}

function readObject(text: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null && !Array.isArray(value)
      ? (value as Record<string, unknown>)
      : undefined;
  } catch {
    return undefined;
  }
}

const NOTHING_DONE = "Nothing was paid.";

const notReached = (
  baseUrl: string,
  why: string,
  suggestion = "Check the URL (PURSER_URL, or `baseUrl`), and that the service runs there.",
): Extract<Answer<never>, { kind: "elsewhere" }> => ({
  kind: "elsewhere",
  isConnected: false,
  problem: {
    code: "not_reached",
    status: 0,
    detail: `No Purser service is reached at ${baseUrl}: ${why}. ${NOTHING_DONE}`,
    suggestion,
    retryable: false,
    requestId: "",
  },
});

function notPurser(baseUrl: string, response: Response): Answer<never> {
  const location = response.headers.get("location");
  const type = response.headers.get("content-type") ?? "no content type";
  const what =
    response.type === "opaqueredirect" || (response.status >= 300 && response.status < 400)
      ? `a redirect${location === null ? "" : ` to ${location}`}`
      : `HTTP ${response.status} (${type})`;
  return {
    kind: "elsewhere",
    isConnected: true,
    problem: {
      code: "not_purser",
      status: response.status,
      detail: `What answers at ${baseUrl} is not a Purser service: ${what}. ${NOTHING_DONE}`,
      suggestion:
        "Check the URL (PURSER_URL, or `baseUrl`): scheme, host and port of the service, without a path.",
      retryable: false,
      requestId: response.headers.get("x-request-id") ?? "",
    },
  };
}

const noAnswer = (detail: string, status = 0): Problem => ({
  code: "no_answer",
  status,
  detail,
  suggestion:
    "Check the base URL and the network; repeat a payment only with the same Idempotency-Key.",
  retryable: true,
  requestId: "",
});

/** Whether TLS is spoken where plain HTTP found no answer: such a server hangs up without a word. */
export async function speaksTls(
  fetch: typeof globalThis.fetch,
  baseUrl: string,
): Promise<Answer<never> | undefined> {
  const url = new URL(baseUrl);
  if (url.protocol !== "http:") return undefined;
  url.protocol = "https:";
  const answers = await fetch(url, {
    method: "HEAD",
    redirect: "manual",
    signal: AbortSignal.timeout(1_000),
  }).then(
    () => true,
    (error: unknown) =>
      /^(CERT_|ERR_TLS_CERT|UNABLE_TO_|SELF_SIGNED|DEPTH_ZERO)/.test(codeOf(error)),
  );
  return answers
    ? notReached(baseUrl, "TLS is spoken there", `Try ${url.origin} in its place.`)
    : undefined;
}
