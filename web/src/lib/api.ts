/**
 * The HTTP client for the server: same origin, session cookie, JSON. Every failure becomes an `ApiError` with
 * a sentence, the error code and the request id that the user can quote.
 */
import { learnClock } from "./clock.ts";

interface ProblemExtras {
  readonly [member: string]: unknown;
}

export class ApiError extends Error {
  override readonly name = "ApiError";
  readonly status: number;
  readonly code: string;
  readonly suggestion: string | undefined;
  readonly requestId: string | undefined;
  readonly problem: ProblemExtras;
  /** The request may have been carried out, and only its response was lost. */
  readonly mayBeDone: boolean;

  constructor(init: {
    status: number;
    code: string;
    detail: string;
    suggestion?: string;
    requestId?: string;
    problem?: ProblemExtras;
    mayBeDone?: boolean;
    cause?: unknown;
  }) {
    super(init.detail, { cause: init.cause });
    this.status = init.status;
    this.code = init.code;
    this.suggestion = init.suggestion;
    this.requestId = init.requestId;
    this.problem = init.problem ?? {};
    this.mayBeDone = init.mayBeDone ?? false;
  }

  /** No failure: the service keeps the request of a team until more of its members have signed. */
  get isWaiting(): boolean {
    return this.code === "signatures_missing";
  }

  /** No answer of the server: the connection failed, or a gateway answered in its place. */
  get isUnreachable(): boolean {
    return this.code === "unreachable" || /^http_50[234]$/.test(this.code);
  }

  /**
   * The server was not reached or cannot serve right now, so a retry makes sense. Its own 502 and 504 are answers: about an
   * upstream, or that an outcome is not known.
   */
  get isOutage(): boolean {
    return this.isUnreachable || this.status === 503;
  }
}

export interface RequestOptions {
  body?: unknown;
  query?: Readonly<Record<string, string | number | undefined>>;
  idempotencyKey?: string;
  signal?: AbortSignal;
}

type Method = "GET" | "POST" | "PUT" | "PATCH" | "DELETE";

const text = (value: unknown): string | undefined =>
  typeof value === "string" ? value : undefined;

function withQuery(path: string, query: RequestOptions["query"]): string {
  const pairs = Object.entries(query ?? {}).filter(
    ([, value]) => value !== undefined && value !== "",
  );
  if (pairs.length === 0) return path;
  return `${path}?${new URLSearchParams(pairs.map(([key, value]) => [key, String(value)])).toString()}`;
}

/** Statuses of a gateway that has passed the request on. */
const LOST_BY_GATEWAY = new Set([502, 504]);

async function problemFrom(method: Method, response: Response): Promise<ApiError> {
  const requestId = response.headers.get("x-request-id") ?? undefined;
  const body: unknown = await response.json().catch(() => undefined);
  const problem = (typeof body === "object" && body !== null ? body : {}) as ProblemExtras;
  return new ApiError({
    status: response.status,
    code: text(problem.code) ?? `http_${response.status}`,
    detail:
      text(problem.detail) ??
      text(problem.error) ??
      `The server returned status ${response.status}.`,
    suggestion: text(problem.suggestion),
    requestId: text(problem.requestId) ?? requestId,
    problem,
    mayBeDone: method !== "GET" && !isProblem(response) && LOST_BY_GATEWAY.has(response.status),
  });
}

const isProblem = ({ headers }: Response): boolean =>
  headers.get("content-type")?.startsWith("application/problem+json") === true;

export async function send(
  method: Method,
  path: string,
  options: RequestOptions & { accept?: string } = {},
): Promise<Response> {
  const headers: Record<string, string> = { accept: options.accept ?? "application/json" };
  if (options.body !== undefined) headers["content-type"] = "application/json";
  if (options.idempotencyKey !== undefined) headers["idempotency-key"] = options.idempotencyKey;
  let response: Response;
  const sentAtMs = Date.now();
  const isOnline = navigator.onLine;
  try {
    response = await fetch(withQuery(path, options.query), {
      method,
      headers,
      body: options.body === undefined ? undefined : JSON.stringify(options.body),
      credentials: "same-origin",
      signal: options.signal,
    });
  } catch (cause) {
    if (options.signal?.aborted === true) throw cause;
    throw new ApiError({
      status: 0,
      code: "unreachable",
      detail: "Purser cannot be reached.",
      suggestion: "Check your connection and that the service is running, then try again.",
      mayBeDone: method !== "GET" && isOnline,
      cause,
    });
  }
  learnClock({ date: response.headers.get("date"), sentAtMs, receivedAtMs: Date.now() });
  // A request that waits for signatures is answered with 202, and must not pass for done.
  if (!response.ok || isProblem(response)) throw await problemFrom(method, response);
  return response;
}

async function json<T>(method: Method, path: string, options?: RequestOptions): Promise<T> {
  const response = await send(method, path, options);
  if (response.status === 204) return undefined as T;
  return (await response.json()) as T;
}

export const api = {
  get: <T>(path: string, options?: RequestOptions): Promise<T> => json<T>("GET", path, options),
  post: <T>(path: string, body: unknown = {}, options?: RequestOptions): Promise<T> =>
    json<T>("POST", path, { ...options, body }),
  put: <T>(path: string, body: unknown): Promise<T> => json<T>("PUT", path, { body }),
  patch: <T>(path: string, body: unknown): Promise<T> => json<T>("PATCH", path, { body }),
  delete: <T>(path: string, body?: unknown): Promise<T> =>
    json<T>("DELETE", path, body === undefined ? {} : { body }),
};
