/** One HTTP request to the service, with its response or failure classified for retries: which may be retried, and when. */
import type { Problem } from "./problem.ts";

export type Answer<T> =
  | { kind: "success"; value: T }
  /** The service refused. */
  | { kind: "problem"; problem: Problem; retryAfterMs: number }
  /**
   * The request may have arrived, but the service's response did not: a retry with the same key finds out.
   */
  | { kind: "lost"; problem: Problem; retryAfterMs: number; mayPass: boolean }
  /** No connection, or another server responded: nothing was done, and a retry would not help. */
  | { kind: "elsewhere"; problem: Problem; isConnected: boolean };

interface ServiceRequest {
  method: string;
  path: string;
  body: object | undefined;
  headers: Record<string, string>;
  signal: AbortSignal;
  /** A member that every successful response has. */
  member: string;
  /** The service has responded at this URL before, so a failure is not blamed on a wrong URL. */
  isKnown?: boolean;
}

/** Errors before any byte of the request was sent. */
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
/** The certificate was refused, which happens before the request. Other TLS errors may come after it. */
const BAD_CERTIFICATE = /^(CERT_|ERR_TLS_CERT|UNABLE_TO_|SELF_SIGNED|DEPTH_ZERO|HOSTNAME_)/;
/** The server did not respond with TLS. */
const NO_TLS = /^(ERR_SSL_WRONG_VERSION_NUMBER|ERR_SSL_PACKET_LENGTH_TOO_LONG|EPROTO)$/;
const CHECK_TLS = "Check https:// or http://, the port, and the certificate.";
/** Statuses that a gateway returns while the service behind it is down. */
const GATEWAY = new Set([408, 429, 502, 503, 504]);

/** The JSON text of an answer: its numbers may have more digits than a double. */
export const textOf = new WeakMap<object, string>();

/** The text of one member of a JSON object that was parsed before. */
export function memberText(json: string | undefined, name: string): string | undefined {
  if (json === undefined) return undefined;
  let depth = 0;
  /** Where the value of the wanted member starts. */
  let start: number | undefined;
  let last = "";
  for (let at = 0; at < json.length; at += 1) {
    const char = json[at] ?? "";
    if (char === '"') {
      const end = afterString(json, at);
      last = json.slice(at, end);
      at = end - 1;
    } else if (char === ":" && depth === 1 && start === undefined) {
      if (last === JSON.stringify(name)) start = at + 1;
    } else if (depth === 1 && (char === "," || char === "}") && start !== undefined) {
      return json.slice(start, at).trim();
    } else if (char === "{" || char === "[") depth += 1;
    else if (char === "}" || char === "]") depth -= 1;
  }
  return undefined;
}

function afterString(json: string, quote: number): number {
  let at = quote + 1;
  while (at < json.length && json[at] !== '"') at += json[at] === "\\" ? 2 : 1;
  return at + 1;
}

export async function sendRequest<T>(
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
      // Redirects are not followed: the key and the body must not go to another server.
      redirect: "manual",
      headers: { ...headers, ...(body !== undefined && { "content-type": "application/json" }) },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    });
    text = await response.text();
  } catch (error) {
    const answer = classifyFailure(baseUrl, error);
    // A custom `fetch` may use another route than the probe, and a server that began to respond has read the
    // request.
    if (answer.kind !== "lost" || isKnown || response || fetch !== globalThis.fetch) return answer;
    return (await wrongProtocol(baseUrl, error)) ?? answer;
  }
  const retryAfterMs = (Number(response.headers.get("retry-after")) || 0) * 1_000;
  const value = readObject(text);
  if (value && response.ok && member in value) {
    textOf.set(value, text);
    return { kind: "success", value: value as T };
  }
  if (value && !response.ok && typeof value["code"] === "string")
    return { kind: "problem", problem: value as Problem, retryAfterMs };
  if (response.status >= 500 || GATEWAY.has(response.status)) {
    const why = `HTTP ${response.status} from ${baseUrl} did not come from the service itself`;
    const mayPass = GATEWAY.has(response.status);
    return { kind: "lost", problem: noAnswer(why, response.status), retryAfterMs, mayPass };
  }
  return notPurser(baseUrl, response);
}

