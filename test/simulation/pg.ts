// Takes the place of the module `pg` in the simulated service: each connection of a simulated process stands for a real
// one that stays open between worlds. When a statement runs, and when its response arrives, is up to the world.
import { EventEmitter } from "node:events";
import { escapeIdentifier, escapeLiteral, Pool as RealPool } from "pg";
import { currentActor, type Actor } from "./time.ts";
import { databaseOf, type Session, type Statement } from "./database.ts";

export { DatabaseError, TypeOverrides, types, defaults, Query, Result } from "pg";

/** The part of a connection that the service looks at: the bytes of its socket. */
class Wire extends EventEmitter {
  readonly stream = {
    bytesRead: 0,
    bytesWritten: 0,
    destroyed: false,
    destroy: (error?: Error): void => this.#lose(error),
  };
  readonly #lose: (error?: Error) => void;

  constructor(lose: (error?: Error) => void) {
    super();
    this.#lose = lose;
  }
}

interface Config {
  options?: string;
  types?: unknown;
  application_name?: string;
}

/** For callers with a callback. */
async function settle(work: Promise<unknown>, done: Callback | (() => void)): Promise<void> {
  let failure: Error | null = null;
  try {
    await work;
  } catch (error) {
    failure = error as Error;
  }
  done(failure);
}

type Callback = (error: Error | null, result?: unknown) => void;

export class Client extends EventEmitter {
  readonly connection: Wire;
  host = "";
  port = 0;
  _queryable = true;
  _ending = false;
  readonly #config: Config;
  readonly #actor: Actor;
  #session: Session | undefined;
  #waiting: { statement: Statement; done: Callback }[] = [];
  #active: { statement: Statement; done: Callback } | undefined;

  constructor(config: Config = {}) {
    super();
    const actor = currentActor();
    if (!actor) throw new Error("a simulated connection outside of a simulated process");
    this.#actor = actor;
    this.#config = config;
    this.connection = new Wire((error) => this.#lose(error));
  }

  connect(): Promise<this>;
  connect(done: Callback): void;
  connect(done?: Callback): Promise<this> | void {
    const connecting = databaseOf(this.#actor)
      .connect(this.#actor, this.#config.options ?? "", {
        lost: (error) => this.#lose(error),
        notify: (channel, payload) => this.emit("notification", { channel, payload }),
      })
      .then((session) => {
        if (this._ending) {
          session.end();
          throw new Error("Connection terminated");
        }
        this.#session = session;
        this.connection.stream.bytesRead += 1;
        this.#next();
        return this;
      });
    if (!done) return connecting;
    void settle(connecting, done);
  }

  query(
    first: string | Record<string, unknown>,
    values?: unknown[] | Callback,
    callback?: Callback,
  ): Promise<unknown> | undefined {
    const config = typeof first === "string" ? { text: first } : first;
    const done = typeof values === "function" ? values : callback;
    const statement: Statement = {
      ...(config as { text: string }),
      ...(Array.isArray(values) && { values }),
      types: config["types"] ?? this.#config.types,
    };
    if (done) {
      this.#submit(statement, done);
      return undefined;
    }
    return new Promise((resolve, reject) =>
      this.#submit(statement, (error, result) => (error ? reject(error) : resolve(result))),
    );
  }

  #submit(statement: Statement, done: Callback): void {
    if (!this._queryable || this._ending) {
      const why = this._ending
        ? "Client was closed and is not queryable"
        : "Client has encountered a connection error and is not queryable";
      process.nextTick(() => done(new Error(why)));
      return;
    }
    this.#waiting.push({ statement, done });
    this.#next();
  }

  #next(): void {
    if (this.#active || !this.#session) return;
    const next = this.#waiting.shift();
    if (!next) return void this.emit("drain");
    this.#active = next;
    this.connection.stream.bytesWritten += 1;
    this.#session.run(next.statement, (error, result) => {
      if (this.#active !== next) return;
      this.#active = undefined;
      this.connection.stream.bytesRead += 1;
      if (error) this.connection.emit("errorMessage", error);
      this.connection.emit("readyForQuery");
      next.done(error, result);
      this.#next();
    });
  }

  /** The connection is gone: what was open fails, and whether it was carried out is unknown. */
  #lose(error = new Error("Connection terminated unexpectedly")): void {
    if (this.connection.stream.destroyed) return;
    this.connection.stream.destroyed = true;
    this._queryable = false;
    this.#session?.end();
    const open = [...(this.#active ? [this.#active] : []), ...this.#waiting];
    this.#active = undefined;
    this.#waiting = [];
    this.connection.emit("error", error);
    process.nextTick(() => {
      for (const { done } of open) done(error);
      if (!this._ending) this.emit("error", error);
      this.emit("end");
    });
  }

  end(): Promise<void>;
  end(done: () => void): void;
  end(done?: () => void): Promise<void> | void {
    this._ending = true;
    const ended = new Promise<void>((resolve) => {
      if (this.connection.stream.destroyed) return resolve();
      this.once("end", resolve);
      if (!this.#active) this.#lose(new Error("Connection terminated"));
      else this.once("drain", () => this.#lose(new Error("Connection terminated")));
    });
    if (!done) return ended;
    void settle(ended, done);
  }

  ref(): void {}
  unref(): void {}
  escapeIdentifier(text: string): string {
    return escapeIdentifier(text);
  }
  escapeLiteral(text: string): string {
    return escapeLiteral(text);
  }
}

export class Pool extends RealPool {
  constructor(options: object) {
    super({ Client, ...options } as never);
  }
}
