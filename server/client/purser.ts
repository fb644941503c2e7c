/**
 * The typed client for agents: one key, one call.
 *
 *   const purser = new Purser({ apiKey: process.env.AGENT_API_KEY, baseUrl: "http://localhost:3000" });
 *   const { data, amountPaid } = await purser.fetch({ url, maxAmount: "0.01" });
 *
 * Every paying call carries an Idempotency-Key of its own, and is repeated only where repeating cannot
 * pay twice: the same key always travels with the same body.
 */
import type { Static } from "typebox";
import type {
  AgentApproval as AgentApprovalSchema,
  ApprovalRequired as ApprovalRequiredSchema,
} from "../schemas/approvals.ts";
import type { Listing as ListingSchema } from "../schemas/listings.ts";
import type { AgentSelf, Payment, SpendAnswer, SpendRequest } from "../schemas/payments.ts";
import type { X402FetchAnswer, X402FetchRequest } from "../schemas/x402-fetch.ts";

export type { AgentSelf, Payment, SpendRequest, X402FetchRequest };
/** A quote changes nothing anywhere: GET or HEAD, without a body. */
export type QuoteRequest = Omit<X402FetchRequest, "method" | "body" | "dryRun"> & {
  method?: "GET" | "HEAD";
};
export type Listing = Static<typeof ListingSchema>;
export type SpendResult = Static<typeof SpendAnswer>;
export type FetchResult = Static<typeof X402FetchAnswer>;
export type Approval = Static<typeof AgentApprovalSchema>;
export type ApprovalRequired = Static<typeof ApprovalRequiredSchema>;
export interface Page<T> {
  items: T[];
  nextCursor: string | null;
}

export interface PurserOptions {
  apiKey: string;
  baseUrl: string;
  /** How long one call may take, retries included (60 s). */
  timeoutMs?: number;
  fetch?: typeof globalThis.fetch;
}

export interface CallOptions {
  /** Give your own key to repeat a call after a restart of your process. */
  idempotencyKey?: string;
  signal?: AbortSignal;
}

export interface PayOptions extends CallOptions {
  /**
   * With `requestApproval`: how long to wait for the owner. Once it is granted, the same call is repeated with the same
   * key. Without it an `ApprovalNeeded` is thrown at once.
   */
  waitForApprovalMs?: number;
}

/** The request cannot have paid, or the same key finds out what it did. Denials and bad input are not here. */
const SAFE_TO_REPEAT = new Set([
  "idempotency_in_progress",
  "rate_limited",
  "fetch_capacity",
  "chain_unavailable",
  "relayer_unfunded",
  "service_unavailable",
  "payment_status_unknown",
  "no_answer",
]);
/** One look of the service at a decision. */
const LOOK_SECONDS = 30;
const FIRST_PAUSE_MS = 250;
const LONGEST_PAUSE_MS = 5_000;

export class Purser {
  readonly #apiKey: string;
  readonly #baseUrl: string;
  readonly #timeoutMs: number;
  readonly #fetch: typeof globalThis.fetch;

  constructor(options: PurserOptions) {
    this.#apiKey = options.apiKey;
    this.#baseUrl = options.baseUrl.replace(/\/+$/, "");
    this.#timeoutMs = options.timeoutMs ?? 60_000;
    this.#fetch = options.fetch ?? globalThis.fetch;
  }

  /** Name, wallet, balance, limits and allowlist of this agent. */
  me(options?: CallOptions): Promise<AgentSelf> {
    return this.#call("GET", "/api/agents/me", undefined, options);
  }

  /** Pays an allowlisted address. */
  spend(request: SpendRequest, options?: PayOptions): Promise<SpendResult> {
    return this.#pay("/api/agents/spend", request, options);
  }

  /** Fetches a URL, or a marketplace listing, and pays if it must. */
  fetch(request: X402FetchRequest, options?: PayOptions): Promise<FetchResult> {
    return this.#pay("/api/agents/x402-fetch", request, options);
  }

