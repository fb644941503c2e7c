/** The headers of answers that mean something to a caller, and which answers carry them. */
import type { Schema } from "./components.ts";
import type { DeclaredRoute } from "./refusals.ts";

interface Header {
  description: string;
  required?: boolean;
  schema: Schema;
  applies: (route: DeclaredRoute, status: number) => boolean;
}

const RATED: Header["applies"] = (_route, status) => status !== 408 && status !== 431;

const HEADERS: Record<string, Header> = {
  "X-Request-Id": {
    description: "The id of this request in the log; include it when you report a problem",
    schema: { type: "string" },
    applies: () => true,
  },
  "RateLimit-Limit": {
    description: "Requests per minute of the tightest limit that applies",
    schema: { type: "integer" },
    applies: RATED,
  },
  "RateLimit-Remaining": {
    description: "Remaining requests",
    schema: { type: "integer" },
    applies: RATED,
  },
  "RateLimit-Reset": {
    description: "Seconds until all requests are available again",
    schema: { type: "integer" },
    applies: RATED,
  },
  "Retry-After": {
    description: "Seconds to wait before the same request may succeed",
    schema: { type: "integer" },
    applies: ({ config }, status) =>
      status === 429 || status === 503 || (status === 409 && config.idempotencyKey === true),
  },
  "WWW-Authenticate": {
    description: "How to authenticate",
    schema: { type: "string" },
    applies: (_route, status) => status === 401,
  },
  "Idempotent-Replayed": {
    description: "`true`: the first response to this key, returned again",
    schema: { type: "string", enum: ["true"] },
    // Nothing moved for other refusals: they are not kept. 409: that there was an answer is all that is.
    applies: ({ config }, status) =>
      config.idempotencyKey === true &&
      config.auth !== "facilitator" &&
      (status < 300 || [409, 502, 504].includes(status)),
  },
};

/** Their names, as they are written; which of them an answer of this status may carry. */
export function headerNames(route: DeclaredRoute, status: number): string[] {
  const own = Object.entries(route.config.answerHeaders ?? {});
  return [
    ...Object.keys(HEADERS).filter((name) => HEADERS[name]?.applies(route, status)),
    ...own.filter(([, { statuses }]) => statuses.includes(status)).map(([name]) => name),
  ];
}

/** The same, as an answer of the document has them. */
export function headersOf(route: DeclaredRoute, status: number): object {
  const own = route.config.answerHeaders ?? {};
  return Object.fromEntries(
    headerNames(route, status).map((name) => {
      const { description } = own[name] ?? {};
      return [
        name,
        description === undefined
          ? { $ref: `#/components/headers/${componentName(name)}` }
          : { description, schema: { type: "string" } },
      ];
    }),
  );
}

const componentName = (header: string): string => header.replaceAll("-", "");

export const headerComponents = (): object =>
  Object.fromEntries(
    Object.entries(HEADERS).map(([name, { applies: _applies, ...header }]) => [
      componentName(name),
      header,
    ]),
  );
