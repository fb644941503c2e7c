/**
 * The typed client for agents.
 *
 *   const purser = new Purser({ apiKey: process.env.AGENT_API_KEY, baseUrl: "http://localhost:3000" });
 *   const { data, amountPaid } = await purser.fetch({ url, maxAmount: "0.01" });
 *
 * Every paying call has its own Idempotency-Key and is retried only where that cannot pay twice: retries send
 * the same key with the same body.
 */
import {
  ApprovalNeeded,
  type Delivered,
  deliveredIn,
  type Problem,
  PurserError,
} from "./problem.ts";
import { type Answer, sendRequest } from "./transport.ts";
import type {
  AgentSelf,
  Approval,
  ApprovalRequired,
  FetchResult,
  ListingSummary,
  Payment,
  PaymentSummary,
  SpendRequest,
  SpendResult,
  Task,
  TaskRequest,
  ValidateRequest,
  Validation,
  X402FetchRequest,
} from "./types.ts";

/** A quote must not change anything at the target: GET or HEAD, without a body. */
export type QuoteRequest = Omit<X402FetchRequest, "method" | "body" | "dryRun"> & {
  method?: "GET" | "HEAD";
};
/** How much an answer contains: without it what an agent needs, because it pays for every token. */
export type Detail = NonNullable<X402FetchRequest["detail"]>;
export interface Page<T> {
  items: T[];
  nextCursor: string | null;
}

export interface PurserOptions {
  apiKey: string;
  baseUrl: string;
  /** The time limit of one call, retries included (60 s). */
  timeoutMs?: number;
  fetch?: typeof globalThis.fetch;
}

export interface CallOptions {
  /** Pass your own key to repeat a call after a restart of your process. */
  idempotencyKey?: string;
  signal?: AbortSignal;
}

export interface PayOptions extends CallOptions {
  /**
   * With `requestApproval`: how long to wait for the owner. Once the owner approves, the same call is
   * repeated with the same key. Without it an `ApprovalNeeded` is thrown at once.
   */
  waitForApprovalMs?: number;
}

/**
 * Codes after which a retry is safe: the request cannot have paid, or the same key returns its outcome.
 * Denials and bad input are not among them.
 */
const SAFE_TO_REPEAT = new Set([
  "idempotency_in_progress",
  "rate_limited",
  "fetch_capacity",
  "chain_unavailable",
  "keys_unavailable",
  "relayer_unfunded",
  "service_unavailable",
  "payment_status_unknown",
]);

const FETCH_PATH = "/api/agents/x402-fetch";
/** The longest time that the service waits for a decision in one request. */
const WAIT_SECONDS = 30;
const FIRST_PAUSE_MS = 250;
const LONGEST_PAUSE_MS = 5_000;

export class Purser {
  readonly #apiKey: string;
  readonly #baseUrl: string;
  readonly #timeoutMs: number;
  readonly #fetch: typeof globalThis.fetch;
  /** The service has responded before, so a refused connection now may be a restart. */
  #isKnown = false;

  constructor(options: PurserOptions) {
    this.#apiKey = options.apiKey;
    this.#baseUrl = options.baseUrl.replace(/\/+$/, "");
    this.#timeoutMs = options.timeoutMs ?? 60_000;
    this.#fetch = options.fetch ?? globalThis.fetch;
  }

  /** Name, wallet, balance, limits and allowlist of this agent. */
  me({ detail, ...options }: CallOptions & { detail?: Detail } = {}): Promise<AgentSelf> {
    const path = `/api/agents/me${queryText({ detail })}`;
    return this.#call({ method: "GET", path, member: "wallet" }, options);
  }

  /** Pays an allowlisted address. */
  spend(request: SpendRequest, options?: PayOptions): Promise<SpendResult> {
    return this.#pay("/api/agents/spend", request, options);
  }

  /** Fetches a URL, or a marketplace listing, and pays if it must. */
  fetch(request: X402FetchRequest, options?: PayOptions): Promise<FetchResult> {
    return this.#pay(FETCH_PATH, request, options);
  }

