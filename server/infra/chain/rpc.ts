/** JSON-RPC client of a network: all its endpoints in order of preference, with failover. */
import { Agent } from "undici";
import type { Hex } from "viem";
import { hideInError, hideSecrets, secretsOfUrl, type Hide } from "../../core/secret-text.ts";
import { ChainRefusal, ChainUnreachable, classifyChainError, isEndpointFailure } from "./errors.ts";
import { postJson } from "../post.ts";

interface ChainRpcOptions {
  urls: readonly string[];
  timeoutMs?: number;
  /** An endpoint that is silent for this long counts as absent. */
  absentAfterMs?: number;
  /**
   * For metrics: the method, whether the response was usable, and the endpoint's position in the configuration, from 1.
   */
  onCall?: (method: string, ok: boolean, endpoint: number) => void;
}

export interface RpcCall {
  method: string;
  params: unknown[];
}

/** Sends JSON-RPC calls: to the network with failover, or to one of its endpoints. */
export interface Caller {
  call<T>(method: string, params: unknown[]): Promise<T>;
}

/** The responses of the single endpoints, and how many must agree on a negative result before it is believed. */
export interface Witnesses<T> {
  answers: T[];
  needed: number;
}

/** An endpoint that is silent for this long counts as absent, and its response is not waited for. */
const ABSENT_AFTER_MS = 180_000;
/** One endpoint may lag or lie; two are believed. */
const ENOUGH_WITNESSES = 2;
const SUSPECT_ONCE_MS = 4_000;
const DEFAULT_TIMEOUT_MS = 5_000;
/** Nodes search for these; everything else is a look-up. */
const SEARCHES = new Set(["eth_getLogs"]);
/** After this long on another endpoint, the preferred one is tried again. */
const RETURN_TO_FIRST_MS = 30_000;
/** Sends, and responds with the receipt once the transaction is mined (EIP-7966). */
const SEND_AND_WAIT = "eth_sendRawTransactionSync";
/** A little longer than nodes wait by default. */
const WAIT_MS = 32_000;
/** A method that an endpoint lacks or serves badly is tried again after this long. */
const TRY_AGAIN_MS = 600_000;

/**
 * A longer response ends its connection. Logs and receipts are the longest: a transfer's log is about 700 bytes of
 * JSON, so this allows 90,000 of them, while gateways end a search at 10,000.
 */
const MAX_ANSWER_BYTES = 64 * 1024 * 1024;
const AGENTS = { keepAliveTimeout: 30_000, maxResponseSize: MAX_ANSWER_BYTES };

export class ChainRpc {
  readonly #urls: readonly string[];
  readonly #timeoutMs: number;
  readonly #absentAfterMs: number;
  readonly #onCall: (method: string, ok: boolean, endpoint: number) => void;
  /** Removes parts of the URL that may be a key from errors: nodes and libraries repeat them. */
  readonly #hide: Hide;
  readonly #agent = new Agent({ connections: 32, ...AGENTS });
  /** Requests that stay open by design have their own connections. */
  readonly #waitingAgent = new Agent({ connections: 64, ...AGENTS });
  /** Per endpoint: until when it gets no waiting sends, and no batches. */
  readonly #waitsNotUntilMs: (number | undefined)[] = [];
  readonly #batchesNotUntilMs: (number | undefined)[] = [];
  /** Per endpoint: since when it has given no response; undefined after one. */
  readonly #silentSinceMs: (number | undefined)[] = [];
  #preferred = 0;
  #preferredSinceMs = 0;
  #nextId = 1;

  constructor(options: ChainRpcOptions) {
    this.#urls = [...new Set(options.urls)];
    this.#hide = hideSecrets(options.urls.flatMap(secretsOfUrl));
    this.#timeoutMs = options.timeoutMs ?? DEFAULT_TIMEOUT_MS;
    this.#absentAfterMs = options.absentAfterMs ?? ABSENT_AFTER_MS;
    this.#onCall = options.onCall ?? (() => undefined);
  }

