/**
 * Traces, one from a request to the block that holds its payment, where OTEL_EXPORTER_OTLP_ENDPOINT says where to.
 * Otherwise nothing of OpenTelemetry is loaded, and each call here is one comparison.
 *
 * A span names what was done, for which agent and payment, and how it ended. It never has a URL, a text of a third
 * party, or anything signed; and nobody outside is sent our trace.
 */
import fp from "fastify-plugin";
import type { FastifyRequest } from "fastify";
import type { TracingSettings } from "../core/tracing-settings.ts";

export type TraceAttributes = Readonly<Record<string, string | number | boolean>>;

export interface SpanStart {
  /** Whose child it is (W3C traceparent); null begins a trace of its own. */
  parent: string | null;
  attributes?: TraceAttributes;
  /** Other traces it belongs to as well. */
  links?: readonly string[];
  /** By the wall clock. */
  startMs?: number;
}

/** For work that no one call encloses. */
export interface OpenSpan {
  readonly traceparent: string;
  within<T>(name: string, work: () => Promise<T>): Promise<T>;
  end(attributes?: TraceAttributes, endMs?: number): void;
}

/** What tracing-sdk.ts does. */
export interface Tracer {
  within<T>(name: string, attributes: TraceAttributes, work: () => Promise<T>): Promise<T>;
  open(name: string, start: SpanStart): OpenSpan;
  here(): string | null;
  mark(attributes: TraceAttributes): void;
  link(traceparent: string): void;
  /** `run` and all that follows from it is in the span. */
  request(name: string, request: FastifyRequest, run: () => void): RequestSpan;
}

export interface RequestSpan {
  /** Once more, where the body's events have lost it. */
  resume(run: () => void): void;
  end(attributes: TraceAttributes, isFault: boolean): void;
}

/** One in a process, as OpenTelemetry itself has it. */
let tracer: Tracer | undefined;
let users = 0;
let stop: (() => Promise<void>) | undefined;

/** The work, as a part of what is under way here. Work that is done at once is not waited for where nobody traces. */
export function traced<T>(
  name: string,
  attributes: TraceAttributes,
  work: () => Promise<T>,
): Promise<T>;
export function traced<T>(
  name: string,
  attributes: TraceAttributes,
  work: () => Promise<T> | undefined,
): Promise<T> | undefined;
export function traced<T>(
  name: string,
  attributes: TraceAttributes,
  work: () => Promise<T> | undefined,
): Promise<T | undefined> | undefined {
  return tracer === undefined ? work() : tracer.within(name, attributes, async () => work());
}

/** The same of each call of it. */
export const tracedAs =
  <Args extends unknown[], T>(name: string, work: (...args: Args) => Promise<T>) =>
  (...args: Args): Promise<T> =>
    traced(name, {}, () => work(...args));

/** Says more of what is under way here. */
export const mark = (attributes: TraceAttributes): void => tracer?.mark(attributes);

/** What is under way here is about that trace, too. */
export function linkTrace(traceparent: string | null | undefined): void {
  if (tracer !== undefined && typeof traceparent === "string") tracer.link(traceparent);
}

/** What another process needs to go on with this trace; null where there is none. */
export const traceHere = (): string | null => tracer?.here() ?? null;

export const openSpan = (name: string, start: SpanStart): OpenSpan | undefined =>
  tracer?.open(name, start);

/** What happened at that time, in the trace of whoever asked for it. */
export function recordSpan(
  name: string,
  { endMs, ...start }: SpanStart & { parent: string; endMs?: number },
): void {
  tracer?.open(name, start).end({}, endMs);
}

/** What is asked every few seconds, and what only hands out files, would be all that a collector sees. */
const isTraced = ({ routeOptions: { url }, is404 }: FastifyRequest): boolean =>
  !is404 && url !== undefined && /^\/(api\/(?!health$|ready$)|mcp$|oauth\/)/.test(url);

declare module "fastify" {
  interface FastifyRequest {
    traceSpan: RequestSpan | undefined;
  }
}

export default fp(
  async (app) => {
    const settings: TracingSettings | undefined = app.config.tracing;
    if (settings === undefined) return;
    users += 1;
    if (tracer === undefined) {
      const { startTracing } = await import("./tracing-sdk.ts");
      const started = startTracing(settings, (reason) =>
        app.log.warn({ reason }, "traces could not be exported; payments continue without traces"),
      );
      ({ tracer, stop } = started);
    }
    app.decorateRequest("traceSpan", undefined);
    app.addHook("onRequest", (request, _reply, done) => {
      if (tracer === undefined || !isTraced(request)) return done();
      const name = `${request.method} ${request.routeOptions.url ?? ""}`;
      request.traceSpan = tracer.request(name, request, done);
    });
    app.addHook("preValidation", (request, _reply, done) => {
      if (request.traceSpan === undefined) return done();
      request.traceSpan.resume(done);
    });
    app.addHook("onResponse", async (request, reply) => {
      const status = reply.statusCode;
      request.traceSpan?.end({ "http.response.status_code": status }, status >= 500);
    });
    app.addHook("onClose", async () => {
      users -= 1;
      if (users > 0) return;
      const stopping = stop;
      tracer = undefined;
      stop = undefined;
      await stopping?.();
    });
  },
  { name: "tracing" },
);