  /**
   * What a GET or a tool call would cost and whether the limits allow it. Sends no body, pays nothing, and
   * returns only the terms.
   */
  quote(request: QuoteRequest, options?: CallOptions): Promise<FetchResult> {
    const body = { ...request, dryRun: true };
    return this.#call({ method: "POST", path: FETCH_PATH, body, member: "success" }, options);
  }

  /**
   * The state of an approval request. With `waitSeconds` (at most 30) the service responds once it is
   * decided.
   */
  approval(
    id: string,
    { waitSeconds = 0, ...options }: CallOptions & { waitSeconds?: number } = {},
  ): Promise<Approval> {
    const path = `/api/agents/approvals/${encodeURIComponent(id)}?wait=${waitSeconds}`;
    return this.#call({ method: "GET", path, member: "status" }, options);
  }

  /** Waits until the owner has decided or the time has passed; then the status is still `open`. */
  async waitForApproval(
    id: string,
    { timeoutMs = 600_000, ...options }: CallOptions & { timeoutMs?: number } = {},
  ): Promise<Approval> {
    const deadlineMs = Date.now() + timeoutMs;
    // The service's wait must end before the client's own timeout, with time for the round trip.
    const longestWait = Math.min(WAIT_SECONDS, Math.floor(this.#timeoutMs / 2_000));
    for (;;) {
      const leftMs = Math.max(0, deadlineMs - Date.now());
      const waitSeconds = Math.min(longestWait, Math.ceil(leftMs / 1_000));
      const approval = await this.approval(id, { ...options, waitSeconds });
      if (approval.status !== "open" || Date.now() >= deadlineMs) return approval;
      // The request did not wait at the service, so pause here.
      if (waitSeconds === 0) await pause(Math.min(1_000, leftMs), options.signal);
    }
  }

  payments(
    query: { limit?: number; cursor?: string; task?: string; detail?: Detail } = {},
    options?: CallOptions,
  ): Promise<Page<PaymentSummary>> {
    const path = `/api/agents/me/payments${queryText(query)}`;
    return this.#call({ method: "GET", path, member: "items" }, options);
  }

  /** Everything about one payment. */
  payment(id: string, options?: CallOptions): Promise<Payment> {
    const path = `/api/agents/me/payments/${encodeURIComponent(id)}`;
    return this.#call({ method: "GET", path, member: "id" }, options);
  }

  /**
   * Opens a task: a ceiling for all payments that name it (`task`), within this agent's own limits. Opening it again with the
   * same terms changes nothing.
   */
  openTask(request: TaskRequest, options?: CallOptions): Promise<Task> {
    return this.#call(
      { method: "POST", path: "/api/agents/tasks", body: request, member: "id" },
      options,
    );
  }

  /** What a task cost, what is reserved, and what is left. */
  task(id: string, options?: CallOptions): Promise<Task> {
    return this.#call({ method: "GET", path: taskPath(id), member: "id" }, options);
  }

  /** From now on it pays nothing. */
  closeTask(id: string, options?: CallOptions): Promise<Task> {
    const path = `${taskPath(id)}/close`;
    return this.#call({ method: "POST", path, body: {}, member: "id" }, options);
  }

  tasks(
    query: { state?: "open" | "all"; limit?: number; cursor?: string } = {},
    options?: CallOptions,
  ): Promise<Page<Task>> {
    const path = `/api/agents/tasks${queryText(query)}`;
    return this.#call({ method: "GET", path, member: "items" }, options);
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
      /** Without it everything, because people read this list too. */
      detail?: Detail;
    } = {},
    options?: CallOptions,
  ): Promise<Page<ListingSummary>> {
    const path = `/api/listings${queryText(query)}`;
    return this.#call({ method: "GET", path, member: "items" }, options);
  }