/** Classifies the error of a failed `fetch`. */
export function classifyFailure(
  baseUrl: string,
  error: unknown,
): Extract<Answer<never>, { kind: "lost" | "elsewhere" }> {
  const { code, syscall } = faultOf(error);
  // Ports that fetch blocks (9, 25, ...) have no error code.
  if (messageOf(error) === "bad port") return notReached(baseUrl, "its port is blocked");
  if (BAD_CERTIFICATE.test(code))
    return notReached(baseUrl, `the encrypted connection fails (${code})`, CHECK_TLS);
  // An established connection can become unreachable too; then the syscall is read or write.
  if (UNCONNECTED.has(code) && syscall !== "read" && syscall !== "write")
    return notReached(baseUrl, code);
  const isNoHttp = code.startsWith("HPE_");
  const why = isNoHttp
    ? `The server at ${baseUrl} does not use HTTP, or its response was garbled (${code})`
    : `The service did not respond: ${code || messageOf(error)}`;
  return { kind: "lost", problem: noAnswer(why), retryAfterMs: 0, mayPass: !isNoHttp };
}

/** The system's error code and syscall, which `fetch` puts into the cause. */
function faultOf(error: unknown): { code: string; syscall: string | undefined } {
  if (typeof error !== "object" || error === null) return { code: "", syscall: undefined };
  const { name, code, syscall, cause, errors } = error as Record<string, unknown>;
  if (typeof code === "string")
    return { code, syscall: typeof syscall === "string" ? syscall : undefined };
  // Node 24 gives this error no code.
  if (name === "HTTPParserError") return { code: "HPE_UNKNOWN", syscall: undefined };
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

/** Error codes when a server closes the connection on a protocol it does not speak. */
const HUNG_UP = new Set(["ECONNRESET", "EPIPE", "UND_ERR_SOCKET"]);
const PROBE_MS = 1_000;

/**
 * Whether the server cannot have read the request because it speaks http where https was used, or the
 * reverse. The error code alone is ambiguous: a connection lost in the middle of a response has the same one.
 * So a harmless probe checks it.
 */
async function wrongProtocol(baseUrl: string, error: unknown): Promise<Answer<never> | undefined> {
  const { code } = faultOf(error);
  const { protocol, hostname } = new URL(baseUrl);
  if (protocol === "https:" && NO_TLS.test(code) && NO_TLS.test(await tlsHandshake(baseUrl))) {
    const why = `the encrypted connection fails (${code})`;
    return notReached(baseUrl, why, CHECK_TLS);
  }
  if (protocol !== "http:" || !HUNG_UP.has(code) || (await tlsHandshake(baseUrl)) !== "shaken")
    return undefined;
  // A server that speaks both protocols would respond to this.
  const probe = {
    method: "HEAD",
    redirect: "manual",
    signal: AbortSignal.timeout(PROBE_MS),
  } as const;
  const probed = await fetch(baseUrl, probe).then(
    () => "answered",
    (refused: unknown) => faultOf(refused).code,
  );
  if (!HUNG_UP.has(probed)) return undefined;
  const instead = `https://${hostname}:${addressOf(baseUrl).port}`;
  return notReached(baseUrl, "the server uses TLS", `Use ${instead} instead.`);
}

/** The port of the original URL, also for the other protocol. */
export function addressOf(baseUrl: string): { host: string; port: number } {
  const { protocol, hostname, port } = new URL(baseUrl);
  const usual = protocol === "https:" ? 443 : 80;
  return { host: hostname.replace(/^\[|\]$/g, ""), port: port === "" ? usual : Number(port) };
}

/**
 * "shaken" where the TLS handshake succeeds, else the code of its error. No data is sent over the connection.
 */
async function tlsHandshake(baseUrl: string): Promise<string> {
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
