/**
 * Sends one JSON request over undici and reads the response. It is most of the cost of a single verify, so it creates
 * no stream, no AbortSignal and no URL object, and one timer limits its time.
 */
import type { Dispatcher } from "undici";

interface Place {
  readonly origin: string;
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
}

const places = new Map<string, Place>();

/**
 * Cached: there are few configured endpoints. `user:password@host` becomes a header, because undici ignores it in a
 * URL.
 */
function placeOf(url: string): Place {
  const known = places.get(url);
  if (known) return known;
  const { origin, pathname, search, username, password } = new URL(url);
  const pair = `${decodeURIComponent(username)}:${decodeURIComponent(password)}`;
  const place = {
    origin,
    path: pathname + search,
    headers: {
      "content-type": "application/json",
      ...(pair === ":" ? {} : { authorization: `Basic ${Buffer.from(pair).toString("base64")}` }),
    },
  };
  places.set(url, place);
  return place;
}

interface Timeout {
  readonly budgetMs: number;
  /** Lets the caller give up earlier. */
  readonly givenUp?: AbortSignal | undefined;
  /** Called when the dispatcher is done with the request, which may be after its time was over. */
  readonly onEnd?: (() => void) | undefined;
}

/** Rejects if there is no response in time, or none that is JSON. */
export async function postJson(
  dispatcher: Dispatcher,
  url: string,
  request: unknown,
  timeout: Timeout,
): Promise<unknown> {
  return JSON.parse(await post(dispatcher, url, JSON.stringify(request), timeout));
}

/** The body of the response, which counts whatever its status is. Rejects if there is none in time. */
export function post(
  dispatcher: Dispatcher,
  url: string,
  body: string,
  { budgetMs, givenUp, onEnd }: Timeout,
): Promise<string> {
  return new Promise((resolve, reject) => {
    // An invalid URL throws here, before the timer exists.
    const request = {
      method: "POST",
      body,
      // The timer below bounds the whole response.
      headersTimeout: 0,
      bodyTimeout: 0,
      ...placeOf(url),
    } as const;
    const answer = new Answer(resolve, reject, { budgetMs, givenUp, onEnd });
    try {
      dispatcher.dispatch(request, answer);
    } catch (error) {
      answer.fail(error);
    }
  });
}

class Answer implements Dispatcher.DispatchHandler {
  readonly #resolve: (answer: string) => void;
  readonly #reject: (error: unknown) => void;
  readonly #timer: NodeJS.Timeout;
  readonly #givenUp: AbortSignal | undefined;
  readonly #onEnd: (() => void) | undefined;
  readonly #abort = (): void => this.#stop(this.#givenUp?.reason as Error);
  #controller: Dispatcher.DispatchController | undefined;
  #stopped: Error | undefined;
  #chunks: Buffer[] = [];

  constructor(
    resolve: (answer: string) => void,
    reject: (error: unknown) => void,
    { budgetMs, givenUp, onEnd }: Timeout,
  ) {
    this.#resolve = resolve;
    this.#reject = reject;
    this.#timer = setTimeout(
      () => this.#stop(new Error(`no answer within ${budgetMs} ms`)),
      budgetMs,
    );
    this.#givenUp = givenUp;
    this.#onEnd = onEnd;
    givenUp?.addEventListener("abort", this.#abort);
    if (givenUp?.aborted === true) this.#abort();
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller;
    if (this.#stopped) controller.abort(this.#stopped);
  }

  /** A 1xx response (100 Continue) may come before the final one. */
  onResponseStart(): void {
    this.#chunks = [];
  }

  onResponseData(_controller: Dispatcher.DispatchController, chunk: Buffer): void {
    this.#chunks.push(chunk);
  }

  onResponseEnd(): void {
    this.#settle();
    this.#onEnd?.();
    const [first] = this.#chunks;
    const bytes = first && this.#chunks.length === 1 ? first : Buffer.concat(this.#chunks);
    this.#resolve(bytes.toString("utf8"));
  }

  onResponseError(_controller: Dispatcher.DispatchController, error: Error): void {
    this.fail(error);
  }

  fail(error: unknown): void {
    this.#settle();
    this.#onEnd?.();
    this.#reject(error);
  }

  #stop(reason: Error): void {
    this.#settle();
    this.#stopped = reason;
    this.#reject(reason);
    this.#controller?.abort(reason);
  }

  #settle(): void {
    clearTimeout(this.#timer);
    this.#givenUp?.removeEventListener("abort", this.#abort);
  }
}