  /** Why nobody can pay an API, or finds it: checks its 402, and pays nothing. Needs no key. */
  validate(request: ValidateRequest, options?: CallOptions): Promise<Validation> {
    const path = "/api/x402/validate";
    return this.#call({ method: "POST", path, body: request, member: "findings" }, options);
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
      const route = { method: "POST", path, body, member: "success" } as const;
      const answer = await this.#call<T | ApprovalRequired>(route, call);
      if (!needsApproval(answer)) return answer;
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

  async #call<T extends object>(
    { member, ...route }: Route,
    options: CallOptions = {},
  ): Promise<T> {
    const deadlineMs = Date.now() + this.#timeoutMs;
    const headers = {
      ...(this.#apiKey !== "" && { authorization: `Bearer ${this.#apiKey}` }),
      ...(options.idempotencyKey !== undefined && { "idempotency-key": options.idempotencyKey }),
    };
    const results = new AttemptResults();
    for (let pauseMs = FIRST_PAUSE_MS; ; pauseMs = Math.min(pauseMs * 2, LONGEST_PAUSE_MS)) {
      const timeout = AbortSignal.timeout(Math.max(1, deadlineMs - Date.now()));
      const signal = options.signal ? AbortSignal.any([options.signal, timeout]) : timeout;
      const answer: Answer<T> = await sendRequest(this.#fetch, this.#baseUrl, {
        body: undefined,
        ...route,
        headers,
        signal,
        member,
        isKnown: this.#isKnown,
      });
      options.signal?.throwIfAborted();
      if (answer.kind === "success" || answer.kind === "problem") this.#isKnown = true;
      if (answer.kind === "success") return results.complete(answer.value);
      results.note(answer);
      const waitMs = Math.max(pauseMs, "retryAfterMs" in answer ? answer.retryAfterMs : 0);
      if (!this.#mayHelp(answer, results) || Date.now() + waitMs >= deadlineMs)
        throw new PurserError(results.last, options.idempotencyKey, results.delivered);
      await pause(waitMs, options.signal);
    }
  }

  /**
   * Whether a retry can end differently. If no service was ever reached it cannot, unless an earlier attempt
   * may have arrived.
   */
  #mayHelp(answer: Exclude<Answer<never>, { kind: "success" }>, results: AttemptResults): boolean {
    if (answer.kind === "problem") return SAFE_TO_REPEAT.has(answer.problem.code);
    if (answer.kind === "lost") return answer.mayPass;
    return results.mayHaveArrived || (this.#isKnown && !answer.isConnected);
  }
}

interface Route {
  method: "GET" | "POST";
  path: string;
  body?: object;
  member: string;
}

/**
 * The results of all attempts of one call. A later attempt that reports less does not replace what an earlier
 * one reported.
 */
class AttemptResults {
  /** An attempt got no response, so the error of the whole call must not deny that it may have paid. */
  mayHaveArrived = false;
  delivered: Delivered | undefined;
  #last: Problem | undefined;

  note(answer: Exclude<Answer<never>, { kind: "success" }>): void {
    const { kind, problem } = answer;
    if (kind === "problem") this.delivered = deliveredIn(problem) ?? this.delivered;
    const isUnknown = problem.code === "payment_status_unknown";
    const isDecided =
      kind === "problem" && !SAFE_TO_REPEAT.has(problem.code) && problem.status !== 401;
    if (this.#last && this.mayHaveArrived && !isUnknown && !isDecided) return;
    this.mayHaveArrived ||= kind === "lost" || isUnknown;
    this.#last = problem;
  }

  get last(): Problem {
    if (!this.#last) throw new Error("no try of the call was noted");
    return this.#last;
  }

  /** The result of the call, with the content that an earlier attempt delivered. */
  complete<T extends object>(value: T): T {
    if (!this.delivered || deliveredIn(value as Record<string, unknown>)) return value;
    return { ...this.delivered, ...value };
  }
}

async function pause(ms: number, signal: AbortSignal | undefined): Promise<void> {
  await new Promise((resolve) => setTimeout(resolve, ms));
  signal?.throwIfAborted();
}

function queryText(query: Record<string, string | number | undefined>): string {
  const search = new URLSearchParams();
  for (const [key, value] of Object.entries(query))
    if (value !== undefined) search.set(key, String(value));
  return search.size === 0 ? "" : `?${search.toString()}`;
}

const taskPath = (id: string): string => `/api/tasks/${encodeURIComponent(id)}`;

const needsApproval = (answer: object): answer is ApprovalRequired =>
  (answer as { status?: unknown }).status === "approval_required";
