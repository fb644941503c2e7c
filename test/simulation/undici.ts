// Takes the place of the module `undici` in the simulated service: a request reaches a server of the world, which may
// be slow, silent or gone.
import * as undici from "undici";
import { currentActor, type Actor, type Timeline } from "./time.ts";

export * from "undici";

export interface SimulatedRequest {
  method: string;
  url: URL;
  headers: Record<string, string>;
  body: string;
}
export interface SimulatedResponse {
  status: number;
  headers?: Record<string, string>;
  body: string;
}
/** Responds, or throws for a broken connection; undefined for a response that never comes. */
export type Server = (
  request: SimulatedRequest,
  from: Actor,
) => SimulatedResponse | undefined | Promise<SimulatedResponse | undefined>;

/** The servers of a world by origin. */
export class Network {
  readonly world: Timeline;
  readonly servers = new Map<string, Server>();

  constructor(world: Timeline) {
    this.world = world;
    networks.set(world, this);
  }

  latencyMs(): number {
    const { random } = this.world;
    const share = random.next();
    return random.next() < 0.95 ? 1 + share * 20 : 30 + share * 900;
  }
}
const networks = new WeakMap<Timeline, Network>();

interface Handler {
  onRequestStart?(controller: Controller, context: unknown): void;
  onResponseStart?(
    controller: Controller,
    status: number,
    headers: Record<string, string>,
    text: string,
  ): void;
  onResponseData?(controller: Controller, chunk: Buffer): void;
  onResponseEnd?(controller: Controller, trailers: object): void;
  onResponseError?(controller: Controller, error: Error): void;
  onConnect?(abort: (error?: Error) => void, context?: unknown): void;
  onHeaders?(status: number, headers: Buffer[], resume: () => void, text: string): boolean;
  onData?(chunk: Buffer): boolean;
  onComplete?(trailers: Buffer[]): void;
  onError?(error: Error): void;
}
interface Controller {
  abort(error: Error): void;
  pause(): void;
  resume(): void;
  aborted: boolean;
  reason: Error | null;
  paused: boolean;
}

const textOf = (body: unknown): string => (typeof body === "string" ? body : "");

export class Agent extends undici.Dispatcher {
  constructor(_options?: object) {
    super();
  }

  override dispatch(options: undici.Dispatcher.DispatchOptions, given: unknown): boolean {
    const handler = given as Handler;
    const actor = currentActor();
    const network = actor && networks.get(actor.world);
    if (!actor || !network) throw new Error("a simulated request outside of a simulated process");
    const { world } = actor;
    let isOver = false;
    const fail = (error: Error): void => {
      if (isOver) return;
      isOver = true;
      handler.onResponseError?.(controller, error);
      handler.onError?.(error);
    };
    const controller: Controller = {
      aborted: false,
      reason: null,
      paused: false,
      pause: () => undefined,
      resume: () => undefined,
      abort: (error) => {
        if (isOver) return;
        Object.assign(controller, { aborted: true, reason: error });
        fail(error);
      },
    };
    const url = new URL(options.path, String(options.origin));
    const request: SimulatedRequest = {
      method: options.method,
      url,
      headers: { ...(options.headers as Record<string, string>) },
      body: textOf(options.body),
    };
    handler.onRequestStart?.(controller, {});
    handler.onConnect?.((error) => controller.abort(error ?? new Error("aborted")), {});
    const label = `${actor.name} sends ${request.method} ${url.host} ${methodOf(request.body)}`;
    const respond = ({ status, headers = {}, body }: SimulatedResponse): void => {
      if (isOver) return;
      isOver = true;
      const bytes = Buffer.from(body);
      handler.onResponseStart?.(controller, status, headers, "");
      const raw = Object.entries(headers).flatMap((pair) => pair.map((text) => Buffer.from(text)));
      handler.onHeaders?.(status, raw, () => undefined, "");
      handler.onResponseData?.(controller, bytes);
      handler.onData?.(bytes);
      handler.onResponseEnd?.(controller, {});
      handler.onComplete?.([]);
    };
    world.after(network.latencyMs(), undefined, label, () => {
      if (actor.isGone) return;
      let isCut = false;
      const step = {
        actor,
        text: methodOf(request.body),
        cut: () => {
          if (!isCut) failed(Object.assign(new Error("read ECONNRESET"), { code: "ECONNRESET" }));
          isCut = true;
        },
      };
      const server = network.servers.get(url.origin);
      const back = (work: () => void): void =>
        void world.after(network.latencyMs(), actor, `response: ${label}`, work);
      const failed = (error: unknown): void => back(() => fail(error as Error));
      if (!server)
        return failed(Object.assign(new Error("connect ECONNREFUSED"), { code: "ECONNREFUSED" }));
      world.atStep({ ...step, moment: "before" });
      if (isCut || actor.isGone) return;
      try {
        const answer = server(request, actor);
        world.atStep({ ...step, moment: "after" });
        if (isCut) return;
        const use = (response: SimulatedResponse | undefined): void => {
          if (response) back(() => respond(response));
        };
        if (answer instanceof Promise) answer.then(use, failed);
        else use(answer);
      } catch (error) {
        failed(error);
      }
    });
    return true;
  }

  override close(): Promise<void>;
  override close(done: () => void): void;
  override close(done?: () => void): Promise<void> | void {
    return done ? done() : Promise.resolve();
  }
  override destroy(): Promise<void>;
  override destroy(...args: unknown[]): Promise<void>;
  override destroy(): Promise<void> {
    return Promise.resolve();
  }
}

/** The JSON-RPC method, for the trace. */
const methodOf = (body: string): string =>
  [...body.matchAll(/"method":"(\w+)"/g)].map(([, method]) => method).join(" ");