  /** What a GET would cost and whether the limits allow it; sends no body, pays nothing, and tells terms only. */
  quote(request: QuoteRequest, options?: CallOptions): Promise<FetchResult> {
    return this.#call("POST", "/api/agents/x402-fetch", { ...request, dryRun: true }, options);
  }

  /** What the owner was asked: where it stands. With `waitSeconds` (at most 30) it is answered once it is decided. */
  approval(
    id: string,
    { waitSeconds = 0, ...options }: CallOptions & { waitSeconds?: number } = {},
  ): Promise<Approval> {
    const path = `/api/agents/approvals/${encodeURIComponent(id)}?wait=${waitSeconds}`;
    return this.#call("GET", path, undefined, options);
  }

  /** Until the owner has decided, or the time is over: then it is still `open`. */
  async waitForApproval(
    id: string,
    { timeoutMs = 600_000, ...options }: CallOptions & { timeoutMs?: number } = {},
  ): Promise<Approval> {
    const deadlineMs = Date.now() + timeoutMs;
    for (;;) {
      const leftSeconds = Math.max(0, Math.ceil((deadlineMs - Date.now()) / 1_000));
      const waitSeconds = Math.min(LOOK_SECONDS, leftSeconds);
      const approval = await this.approval(id, { ...options, waitSeconds });
      if (approval.status !== "open" || Date.now() >= deadlineMs) return approval;
    }
  }

  payments(
    query: { limit?: number; cursor?: string } = {},
    options?: CallOptions,
  ): Promise<Page<Payment>> {
    return this.#call("GET", `/api/agents/me/payments${queryText(query)}`, undefined, options);
  }

  payment(id: string, options?: CallOptions): Promise<Payment> {
    return this.#call(
      "GET",
      `/api/agents/me/payments/${encodeURIComponent(id)}`,
      undefined,
      options,
    );
  }

  /** Searches the marketplace. */
  listings(
    query: {
      search?: string;
      category?: string;
      network?: string;
      maxPrice?: string;
      limit?: number;
      cursor?: string;
    } = {},
    options?: CallOptions,
  ): Promise<Page<Listing>> {
    return this.#call("GET", `/api/listings${queryText(query)}`, undefined, options);
  }

  async #pay<T extends object>(
    path: string,
    body: object,
    { waitForApprovalMs = 0, ...options }: PayOptions = {},
  ): Promise<T> {
    const deadlineMs = Date.now() + waitForApprovalMs;
    let idempotencyKey = options.idempotencyKey ?? crypto.randomUUID();
    for (;;) {
      const call = { ...options, idempotencyKey };
      const answer = await this.#call<T | ApprovalRequired>("POST", path, body, call);
      if (!isAsked(answer)) return answer;
      const timeoutMs = deadlineMs - Date.now();
      if (timeoutMs <= 0) throw new ApprovalNeeded(answer);
      const { signal } = options;
      const decided = await this.waitForApproval(answer.approvalId, {
        timeoutMs,
        ...(signal && { signal }),
      });
      if (decided.status === "open" || decided.status === "declined")
        throw new ApprovalNeeded({ ...answer, next: decided.next }, decided.status);
      idempotencyKey = answer.idempotencyKey;
    }
  }

  async #call<T>(
    method: string,
    path: string,
    body: object | undefined,
    options: CallOptions = {},
  ): Promise<T> {
    const deadlineMs = Date.now() + this.#timeoutMs;
    for (let pauseMs = FIRST_PAUSE_MS; ; pauseMs = Math.min(pauseMs * 2, LONGEST_PAUSE_MS)) {
      const answer = await this.#once<T>(method, path, body, deadlineMs, options);
      if (answer.ok) return answer.value;
      const waitMs = Math.max(pauseMs, answer.retryAfterMs);
      const canRepeat = SAFE_TO_REPEAT.has(answer.problem.code) && Date.now() + waitMs < deadlineMs;
      if (!canRepeat) throw new PurserError(answer.problem, options.idempotencyKey);
      await new Promise((resolve) => setTimeout(resolve, waitMs));
      options.signal?.throwIfAborted();
    }
  }

  async #once<T>(
    method: string,
    path: string,
    body: object | undefined,
    deadlineMs: number,
    options: CallOptions,
  ): Promise<Answer<T>> {
    const timeout = AbortSignal.timeout(Math.max(1, deadlineMs - Date.now()));
    const signal = options.signal ? AbortSignal.any([options.signal, timeout]) : timeout;
    let response: Response;
    let value: unknown;
    try {
      response = await this.#fetch(`${this.#baseUrl}${path}`, {
        method,
        signal,
        redirect: "error",
        headers: {
          authorization: `Bearer ${this.#apiKey}`,
          ...(body === undefined ? {} : { "content-type": "application/json" }),
          ...(options.idempotencyKey === undefined
            ? {}
            : { "idempotency-key": options.idempotencyKey }),
        },
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      });
      value = await response.json();
    } catch (error) {
      options.signal?.throwIfAborted();
      return { ok: false, problem: noAnswer(error), retryAfterMs: 0 };
    }
    if (response.ok) return { ok: true, value: value as T };
    return {
      ok: false,
      problem: value as Problem,
      retryAfterMs: Number(response.headers.get("retry-after") ?? 0) * 1_000,
    };
  }
}

