// Runs the service's modules without an HTTP server: does what their wiring asks of Fastify (decorate, register, hooks),
// and calls a route's handler directly. A process starts in milliseconds, so a world can have many of them.
import { EventEmitter } from "node:events";
import type { FastifyInstance, FastifyPluginAsync } from "fastify";
import type { ApiError } from "../../server/errors.ts";
import { toApiError } from "../../server/plugins/http/errors.ts";

/** Set on plugins that are to see, and add to, the scope of their parent. */
const SHARES_SCOPE = Symbol.for("skip-override");

type Wired = Record<string | symbol, unknown>;

/** A client's connection, as the service sees it: whether its response was written completely, or it broke before. */
export class Connection extends EventEmitter {
  destroyed = false;
  writableFinished = false;

  finish(): void {
    if (this.destroyed) return;
    this.writableFinished = true;
    this.emit("finish");
    this.emit("close");
  }

  break(): void {
    if (this.destroyed || this.writableFinished) return;
    this.destroyed = true;
    this.emit("close");
  }
}
type Handler = (this: unknown, request: object, reply: object) => unknown;
type Hook = (app: unknown) => unknown;

export interface Answer {
  status: number;
  body: Record<string, unknown>;
}

/** No answer arrived: the code says why. */
export interface Lost {
  status: 0;
  body: Record<string, unknown>;
}

/** A text of an answer, or none. */
export const wordOf = (value: unknown): string => (typeof value === "string" ? value : "");

export interface Call {
  /** As in the route: "POST /api/agents/spend". */
  route: string;
  body?: unknown;
  params?: Record<string, string>;
  query?: Record<string, unknown>;
  headers?: Record<string, string>;
  /** Who is calling: what the authentication of the route would have found. */
  as?: Record<string, unknown>;
}

export class Host {
  readonly app: FastifyInstance;
  readonly #hooks = new Map<string, Hook[]>();
  readonly #routes = new Map<string, Handler>();
  readonly #request: Wired = {};
  readonly #reply: Wired = {};
  #requests = 0;

  constructor(decorations: Wired) {
    this.app = this.#scope({ ...decorations, server: new EventEmitter() }) as never;
  }

  #scope(own: Wired, parent: object = Object.prototype): Wired {
    const scope = Object.assign(Object.create(parent) as Wired, own);
    const route = (method: string) => (url: string, options: unknown, handler?: Handler) => {
      const found = handler ?? (options as { handler?: Handler }).handler ?? options;
      this.#routes.set(`${method} ${url}`, found as Handler);
      return scope;
    };
    const added = (target: Wired) => (name: string, value: unknown) => {
      target[name] = value;
      return scope;
    };
    const nothing = (): Wired => scope;
    return Object.assign(scope, {
      decorate: added(scope),
      decorateRequest: added(this.#request),
      decorateReply: added(this.#reply),
      hasDecorator: (name: string) => name in scope,
      register: async (plugin: FastifyPluginAsync, options: object = {}) => {
        const loaded = (plugin as { default?: FastifyPluginAsync }).default ?? plugin;
        const isShared = SHARES_SCOPE in loaded;
        const inner = isShared ? scope : this.#scope({}, scope);
        await loaded.call(inner as never, inner as never, options as never);
      },
      addHook: (name: string, hook: Hook) => {
        this.#hooks.set(name, [...(this.#hooks.get(name) ?? []), hook]);
        return scope;
      },
      route: (options: { method: string | string[]; url: string; handler: Handler }) => {
        for (const method of [options.method].flat()) route(method)(options.url, options.handler);
        return scope;
      },
      ...Object.fromEntries(
        ["get", "post", "put", "patch", "delete", "head", "options"].map((name) => [
          name,
          route(name.toUpperCase()),
        ]),
      ),
      withTypeProvider: nothing,
      addContentTypeParser: nothing,
      removeContentTypeParser: nothing,
      setErrorHandler: nothing,
      setNotFoundHandler: nothing,
      setValidatorCompiler: nothing,
      setSerializerCompiler: nothing,
      addSchema: nothing,
      getDefaultJsonParser: () => nothing,
      after: nothing,
    });
  }

  register(plugin: FastifyPluginAsync): Promise<void> {
    return (this.app.register as unknown as (plugin: unknown) => Promise<void>)(plugin);
  }

  async ready(): Promise<void> {
    await this.#run("onReady");
    await this.#run("onListen");
  }

  /** Runs hooks that take no callback: those of the application itself. */
  async #run(name: string): Promise<void> {
    for (const hook of this.#hooks.get(name) ?? []) await hook.call(this.app, this.app);
  }

  /** `drained` resolves when no request is in progress. */
  async close(drained: () => Promise<void>): Promise<void> {
    await this.#run("preClose");
    await drained();
    for (const hook of (this.#hooks.get("onClose") ?? []).toReversed())
      await hook.call(this.app, this.app);
  }

  async call(
    { route, body, params = {}, query = {}, headers = {}, as = {} }: Call,
    raw = new Connection(),
  ): Promise<Answer> {
    const handler = this.#routes.get(route);
    if (!handler) throw new Error(`no module has the route ${route}`);
    this.#requests += 1;
    let status = 200;
    let sent: unknown;
    const reply: Wired = Object.assign(Object.create(this.#reply) as Wired, {
      raw,
      request: {},
      elapsedTime: 0,
      header: () => reply,
      headers: () => reply,
      getHeader: () => undefined,
      type: () => reply,
      code: (code: number) => {
        status = code;
        return reply;
      },
      status: (code: number) => {
        status = code;
        return reply;
      },
      send: (payload: unknown) => {
        sent = payload;
        return reply;
      },
      log: this.app.log,
    });
    const request = Object.assign(Object.create(this.#request) as Wired, {
      id: `req_${this.#requests}`,
      body,
      params,
      query,
      headers,
      raw,
      log: this.app.log,
      server: this.app,
      ip: "203.0.113.1",
      ...as,
    });
    reply["request"] = request;
    try {
      const returned = await handler.call(this.app, request, reply);
      return { status, body: bodyOf(returned === reply ? sent : returned) };
    } catch (error) {
      const known = toApiError(error as ApiError);
      if (known.code === "internal_error") throw error;
      return {
        status: known.status,
        body: { ...known.extra, code: known.code, message: known.message },
      };
    }
  }
}

function bodyOf(sent: unknown): Record<string, unknown> {
  const value: unknown = typeof sent === "string" ? JSON.parse(sent) : sent;
  return (value ?? {}) as Record<string, unknown>;
}
