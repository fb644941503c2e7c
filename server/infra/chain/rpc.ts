/** The one way to a chain's nodes: every endpoint of a network in order of preference, with failover. */
import { Agent } from "../undici.ts";
import type { Hex } from "viem";
import { hideInError, hideSecrets, secretsOfUrl, type Hide } from "../../core/secret-text.ts";
import { ChainRefusal, ChainUnreachable, classifyChainError, isEndpointTrouble } from "./errors.ts";
import { postJson } from "./post-json.ts";

export interface ChainRpcOptions {
  urls: readonly string[];
  timeoutMs?: number;
  /** How long an endpoint may be silent before it is no longer waited for. */
  absentAfterMs?: number;
  /** Counted by the metrics: method, whether a usable answer came, and of which endpoint, from 1 on as configured. */
  onCall?: (method: string, ok: boolean, endpoint: number) => void;
}

export interface Question {
  method: string;
  params: unknown[];
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
/** Sends, and answers with the receipt as soon as there is one (EIP-7966). */
const SEND_AND_WAIT = "eth_sendRawTransactionSync";
/** As long as nodes wait by themselves, and a little more. */
const WAIT_MS = 32_000;
/** What an endpoint did not know, or did badly, is tried again after this long. */
const TRY_AGAIN_MS = 600_000;

/**
 * An answer that is longer than this ends its connection. Logs and receipts are the longest: a transfer's log is some 700
 * bytes of JSON, so this is room for 90,000 of them, where gateways end a search at 10,000.
 */
const MAX_ANSWER_BYTES = 64 * 1024 * 1024;
const AGENTS = { keepAliveTimeout: 30_000, maxResponseSize: MAX_ANSWER_BYTES };

export class ChainRpc {
  readonly #urls: readonly string[];
  readonly #timeoutMs: number;
  readonly #absentAfterMs: number;
  readonly #onCall: (method: string, ok: boolean, endpoint: number) => void;
  /** What leaves here as an error has no part of a URL in it that may be a key: nodes and libraries repeat them. */
  readonly #hide: Hide;
  readonly #agent = new Agent({ connections: 32, ...AGENTS });
  /** Requests that are held open by design have connections of their own. */
  readonly #waitingAgent = new Agent({ connections: 64, ...AGENTS });
  /** Per endpoint: until when it is not asked to wait for a block, or to take several questions at once. */
  readonly #waitsNotUntilMs: (number | undefined)[] = [];
  readonly #batchesNotUntilMs: (number | undefined)[] = [];
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
  call<T>(method: string, params: unknown[], options: { timeoutMs?: number } = {}): Promise<T> {
    return this.#first(method, (index) => this.#ask<T>(index, method, params, options.timeoutMs));
  }

  /**
   * Several questions to one endpoint in one request; each is answered or refused by itself. Where an endpoint takes
   * one at a time, they are asked beside each other. Throws ChainUnreachable where nobody answered.
   */
  callMany(questions: readonly Question[]): Promise<PromiseSettledResult<unknown>[]> {
    return this.#first(questions[0]?.method ?? "nothing", async (index) => {
      if (questions.length > 1 && isOver(this.#batchesNotUntilMs[index])) {
        const answers = await this.#askTogether(index, questions);
        if (answers && troubleIn(answers) === undefined) return answers;
        this.#batchesNotUntilMs[index] = performance.now() + TRY_AGAIN_MS;
      }
      const answers = await Promise.allSettled(
        questions.map(({ method, params }) => this.#ask(index, method, params)),
      );
      const trouble = troubleIn(answers);
      if (trouble !== undefined) throw trouble;
      return answers;
    });
  }

