/** The one way to a chain's nodes: every endpoint of a network in order of preference, with failover. */
import { Agent } from "undici";
import type { Hex } from "viem";
import { hideInError, hideSecrets, secretsOfUrl, type Hide } from "../../core/secret-text.ts";
import { ChainRefusal, ChainUnreachable, isEndpointTrouble } from "./errors.ts";
import { postJson } from "./post-json.ts";

export interface ChainRpcOptions {
  urls: readonly string[];
  timeoutMs?: number;
  /** How long an endpoint may be silent before it is no longer waited for. */
  absentAfterMs?: number;
  /** Counted by the metrics: method, whether a usable answer came, and of which endpoint, from 1 on as configured. */
  onCall?: (method: string, ok: boolean, endpoint: number) => void;
}

/** Whoever answers: the network, or one of its endpoints alone. */
export interface Caller {
  call<T>(method: string, params: unknown[]): Promise<T>;
}

/** What the endpoints said one by one, and how many must say no before it is one. */
export interface Witnesses<T> {
  answers: T[];
  needed: number;
}

/** Silent for this long, an endpoint no longer counts as being there: it is not waited for. */
const ABSENT_AFTER_MS = 180_000;
/** One endpoint may lag or lie; two are believed. */
const ENOUGH_WITNESSES = 2;
const DOUBT_ONCE_MS = 4_000;
const DEFAULT_TIMEOUT_MS = 5_000;
/** Nodes search for these; everything else they look up. */
const SEARCHES = new Set(["eth_getLogs"]);
/** After this long on a spare endpoint the preferred one is tried again. */
const RETURN_TO_FIRST_MS = 30_000;

export class ChainRpc {
  readonly #urls: readonly string[];
  readonly #timeoutMs: number;
  readonly #absentAfterMs: number;
  readonly #onCall: (method: string, ok: boolean, endpoint: number) => void;
  /** What leaves here as an error has no part of a URL in it that may be a key: nodes and libraries repeat them. */
  readonly #hide: Hide;
  readonly #agent = new Agent({ connections: 32, keepAliveTimeout: 30_000 });
  /** Per endpoint: since when it has given no answer; undefined after one. */
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

  /** The first usable answer. Throws ChainRefusal (a node said no) or ChainUnreachable (nobody answered). */
  async call<T>(
    method: string,
    params: unknown[],
    options: { timeoutMs?: number } = {},
  ): Promise<T> {
    if (this.#preferred !== 0 && Date.now() - this.#preferredSinceMs > RETURN_TO_FIRST_MS)
      this.#preferred = 0;
    const start = this.#preferred;
    let trouble: unknown;
    for (let step = 0; step < this.#urls.length; step += 1) {
      const index = (start + step) % this.#urls.length;
      try {
        const answer = await this.#ask<T>(index, method, params, options.timeoutMs);
        if (index !== this.#preferred) {
          this.#preferred = index;
          this.#preferredSinceMs = Date.now();
        }
        return answer;
      } catch (error) {
        if (error instanceof ChainRefusal && !isEndpointTrouble(error)) throw error;
        trouble = error;
      }
    }
    throw new ChainUnreachable(`no RPC endpoint answered ${method}`, { cause: trouble });
  }

  /**
   * Asks every endpoint by itself. For what only absence shows (unused, replaced, refused): a positive
   * fact needs one witness, a denial as many as there are, two at most. An endpoint that has been silent for
   * minutes is not there any more; until then its word is missing, and nothing is denied without it.
   */
  async witnesses<T>(ask: (endpoint: Caller) => Promise<T>): Promise<Witnesses<T>> {
    const results = await Promise.allSettled(
      this.#urls.map((_, index) =>
        ask({ call: (method, params) => this.#ask(index, method, params) }),
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

  /** The preferred endpoint seems to lag behind what others say: the next one is asked first for a while. */
  doubt(): void {
    // Several that noticed the same doubt the same endpoint.
    if (Date.now() - this.#preferredSinceMs < DOUBT_ONCE_MS) return;
    this.#preferred = (this.#preferred + 1) % this.#urls.length;
    this.#preferredSinceMs = Date.now();
  }

  /** How many endpoints there are to ask. */
  get endpoints(): number {
    return this.#urls.length;
  }

  /**
   * Sends signed bytes. One endpoint that takes them is enough; a refusal is thrown only when no endpoint
   * took them, and silence never means "not sent".
   */
  async broadcast(raw: Hex): Promise<void> {
    let refusal: unknown;
    let trouble: unknown;
    for (let step = 0; step < this.#urls.length; step += 1) {
      const index = (this.#preferred + step) % this.#urls.length;
      try {
        await this.#ask<Hex>(index, "eth_sendRawTransaction", [raw]);
        return;
      } catch (error) {
        if (error instanceof ChainRefusal && !isEndpointTrouble(error)) refusal ??= error;
        else trouble = error;
      }
    }
    // A silent endpoint may have taken it: the refusal of another is then no proof.
    if (trouble === undefined && refusal !== undefined) throw refusal as Error;
    if (refusal !== undefined)
      throw new ChainUnreachable("one endpoint refused, another was silent", { cause: refusal });
    throw new ChainUnreachable("no RPC endpoint took the transaction", { cause: trouble });
  }

  async close(): Promise<void> {
    await this.#agent.destroy();
  }

  async #ask<T>(index: number, method: string, params: unknown[], timeoutMs?: number): Promise<T> {
    const url = this.#urls[index];
    if (url === undefined) throw new ChainUnreachable("no RPC endpoint is configured");
    const budgetMs = timeoutMs ?? this.#timeoutMs * (SEARCHES.has(method) ? 2 : 1);
    const id = this.#nextId++;
    try {
      const question = { jsonrpc: "2.0", id, method, params };
      const answer = (await postJson(this.#agent, url, question, { budgetMs })) as Answer<T>;
      this.#silentSinceMs[index] = undefined;
      if (answer.error) {
        this.#onCall(method, true, index + 1);
        const { message, code, data } = answer.error;
        throw new ChainRefusal(this.#hide(message), code, this.#hideData(data));
      }
      if (answer.result === undefined) throw new ChainUnreachable(`${method}: malformed answer`);
      this.#onCall(method, true, index + 1);
      return answer.result;
    } catch (error) {
      if (error instanceof ChainRefusal) throw error;
      this.#onCall(method, false, index + 1);
      this.#silentSinceMs[index] ??= performance.now();
      // The URL may carry a key: it is not repeated in the message, nor in its causes.
      throw new ChainUnreachable(`RPC endpoint ${index + 1} did not answer ${method}`, {
        cause: hideInError(error, this.#hide),
      });
    }
  }

  /** Bytes of a revert are hex; some nodes answer with text or an object that repeats the request. */
  #hideData(data: unknown): unknown {
    if (data === undefined || (typeof data === "string" && data.startsWith("0x"))) return data;
    return JSON.parse(this.#hide(JSON.stringify(data))) as unknown;
  }
}

interface Answer<T> {
  result?: T;
  error?: { code: number; message: string; data?: unknown };
}
