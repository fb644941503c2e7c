/**
 * One JSON question to an endpoint, and its answer. Beside a verify's own work this is most of what it costs when it
 * comes alone: no streams, no signal and no URL is made for it, and what limits its time is one timer that is cleared.
 */
import type { Dispatcher } from "undici";

interface Place {
  readonly origin: string;
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
}

const places = new Map<string, Place>();

/** Of the few endpoints that are configured. `https://user:password@host` is a header: undici leaves it out of a URL. */
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

export interface Patience {
  readonly budgetMs: number;
  /** Whoever asked may give up before. */
  readonly givenUp?: AbortSignal | undefined;
}

/** Rejects where there is no answer in time, or none that is JSON; whatever its status, an answer is one. */
export function postJson(
  dispatcher: Dispatcher,
  url: string,
  question: unknown,
  { budgetMs, givenUp }: Patience,
): Promise<unknown> {
  return new Promise((resolve, reject) => {
    // What cannot be asked throws here, before there is a timer.
    const asked = {
      method: "POST",
      body: JSON.stringify(question),
      // The answer's own timer bounds all of it.
      headersTimeout: 0,
      bodyTimeout: 0,
      ...placeOf(url),
    } as const;
    const answer = new Answer(resolve, reject, budgetMs, givenUp);
    try {
      dispatcher.dispatch(asked, answer);
    } catch (error) {
      answer.fail(error);
    }
  });
}

class Answer implements Dispatcher.DispatchHandler {
  readonly #resolve: (answer: unknown) => void;
  readonly #reject: (error: unknown) => void;
  readonly #timer: NodeJS.Timeout;
  readonly #givenUp: AbortSignal | undefined;
  readonly #giveUp = (): void => this.#stop(this.#givenUp?.reason as Error);
  #controller: Dispatcher.DispatchController | undefined;
  #stopped: Error | undefined;
  #chunks: Buffer[] = [];

  constructor(
    resolve: (answer: unknown) => void,
    reject: (error: unknown) => void,
    budgetMs: number,
    givenUp: AbortSignal | undefined,
  ) {
    this.#resolve = resolve;
    this.#reject = reject;
    this.#timer = setTimeout(
      () => this.#stop(new Error(`no answer within ${budgetMs} ms`)),
      budgetMs,
    );
    this.#givenUp = givenUp;
    givenUp?.addEventListener("abort", this.#giveUp);
    if (givenUp?.aborted === true) this.#giveUp();
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller;
    if (this.#stopped) controller.abort(this.#stopped);
  }

  /** Before the answer there may be another head: 100 Continue. */
  onResponseStart(): void {
    this.#chunks = [];
  }

  onResponseData(_controller: Dispatcher.DispatchController, chunk: Buffer): void {
    this.#chunks.push(chunk);
  }

  onResponseEnd(): void {
    this.#settle();
    const [first] = this.#chunks;
    const bytes = first && this.#chunks.length === 1 ? first : Buffer.concat(this.#chunks);
    try {
      this.#resolve(JSON.parse(bytes.toString("utf8")));
    } catch (error) {
      this.#reject(error);
    }
  }

  onResponseError(_controller: Dispatcher.DispatchController, error: Error): void {
    this.fail(error);
  }

  fail(error: unknown): void {
    this.#settle();
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
    this.#givenUp?.removeEventListener("abort", this.#giveUp);
  }
}
