/** Creates a request's logger only when it logs something, which most requests do not. */
import type { FastifyBaseLogger } from "fastify";

type Bindings = Parameters<FastifyBaseLogger["child"]>[0];
type Options = Parameters<FastifyBaseLogger["child"]>[1];
type Arguments = [object: unknown, message?: string, ...rest: unknown[]];

class LogOnDemand {
  readonly #parent: FastifyBaseLogger;
  readonly #bindings: Bindings;
  readonly #options: Options;
  #made: FastifyBaseLogger | undefined;

  constructor(parent: FastifyBaseLogger, bindings: Bindings, options: Options) {
    this.#parent = parent;
    this.#bindings = bindings;
    this.#options = options;
  }

  get #own(): FastifyBaseLogger {
    return (this.#made ??= this.#parent.child(this.#bindings, this.#options));
  }

  get level(): string {
    return this.#options?.level ?? this.#parent.level;
  }

  trace(...said: Arguments): void {
    this.#own.trace(...said);
  }
  debug(...said: Arguments): void {
    this.#own.debug(...said);
  }
  info(...said: Arguments): void {
    this.#own.info(...said);
  }
  warn(...said: Arguments): void {
    this.#own.warn(...said);
  }
  error(...said: Arguments): void {
    this.#own.error(...said);
  }
  fatal(...said: Arguments): void {
    this.#own.fatal(...said);
  }
  silent(): void {}

  child(bindings: Bindings, options?: Options): FastifyBaseLogger {
    return this.#own.child(bindings, options);
  }
}

/** Fastify's `childLoggerFactory`. */
export const logOnDemand = (
  parent: FastifyBaseLogger,
  bindings: Bindings,
  options: Options,
): FastifyBaseLogger => new LogOnDemand(parent, bindings, options);