  /**
   * The first usable response. Throws ChainRefusal (a node returned an error) or ChainUnreachable (no endpoint
   * answered).
   */
  call<T>(method: string, params: unknown[], options: { timeoutMs?: number } = {}): Promise<T> {
    return this.#first(method, (index) =>
      this.#request<T>(index, method, params, options.timeoutMs),
    );
  }

  /**
   * Several calls to one endpoint in one batch request; each succeeds or fails by itself. If the endpoint does not
   * support batches, they are sent in parallel. Throws ChainUnreachable if no endpoint answered.
   */
  callMany(calls: readonly RpcCall[]): Promise<PromiseSettledResult<unknown>[]> {
    return this.#first(calls[0]?.method ?? "nothing", async (index) => {
      if (calls.length > 1 && isOver(this.#batchesNotUntilMs[index])) {
        const answers = await this.#requestBatch(index, calls);
        if (answers && troubleIn(answers) === undefined) return answers;
        this.#batchesNotUntilMs[index] = performance.now() + TRY_AGAIN_MS;
      }
      const answers = await Promise.allSettled(
        calls.map(({ method, params }) => this.#request(index, method, params)),
      );
      const trouble = troubleIn(answers);
      if (trouble !== undefined) throw trouble;
      return answers;
    });
  }

  async #first<T>(what: string, query: (index: number) => Promise<T>): Promise<T> {
    if (this.#preferred !== 0 && Date.now() - this.#preferredSinceMs > RETURN_TO_FIRST_MS)
      this.#preferred = 0;
    const start = this.#preferred;
    let trouble: unknown;
    for (let step = 0; step < this.#urls.length; step += 1) {
      const index = (start + step) % this.#urls.length;
      try {
        const answer = await query(index);
        if (index !== this.#preferred) {
          this.#preferred = index;
          this.#preferredSinceMs = Date.now();
        }
        return answer;
      } catch (error) {
        if (error instanceof ChainRefusal && !isEndpointFailure(error)) throw error;
        trouble = error;
      }
    }
    throw new ChainUnreachable(`no RPC endpoint answered ${what}`, { cause: trouble });
  }

  /**
   * Queries every endpoint. For facts that only an absence shows (unused, replaced, refused): a positive fact needs one
   * witness, a negative one needs all present endpoints, at most two. An endpoint that has been silent for minutes
   * counts as absent; until then its missing response prevents a negative result.
   */
  async witnesses<T>(query: (endpoint: Caller) => Promise<T>): Promise<Witnesses<T>> {
    const results = await Promise.allSettled(
      this.#urls.map((_, index) =>
        query({ call: (method, params) => this.#request(index, method, params) }),
      ),
    );
    const answers = results.flatMap((result) =>
      result.status === "fulfilled" ? [result.value] : [],
    );
    const nowMs = performance.now();
    const present = this.#urls.filter((_, index) => {
      const since = this.#silentSinceMs[index];
      return since === undefined || nowMs - since < this.#absentAfterMs;
    }).length;
    return { answers, needed: Math.max(1, Math.min(present, ENOUGH_WITNESSES)) };
  }

  /** Prefers the next endpoint for a while, because the current one seems to lag behind. */
  suspectEndpoint(): void {
    // Several callers that notice the same lag mean the same endpoint.
    if (Date.now() - this.#preferredSinceMs < SUSPECT_ONCE_MS) return;
    this.#preferred = (this.#preferred + 1) % this.#urls.length;
    this.#preferredSinceMs = Date.now();
  }

  get endpoints(): number {
    return this.#urls.length;
  }

  /**
   * Sends a signed transaction. It is enough that one endpoint accepts it. A refusal is thrown only if no endpoint
   * accepted it, and silence never means "not sent".
   */
  async broadcast(raw: Hex): Promise<void> {
    let refusal: unknown;
    let trouble: unknown;
    for (let step = 0; step < this.#urls.length; step += 1) {
      const index = (this.#preferred + step) % this.#urls.length;
      try {
        await this.#request<Hex>(index, "eth_sendRawTransaction", [raw]);
        return;
      } catch (error) {
        if (error instanceof ChainRefusal && !isEndpointFailure(error)) refusal ??= error;
        else trouble = error;
      }
    }
    // A silent endpoint may have accepted it, so the refusal of another one proves nothing.
    if (trouble === undefined && refusal !== undefined) throw refusal as Error;
    if (refusal !== undefined)
      throw new ChainUnreachable("one endpoint refused and another did not respond", {
        cause: refusal,
      });
    throw new ChainUnreachable("no RPC endpoint accepted the transaction", { cause: trouble });
  }

  /** Whether the preferred endpoint supports sends that wait for the receipt, as far as is known. */
  get supportsWaitingSend(): boolean {
    return isOver(this.#waitsNotUntilMs[this.#preferred]);
  }

  /**
   * Sends a signed transaction and waits for its receipt, if the endpoint supports that. Otherwise, and after any
   * failure, it is a plain broadcast, which alone reports refusals. Sending the same bytes twice is harmless.
   */
  async broadcastAndWait(raw: Hex, signal: AbortSignal): Promise<unknown> {
    const index = this.#preferred;
    try {
      if (this.supportsWaitingSend)
        return await this.#request<unknown>(index, SEND_AND_WAIT, [raw], WAIT_MS, signal);
    } catch (error) {
      // The caller gave up because the transaction was sent in another way, or is in a block.
      if (signal.aborted) return undefined;
      const { kind } = classifyChainError(error);
      if (
        kind === "sent_not_mined" ||
        (error instanceof ChainRefusal && error.code === NOT_YET_MINED)
      )
        return undefined;
      if (kind === "method_missing" || kind === "unreachable" || kind === "rejected")
        this.suspendWaitingSends(index);
    }
    await this.broadcast(raw);
    return undefined;
  }

  /**
   * Called when the receipt was known elsewhere before the waiting endpoint responded: it gets plain sends for a while.
   */
  suspendWaitingSends(index = this.#preferred): void {
    this.#waitsNotUntilMs[index] = performance.now() + TRY_AGAIN_MS;
  }

  async close(): Promise<void> {
    await Promise.all([this.#agent.destroy(), this.#waitingAgent.destroy()]);
  }

  async #request<T>(
    index: number,
    method: string,
    params: unknown[],
    timeoutMs?: number,
    waiting?: AbortSignal,
  ): Promise<T> {
    const budgetMs = timeoutMs ?? this.#timeoutMs * (SEARCHES.has(method) ? 2 : 1);
    const id = this.#nextId++;
    try {
      const sent = { jsonrpc: "2.0", id, method, params };
      const answer = (await this.#post(index, sent, budgetMs, waiting)) as Answer<T>;
      this.#silentSinceMs[index] = undefined;
      return this.#read(index, method, answer);
    } catch (error) {
      if (error instanceof ChainRefusal) throw error;
      // We gave up: this is no failure of the endpoint.
      if (waiting?.aborted) throw error;
      throw this.#silent(index, method, error);
    }
  }

  /** Undefined if the endpoint does not support batches. */
  async #requestBatch(
    index: number,
    calls: readonly RpcCall[],
  ): Promise<PromiseSettledResult<unknown>[] | undefined> {
    const sent = calls.map((call) => ({
      jsonrpc: "2.0",
      id: this.#nextId++,
      ...call,
    }));
    const [first] = sent;
    let answers: unknown;
    try {
      answers = await this.#post(index, sent, this.#timeoutMs);
    } catch (error) {
      // A response that is not JSON is a proxy's error page: the endpoint responds, but not to batches.
      if (error instanceof SyntaxError) return undefined;
      throw this.#silent(index, first?.method ?? "nothing", error);
    }
    if (!Array.isArray(answers)) return undefined;
    const byId = new Map(
      (answers as ((Answer<unknown> & { id?: number }) | null)[]).map((one) => [one?.id, one]),
    );
    // One error for the whole batch, or unknown ids.
    if (sent.some(({ id }) => !byId.get(id))) return undefined;
    this.#silentSinceMs[index] = undefined;
    return Promise.allSettled(
      sent.map(async ({ id, method }) => this.#read(index, method, byId.get(id) ?? {})),
    );
  }

  #read<T>(index: number, method: string, answer: Answer<T>): T {
    const isUsable = answer.error !== undefined || answer.result !== undefined;
    this.#onCall(method, isUsable, index + 1);
    if (answer.error) {
      const { message, code, data } = answer.error;
      throw new ChainRefusal(this.#hide(message), code, this.#hideData(data));
    }
    if (answer.result === undefined) throw new ChainUnreachable(`${method}: malformed answer`);
    return answer.result;
  }

  async #post(
    index: number,
    sent: unknown,
    budgetMs: number,
    waiting?: AbortSignal,
  ): Promise<unknown> {
    const url = this.#urls[index];
    if (url === undefined) throw new ChainUnreachable("no RPC endpoint is configured");
    const agent = waiting ? this.#waitingAgent : this.#agent;
    return postJson(agent, url, sent, { budgetMs, givenUp: waiting });
  }

  /** The URL may contain a key, so neither the message nor its causes repeat it. */
  #silent(index: number, method: string, error: unknown): ChainUnreachable {
    if (!(error instanceof ChainUnreachable)) this.#onCall(method, false, index + 1);
    this.#silentSinceMs[index] ??= performance.now();
    return new ChainUnreachable(`RPC endpoint ${index + 1} did not answer ${method}`, {
      cause: hideInError(error, this.#hide),
    });
  }

  /** Revert data is hex and is kept. Some nodes return text or an object that repeats the request. */
  #hideData(data: unknown): unknown {
    if (data === undefined || (typeof data === "string" && data.startsWith("0x"))) return data;
    return JSON.parse(this.#hide(JSON.stringify(data))) as unknown;
  }
}

/** The first failure that is about the endpoint and not the call: another endpoint may do better. */
function troubleIn(answers: readonly PromiseSettledResult<unknown>[]): unknown {
  for (const answer of answers)
    if (
      answer.status === "rejected" &&
      !(answer.reason instanceof ChainRefusal && !isEndpointFailure(answer.reason))
    )
      return answer.reason as unknown;
  return undefined;
}

/** EIP-7966: the transaction is in the pool, but the node's waiting time has ended. */
const NOT_YET_MINED = 4;

const isOver = (untilMs: number | undefined): boolean =>
  untilMs === undefined || performance.now() >= untilMs;

interface Answer<T> {
  result?: T;
  error?: { code: number; message: string; data?: unknown };
}
