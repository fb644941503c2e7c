/** Response headers that matter to clients, and the responses that have them. */
import type { Schema } from "./components.ts";
import type { DeclaredRoute } from "./refusals.ts";

interface Header {
  description: string;
  required?: boolean;
  schema: Schema;
  applies: (route: DeclaredRoute, status: number) => boolean;
  /**
   * A header of nearly every response. The document's introduction describes it, because generators write code for
   * each header of each response of each route.
   */
  isGeneral?: true;
}

const RATED: Header["applies"] = (_route, status) => status !== 408 && status !== 431;

const HEADERS: Record<string, Header> = {
  "X-Request-Id": {
    description: "The id of this request in the log; include it when you report a problem",
    schema: { type: "string" },
    applies: () => true,
    isGeneral: true,
  },
  "RateLimit-Limit": {
    description: "Requests per minute of the tightest limit that applies",
    schema: { type: "integer" },
    applies: RATED,
    isGeneral: true,
  },
  "RateLimit-Remaining": {
    description: "Remaining requests",
    schema: { type: "integer" },
    applies: RATED,
    isGeneral: true,
  },
  "RateLimit-Reset": {
    description: "Seconds until all requests are available again",
    schema: { type: "integer" },
    applies: RATED,
    isGeneral: true,
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
    // Other refusals moved nothing and are not stored. 409: only the fact that a response existed is stored.
    applies: ({ config }, status) =>
      config.idempotencyKey === true &&
      config.auth !== "facilitator" &&
      (status < 300 || [409, 502, 504].includes(status)),
  },
};

const SPECIAL = Object.fromEntries(
  Object.entries(HEADERS).filter(([, { isGeneral }]) => !isGeneral),
);

/** For the introduction of the document. */
export const GENERAL_HEADERS = Object.entries(HEADERS)
  .filter(([, { isGeneral }]) => isGeneral)
  .map(([name, { description }]) => `\`${name}\` (${description.toLowerCase()})`)
  .join(", ");

/** The names of the headers that a response of this status may have. */
export function headerNames(route: DeclaredRoute, status: number): string[] {
  const own = Object.entries(route.config.answerHeaders ?? {});
  return [
    ...Object.keys(HEADERS).filter((name) => HEADERS[name]?.applies(route, status)),
    ...own.filter(([, { statuses }]) => statuses.includes(status)).map(([name]) => name),
  ];
}

/** Those of them that are not general, in the form of the OpenAPI document; absent if there is none. */
export function headersOf(route: DeclaredRoute, status: number): { headers?: object } {
  const own = route.config.answerHeaders ?? {};
  const names = headerNames(route, status).filter((name) => !HEADERS[name]?.isGeneral);
  if (names.length === 0) return {};
  const headers = Object.fromEntries(
    names.map((name) => {
      const { description } = own[name] ?? {};
      return [
        name,
        description === undefined ? reference(name) : { description, schema: { type: "string" } },
      ];
    }),
  );
  return { headers };
}

/** The statuses of refusals that have a header of their own. */
const MARKED_STATUSES = [401, 409, 429, 502, 503, 504];

/** The headers that a refusal may have on some route, for a range of statuses such as `4XX`. */
export function headersOfRefusals(range: string): object {
  const statuses = MARKED_STATUSES.filter((status) => `${status}`[0] === range[0]);
  const route = { method: "POST", url: "", config: { idempotencyKey: true as const }, schema: {} };
  const names = Object.keys(SPECIAL).filter((name) =>
    statuses.some((status) => SPECIAL[name]?.applies(route, status)),
  );
  return Object.fromEntries(names.map((name) => [name, reference(name)]));
}

const reference = (header: string) => ({ $ref: `#/components/headers/${componentName(header)}` });

const componentName = (header: string): string => header.replaceAll("-", "");

export const headerComponents = (): object =>
  Object.fromEntries(
    Object.entries(SPECIAL).map(([name, { applies: _applies, ...header }]) => [
      componentName(name),
      header,
    ]),
  );
