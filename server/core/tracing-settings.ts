/** Tracing settings, by the names that every OpenTelemetry SDK reads. The SDK reads the other names itself. */

export interface TracingSettings {
  /** Receives OTLP over HTTP, as JSON. */
  tracesUrl: string;
  serviceName: string;
  /** The exporter's credentials; secret. */
  headers: string | undefined;
}

/** Undefined: no traces, and the SDK is not loaded. */
export function readTracing(
  environment: Record<string, string | undefined>,
  problems: string[],
): TracingSettings | undefined {
  const read = (key: string): string | undefined => environment[key] || undefined;
  const base = read("OTEL_EXPORTER_OTLP_ENDPOINT");
  const own = read("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT");
  const serviceName = read("OTEL_SERVICE_NAME") ?? "purser";
  const headers = read("OTEL_EXPORTER_OTLP_HEADERS");
  const protocol = read("OTEL_EXPORTER_OTLP_PROTOCOL") ?? "http/json";
  const isOff =
    read("OTEL_SDK_DISABLED")?.toLowerCase() === "true" || read("OTEL_TRACES_EXPORTER") === "none";
  const [key, url] =
    own === undefined
      ? ["OTEL_EXPORTER_OTLP_ENDPOINT", base && `${base.replace(/\/$/, "")}/v1/traces`]
      : ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", own];
  if (url === undefined || isOff) return undefined;
  if (!/^https?:\/\/./.test(url) || !URL.canParse(url))
    problems.push(`${key} must be an http(s) URL`);
  if (protocol !== "http/json")
    problems.push(
      "OTEL_EXPORTER_OTLP_PROTOCOL must be http/json (collectors that accept http/protobuf also accept it)",
    );
  return { tracesUrl: url, serviceName, headers };
}
