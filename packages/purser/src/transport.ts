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

export interface ServiceRequest {
  method: string;
  path: string;
  body: object | undefined;
  headers: Record<string, string>;
  signal: AbortSignal;
  /** A member that each successful answer to this has. */
  member: string;
  /** The service has answered there before, so nobody else is suspected. */
  isKnown?: boolean;
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
/** The certificate was looked at and refused, which comes before the request. Other faults of TLS may come after it. */
const BAD_CERTIFICATE = /^(CERT_|ERR_TLS_CERT|UNABLE_TO_|SELF_SIGNED|DEPTH_ZERO|HOSTNAME_)/;
/** What came was no TLS. */
const NO_TLS = /^(ERR_SSL_WRONG_VERSION_NUMBER|ERR_SSL_PACKET_LENGTH_TOO_LONG|EPROTO)$/;
const CHECK_TLS = "Check https:// or http://, the port, and the certificate.";
/** What a gateway in front of a service says while the service is away. */
const GATEWAY = new Set([408, 429, 502, 503, 504]);

export async function ask<T>(
  fetch: typeof globalThis.fetch,
  baseUrl: string,
  { method, path, body, headers, signal, member, isKnown = false }: ServiceRequest,
): Promise<Answer<T>> {
  if (!URL.canParse(baseUrl) || !/^https?:$/.test(new URL(baseUrl).protocol))
    return notReached(baseUrl, "it is not an http:// or https:// URL");
  let response: Response | undefined;
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
    const answer = whyUnanswered(baseUrl, error);
    // Another `fetch` may go another way, and one that began to answer has read the request.
    if (answer.kind !== "lost" || isKnown || response || fetch !== globalThis.fetch) return answer;
    return (await wrongProtocol(baseUrl, error)) ?? answer;
  }
  const retryAfterMs = (Number(response.headers.get("retry-after")) || 0) * 1_000;
  const value = readObject(text);
  if (value && response.ok && member in value) return { kind: "success", value: value as T };
  if (value && !response.ok && typeof value["code"] === "string")
    return { kind: "problem", problem: value as Problem, retryAfterMs };
  if (response.status >= 500 || GATEWAY.has(response.status)) {
    const why = `HTTP ${response.status} from ${baseUrl} did not come from the service itself`;
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
  const { code, syscall } = faultOf(error);
  // Ports that no fetch goes to (9, 25, ...) have no code.
  if (messageOf(error) === "bad port") return notReached(baseUrl, "its port is blocked");
  if (BAD_CERTIFICATE.test(code))
    return notReached(baseUrl, `the encrypted connection fails (${code})`, CHECK_TLS);
  // A connection that stood can become unreachable, too.
  if (UNCONNECTED.has(code) && syscall !== "read" && syscall !== "write")
    return notReached(baseUrl, code);
  const isNoHttp = code.startsWith("HPE_");
  const why = isNoHttp
    ? `The server at ${baseUrl} does not use HTTP, or its response was garbled (${code})`
    : `The service did not respond: ${code || messageOf(error)}`;
  return { kind: "lost", problem: noAnswer(why), retryAfterMs: 0, mayPass: !isNoHttp };
}

/** The system's own code, which `fetch` hides in the cause, and what it was doing. */
function faultOf(error: unknown): { code: string; syscall: string | undefined } {
  if (typeof error !== "object" || error === null) return { code: "", syscall: undefined };
  const { code, syscall, cause, errors } = error as Record<string, unknown>;
  if (typeof code === "string")
    return { code, syscall: typeof syscall === "string" ? syscall : undefined };
  return faultOf(cause ?? (Array.isArray(errors) ? errors[0] : undefined));
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
  suggestion = "Check the URL (PURSER_URL, or `baseUrl`) and that the service is running there.",
): Extract<Answer<never>, { kind: "elsewhere" }> => ({
  kind: "elsewhere",
  isConnected: false,
  problem: {
    code: "not_reached",
    status: 0,
    detail: `No Purser service can be reached at ${baseUrl}: ${why}. ${NOTHING_DONE}`,
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
      detail: `The server at ${baseUrl} is not a Purser service: ${what}. ${NOTHING_DONE}`,
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
    "Check the base URL and the network. Repeat a payment only with the same Idempotency-Key.",
  retryable: true,
  requestId: "",
});

/** How a server hangs up that was shown something it does not read. */
const HUNG_UP = new Set(["ECONNRESET", "EPIPE", "UND_ERR_SOCKET"]);
const PROBE_MS = 1_000;

/**
 * Whether what took the request cannot have read it, because it speaks the other of http and https. A code does not
 * tell: a connection that breaks in the middle of an answer has the same. So it is tried again with nothing to do.
 */
async function wrongProtocol(baseUrl: string, error: unknown): Promise<Answer<never> | undefined> {
  const { code } = faultOf(error);
  const { protocol, hostname } = new URL(baseUrl);
  if (protocol === "https:" && NO_TLS.test(code) && NO_TLS.test(await shakeHands(baseUrl))) {
    const why = `the encrypted connection fails (${code})`;
    return notReached(baseUrl, why, CHECK_TLS);
  }
  if (protocol !== "http:" || !HUNG_UP.has(code) || (await shakeHands(baseUrl)) !== "shaken")
    return undefined;
  // One that speaks both would answer this.
  const asked = {
    method: "HEAD",
    redirect: "manual",
    signal: AbortSignal.timeout(PROBE_MS),
  } as const;
  const again = await fetch(baseUrl, asked).then(
    () => "answered",
    (refused: unknown) => faultOf(refused).code,
  );
  if (!HUNG_UP.has(again)) return undefined;
  const instead = `https://${hostname}:${addressOf(baseUrl).port}`;
  return notReached(baseUrl, "the server uses TLS", `Use ${instead} instead.`);
}

/** The port is the one that was asked, whatever is usual for the other protocol. */
export function addressOf(baseUrl: string): { host: string; port: number } {
  const { protocol, hostname, port } = new URL(baseUrl);
  const usual = protocol === "https:" ? 443 : 80;
  return { host: hostname.replace(/^\[|\]$/g, ""), port: port === "" ? usual : Number(port) };
}

/** "shaken" where TLS is spoken, else the code of what went wrong. Nothing is sent over it. */
async function shakeHands(baseUrl: string): Promise<string> {
  const { connect } = await import("node:tls");
  return new Promise((resolve) => {
    const socket = connect({ ...addressOf(baseUrl), rejectUnauthorized: false });
    const timer = setTimeout(() => end("too slow"), PROBE_MS);
    const end = (how: string) => {
      clearTimeout(timer);
      socket.destroy();
      resolve(how);
    };
    socket.on("secureConnect", () => end("shaken"));
    socket.on("error", (error) => end(faultOf(error).code));
    socket.on("close", () => end("closed"));
  });
}
