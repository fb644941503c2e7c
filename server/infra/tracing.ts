/**
 * Traces from a request to the block that contains its payment, if OTEL_EXPORTER_OTLP_ENDPOINT is set. Otherwise no
 * part of OpenTelemetry is loaded, and each call here is one comparison. A span names the operation, the agent, the
 * payment and the outcome. It never contains a URL, third-party text or anything signed, and our trace ids are sent to
 * no third party.
 */
import fp from "fastify-plugin";
import type { FastifyRequest } from "fastify";

export type TraceAttributes = Readonly<Record<string, string | number | boolean>>;

interface SpanStart {
  /** The parent (W3C traceparent); null starts a new trace. */
  parent: string | null;
  attributes?: TraceAttributes;
  /** Other traces that it is related to. */
  links?: readonly string[];
  /** Wall-clock time. */
  startMs?: number;
}

/** A span for work that is not enclosed by one call. */
export interface OpenSpan {
  readonly traceparent: string;
  within<T>(name: string, work: () => Promise<T>): Promise<T>;
  end(attributes?: TraceAttributes, endMs?: number): void;
}

/** Implemented by tracing-sdk.ts. */
export interface Tracer {
  within<T>(name: string, attributes: TraceAttributes, work: () => Promise<T>): Promise<T>;
  open(name: string, start: SpanStart): OpenSpan;
  here(): string | null;
  mark(attributes: TraceAttributes): void;
  link(traceparent: string): void;
  /** `run` and everything that follows from it is in the span. */
  request(name: string, request: FastifyRequest, run: () => void): RequestSpan;
}

interface RequestSpan {
  /** Re-enters the span where events of the request body have lost it. */
  resume(run: () => void): void;
  end(attributes: TraceAttributes, isFault: boolean): void;
}

/** One per process, as in OpenTelemetry itself. */
let tracer: Tracer | undefined;
let users = 0;
let stop: (() => Promise<void>) | undefined;

/**
 * Runs the work in a child span of the current trace. Without tracing, work that is done synchronously stays
 * synchronous.
 */
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

/** Wraps a function so that each call is traced. */
export const tracedAs =
  <Args extends unknown[], T>(name: string, work: (...args: Args) => Promise<T>) =>
  (...args: Args): Promise<T> =>
    traced(name, {}, () => work(...args));

/** Adds attributes to the current span. */
export const mark = (attributes: TraceAttributes): void => tracer?.mark(attributes);

/** Links the current span to another trace. */
export function linkTrace(traceparent: string | null | undefined): void {
  if (tracer !== undefined && typeof traceparent === "string") tracer.link(traceparent);
}

/** The traceparent with which another process continues this trace; null if there is none. */
export const currentTraceparent = (): string | null => tracer?.here() ?? null;

export const openSpan = (name: string, start: SpanStart): OpenSpan | undefined =>
  tracer?.open(name, start);

/** Records a past operation in the trace of the request that caused it. */
export function recordSpan(
  name: string,
  { endMs, ...start }: SpanStart & { parent: string; endMs?: number },
): void {
  tracer?.open(name, start).end({}, endMs);
}

/** Health checks every few seconds and static files would fill the collector. */
const isTraced = ({ routeOptions: { url }, is404 }: FastifyRequest): boolean =>
  !is404 && url !== undefined && /^\/(api\/(?!health$|ready$)|mcp$|oauth\/)/.test(url);

declare module "fastify" {
  interface FastifyRequest {
    traceSpan: RequestSpan | undefined;
  }
}

export default fp(
  async (app) => {
    const { tracesUrl } = app.config;
    if (tracesUrl === undefined) return;
    users += 1;
    if (tracer === undefined) {
      const { startTracing } = await import("./tracing-sdk.ts");
      const started = startTracing(tracesUrl, (reason) =>
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