type Answer<T> = { ok: true; value: T } | { ok: false; problem: Problem; retryAfterMs: number };

function queryText(query: Record<string, string | number | undefined>): string {
  const search = new URLSearchParams();
  for (const [key, value] of Object.entries(query))
    if (value !== undefined) search.set(key, String(value));
  return search.size === 0 ? "" : `?${search.toString()}`;
}

/** The problem document of a refusal, as the service wrote it. */
export interface Problem {
  code: string;
  status: number;
  detail: string;
  suggestion: string;
  retryable: boolean;
  requestId: string;
  blocked?: boolean;
  paymentId?: string | null;
  policy?: {
    rule: string;
    window: string;
    limit: string;
    spent: string;
    reserved: string;
    remaining: string;
    requested: string;
  };
  /** When this amount will fit the rolling window; null if it never will. */
  availableAt?: string | null;
  nextReleaseAt?: string | null;
  txHash?: string | null;
  [member: string]: unknown;
}

/** Thrown for every answer that is not a success. */
export class PurserError extends Error {
  override name = "PurserError";
  readonly problem: Problem;
  /** Repeat with this key, and only with this key, when the outcome is unknown. */
  readonly idempotencyKey: string | undefined;

  constructor(problem: Problem, idempotencyKey?: string) {
    super(problem.detail);
    this.problem = problem;
    this.idempotencyKey = idempotencyKey;
  }
  get code(): string {
    return this.problem.code;
  }
  get status(): number {
    return this.problem.status;
  }
}

const isAsked = (answer: object): answer is ApprovalRequired =>
  (answer as { status?: unknown }).status === "approval_required";

/** Nothing was paid: the owner is asked, and has not allowed it. Repeat the same call with `idempotencyKey` once it is granted. */
export class ApprovalNeeded extends Error {
  override name = "ApprovalNeeded";
  readonly approval: ApprovalRequired;
  readonly status: "open" | "declined";

  constructor(approval: ApprovalRequired, status: "open" | "declined" = "open") {
    super(approval.next);
    this.approval = approval;
    this.status = status;
  }
  get idempotencyKey(): string {
    return this.approval.idempotencyKey;
  }
}

/** What the client reports when there was no answer to read. */
export const noAnswer = (error: unknown): Problem => ({
  code: "no_answer",
  status: 0,
  detail: `The service gave no answer: ${error instanceof Error ? error.message : String(error)}`,
  suggestion:
    "Check the base URL and the network; repeat a payment only with the same Idempotency-Key.",
  retryable: true,
  requestId: "",
});
