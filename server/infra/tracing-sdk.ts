/** The OpenTelemetry SDK; loaded only where traces are configured. */
import { setTimeout as sleep } from "node:timers/promises";
import {
  context,
  diag,
  DiagLogLevel,
  isSpanContextValid,
  ROOT_CONTEXT,
  SpanKind,
  SpanStatusCode,
  trace,
  type Context,
  type Span,
  type SpanContext,
} from "@opentelemetry/api";
import { AsyncLocalStorageContextManager } from "@opentelemetry/context-async-hooks";
import { OTLPTraceExporter } from "@opentelemetry/exporter-trace-otlp-http";
import {
  defaultResource,
  detectResources,
  envDetector,
  resourceFromAttributes,
} from "@opentelemetry/resources";
import { BasicTracerProvider, BatchSpanProcessor } from "@opentelemetry/sdk-trace-base";
import { ApiError } from "../errors.ts";
import type { Tracer, TraceAttributes } from "./tracing.ts";
import { VERSION } from "./version.ts";

// For the doctor. In a compiled program an `import()` of this CommonJS package itself has no named exports.
export { OTLPTraceExporter };

/** A collector that hangs does not delay the shutdown for longer. */
const FLUSH_MS = 3_000;
const REPORT_EVERY_MS = 60_000;

export function startTracing(
  tracesUrl: string,
  onTrouble: (reason: string) => void,
): { tracer: Tracer; stop: () => Promise<void> } {
  reportProblem(onTrouble);
  const provider = new BasicTracerProvider({
    resource: defaultResource()
      .merge(
        resourceFromAttributes({
          "service.name": "purser",
          "service.version": VERSION,
          "process.pid": process.pid,
        }),
      )
      .merge(detectResources({ detectors: [envDetector] })),
    // Its queue is bounded: what the collector does not accept in time is dropped.
    spanProcessors: [new BatchSpanProcessor(new OTLPTraceExporter({ url: tracesUrl }))],
  });
  const contexts = new AsyncLocalStorageContextManager().enable();
  context.setGlobalContextManager(contexts);
  return {
    tracer: tracerOf(provider.getTracer("purser", VERSION)),
    async stop() {
      const flushed = provider.shutdown().catch(() => undefined);
      await Promise.race([flushed, sleep(FLUSH_MS, undefined, { ref: false })]);
      context.disable();
      diag.disable();
    },
  };
}

function tracerOf(tracer: ReturnType<BasicTracerProvider["getTracer"]>): Tracer {
  const runIn = async <T>(span: Span, parent: Context, work: () => Promise<T>): Promise<T> => {
    try {
      return await context.with(trace.setSpan(parent, span), work);
    } catch (error) {
      failed(span, error);
      throw error;
    } finally {
      span.end();
    }
  };
  return {
    within(name, attributes, work) {
      const parent = context.active();
      // Work outside a trace does not start one: periodic background work would be most of the traces.
      if (trace.getSpan(parent) === undefined) return work();
      return runIn(tracer.startSpan(name, { attributes }, parent), parent, work);
    },
    open(name, { parent, attributes, links = [], startMs }) {
      const from = parent === null ? ROOT_CONTEXT : contextOf(parent);
      const span = tracer.startSpan(
        name,
        {
          ...(attributes && { attributes }),
          ...(startMs !== undefined && { startTime: startMs }),
          links: links.flatMap((link) => {
            const found = parse(link);
            return found ? [{ context: found }] : [];
          }),
        },
        from,
      );
      const within = trace.setSpan(from, span);
      return {
        traceparent: format(span.spanContext()),
        within: (child, work) => runIn(tracer.startSpan(child, {}, within), within, work),
        end(more: TraceAttributes = {}, endMs?: number) {
          span.setAttributes(more);
          span.end(endMs);
        },
      };
    },
    here() {
      const span = trace.getSpan(context.active());
      return span ? format(span.spanContext()) : null;
    },
    mark: (attributes) => void trace.getSpan(context.active())?.setAttributes(attributes),
    link(traceparent) {
      const other = parse(traceparent);
      const span = trace.getSpan(context.active());
      if (other && span && other.traceId !== span.spanContext().traceId)
        span.addLink({ context: other });
    },
    request(name, request, run) {
      // An injected request belongs to the trace of the code that injected it; a network request without a traceparent
      // starts its own.
      const isOwnCall = "_lightMyRequest" in request.raw;
      const sent = parse(String(request.headers["traceparent"]));
      const from = sent
        ? trace.setSpanContext(ROOT_CONTEXT, { ...sent, isRemote: true })
        : isOwnCall
          ? context.active()
          : ROOT_CONTEXT;
      const span = tracer.startSpan(
        name,
        {
          kind: SpanKind.SERVER,
          attributes: {
            "http.request.method": request.method,
            "http.route": request.routeOptions.url ?? "",
            "purser.request_id": request.id,
          },
        },
        from,
      );
      const within = trace.setSpan(from, span);
      context.with(within, run);
      return {
        resume: (again) => context.with(within, again),
        end(attributes, isFault) {
          span.setAttributes(attributes);
          if (isFault) span.setStatus({ code: SpanStatusCode.ERROR });
          span.end();
        },
      };
    },
  };
}

/** Only the code: error messages may quote third-party text. */
function failed(span: Span, error: unknown): void {
  const type =
    error instanceof ApiError ? error.code : error instanceof Error ? error.name : "unknown";
  span.setAttribute("error.type", type);
  span.setStatus({ code: SpanStatusCode.ERROR });
}

/** W3C Trace Context, version 00. tracestate is third-party text and is not used. */
const TRACEPARENT = /^00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})$/;

function parse(text: string): SpanContext | undefined {
  const [, traceId = "", spanId = "", flags = ""] = TRACEPARENT.exec(text) ?? [];
  const found = { traceId, spanId, traceFlags: Number.parseInt(flags, 16) & 1, isRemote: true };
  return isSpanContextValid(found) ? found : undefined;
}

const format = ({ traceId, spanId, traceFlags }: SpanContext): string =>
  `00-${traceId}-${spanId}-${traceFlags & 1 ? "01" : "00"}`;

function contextOf(traceparent: string): Context {
  const found = parse(traceparent);
  return found ? trace.setSpanContext(ROOT_CONTEXT, found) : ROOT_CONTEXT;
}

/** The SDK's messages contain the collector's URL and response, so only the code is reported, once a minute. */
function reportProblem(onTrouble: (reason: string) => void): void {
  let reportedAtMs = Number.NEGATIVE_INFINITY;
  const report = (message: string): void => {
    const now = performance.now();
    if (now - reportedAtMs < REPORT_EVERY_MS) return;
    reportedAtMs = now;
    const [, code] = /"code":"?([A-Z0-9_]{1,40})/.exec(message) ?? [];
    onTrouble(code ?? "no code");
  };
  const silent = (): void => undefined;
  diag.setLogger(
    { error: report, warn: silent, info: silent, debug: silent, verbose: silent },
    { logLevel: DiagLogLevel.ERROR, suppressOverrideMessage: true },
  );
}