  async #first<T>(what: string, ask: (index: number) => Promise<T>): Promise<T> {
    if (this.#preferred !== 0 && Date.now() - this.#preferredSinceMs > RETURN_TO_FIRST_MS)
      this.#preferred = 0;
    const start = this.#preferred;
    let trouble: unknown;
    for (let step = 0; step < this.#urls.length; step += 1) {
      const index = (start + step) % this.#urls.length;
      try {
        const answer = await ask(index);
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
    throw new ChainUnreachable(`no RPC endpoint answered ${what}`, { cause: trouble });
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
      throw new ChainUnreachable("one endpoint refused and another did not respond", {
        cause: refusal,
      });
    throw new ChainUnreachable("no RPC endpoint accepted the transaction", { cause: trouble });
  }

  /** The endpoint that is asked first answers a send with the receipt, as far as is known. */
  get mayWait(): boolean {
    return isOver(this.#waitsNotUntilMs[this.#preferred]);
  }

  /**
   * Sends signed bytes and waits for their block, where the endpoint does that: its receipt. Else, and whatever goes
   * wrong, it is a broadcast, which alone says what is refused; the same bytes sent twice are sent once.
   */
  async broadcastAndWait(raw: Hex, signal: AbortSignal): Promise<unknown> {
    const index = this.#preferred;
    try {
      if (this.mayWait)
        return await this.#ask<unknown>(index, SEND_AND_WAIT, [raw], WAIT_MS, signal);
    } catch (error) {
      // Whoever gave up knows more: it was sent otherwise, or is in a block.
      if (signal.aborted) return undefined;
      const { kind } = classifyChainError(error);
      if (kind === "sent_not_mined" || (error instanceof ChainRefusal && error.code === WAITED))
        return undefined;
      if (kind === "method_missing" || kind === "unreachable" || kind === "rejected")
        this.noteNoWait(index);
    }
    await this.broadcast(raw);
    return undefined;
  }

  /** It was asked to answer with a block's receipt, and others knew it first: it is asked as before for a while. */
  noteNoWait(index = this.#preferred): void {
    this.#waitsNotUntilMs[index] = performance.now() + TRY_AGAIN_MS;
  }

  async close(): Promise<void> {
    await Promise.all([this.#agent.destroy(), this.#waitingAgent.destroy()]);
  }

  async #ask<T>(
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
      // Given up by us: it says nothing of the endpoint.
      if (waiting?.aborted) throw error;
      throw this.#silent(index, method, error);
    }
  }

  /** Undefined where the endpoint does not take several at once. */
  async #askTogether(
    index: number,
    questions: readonly Question[],
  ): Promise<PromiseSettledResult<unknown>[] | undefined> {
    const sent = questions.map((question) => ({
      jsonrpc: "2.0",
      id: this.#nextId++,
      ...question,
    }));
    const [first] = sent;
    let answers: unknown;
    try {
      answers = await this.#post(index, sent, this.#timeoutMs);
    } catch (error) {
      // What is no JSON is a proxy's page: it answers, and not to this.
      if (error instanceof SyntaxError) return undefined;
      throw this.#silent(index, first?.method ?? "nothing", error);
    }
    if (!Array.isArray(answers)) return undefined;
    const byId = new Map(
      (answers as ((Answer<unknown> & { id?: number }) | null)[]).map((one) => [one?.id, one]),
    );
    // One error for all, or ids that are not ours.
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

  /** The URL may carry a key: it is not repeated in the message, nor in its causes. */
  #silent(index: number, method: string, error: unknown): ChainUnreachable {
    if (!(error instanceof ChainUnreachable)) this.#onCall(method, false, index + 1);
    this.#silentSinceMs[index] ??= performance.now();
    return new ChainUnreachable(`RPC endpoint ${index + 1} did not answer ${method}`, {
      cause: hideInError(error, this.#hide),
    });
  }

  /** Bytes of a revert are hex; some nodes answer with text or an object that repeats the request. */
  #hideData(data: unknown): unknown {
    if (data === undefined || (typeof data === "string" && data.startsWith("0x"))) return data;
    return JSON.parse(this.#hide(JSON.stringify(data))) as unknown;
  }
}

/** What speaks of the endpoint and not of a question: another one may do better. */
function troubleIn(answers: readonly PromiseSettledResult<unknown>[]): unknown {
  for (const answer of answers)
    if (
      answer.status === "rejected" &&
      !(answer.reason instanceof ChainRefusal && !isEndpointTrouble(answer.reason))
    )
      return answer.reason as unknown;
  return undefined;
}

/** Of EIP-7966: it waits in the pool for longer than the node waits for it. */
const WAITED = 4;

const isOver = (untilMs: number | undefined): boolean =>
  untilMs === undefined || performance.now() >= untilMs;

interface Answer<T> {
  result?: T;
  error?: { code: number; message: string; data?: unknown };
}
