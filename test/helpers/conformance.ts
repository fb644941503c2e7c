// Checks every response of every test against the schemas and errors of its route, and records which error codes occurred.
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import type { TSchema } from "typebox";
import { Value } from "typebox/value";
import { ERRORS } from "../../server/errors.ts";
import { headerNames } from "../../server/plugins/http/answer-headers.ts";
import { refusalsOf, type DeclaredRoute } from "../../server/plugins/http/refusals.ts";
import { DOCUMENTED_AS, Problem } from "../../server/schemas/common.ts";

/** An undocumented response becomes a 500, so that the test that requested it fails. */
export function checkResponsesAgainstSchemas(app: FastifyInstance): void {
  app.addHook("onSend", async (request, reply, payload) => {
    checkDeclared(request, reply, payload);
    if (typeof payload !== "string" || payload === "") return payload;
    const type = String(reply.getHeader("content-type") ?? "");
    if (type.startsWith("application/problem+json")) checkProblem(reply, JSON.parse(payload));
    else if (type.startsWith("application/json")) checkAnswer(request, reply, JSON.parse(payload));
    return payload;
  });
}

/** Status, code and headers must be among those that the OpenAPI document lists for the route. */
function checkDeclared(request: FastifyRequest, reply: FastifyReply, payload: unknown): void {
  const { method, url = "", schema = {}, config } = request.routeOptions;
  if (request.is404 || schema.hide === true || url.includes("*") || request.method === "OPTIONS")
    return;
  const route: DeclaredRoute = { method: request.method, url, config, schema };
  if (request.method === "HEAD") route.method = "GET";
  const { statusCode } = reply;
  const name = `${String(method)} ${url} ${statusCode}`;
  const isProblem = String(reply.getHeader("content-type")).startsWith("application/problem+json");
  const refusals = refusalsOf(route).get(statusCode) ?? [];
  if (isProblem && typeof payload === "string") {
    const { code } = JSON.parse(payload) as { code: string };
    if (!refusals.some((declared) => declared === code))
      throw new Error(
        `${name} answers "${code}", which its route does not declare (config.errors)`,
      );
  } else if (documented(request, statusCode) === undefined && !hasOwnType(reply, schema.produces))
    throw new Error(`${name} is not declared`);
  const declared = new Set(headerNames(route, statusCode).map((header) => header.toLowerCase()));
  const carried = DOCUMENTED_HEADERS.filter(
    (header) => reply.hasHeader(header) && !declared.has(header),
  );
  if (carried.length > 0)
    throw new Error(`${name} carries ${carried.join()}, which is not declared`);
}

/** Headers that matter to API clients; generic HTTP headers are not documented. */
const DOCUMENTED_HEADERS = [
  "x-request-id",
  "ratelimit-limit",
  "ratelimit-remaining",
  "ratelimit-reset",
  "retry-after",
  "www-authenticate",
  "idempotent-replayed",
  "extension-responses",
  "payment-required",
  "payment-response",
];

function hasOwnType(reply: FastifyReply, produces: readonly string[] = []): boolean {
  const [type] = String(reply.getHeader("content-type") ?? "").split(";");
  return reply.statusCode === 200 && produces.includes(type ?? "");
}

function checkProblem(reply: FastifyReply, body: Record<string, unknown>): void {
  const code = String(body["code"]);
  const definition = (ERRORS as Record<string, { status: number }>)[code];
  if (!definition) throw new Error(`code "${code}" is not in the catalogue`);
  if (definition.status !== reply.statusCode)
    throw new Error(`code "${code}" came with status ${reply.statusCode}`);
  if (!Value.Check(Problem, body))
    throw new Error(`not a problem document: ${JSON.stringify(body)}`);
  if (reply.statusCode === 401 && reply.getHeader("www-authenticate") === undefined)
    throw new Error(`code "${code}" does not say how to authenticate`);
  checkDenial(body);
  noteCode(code);
}

const POLICY = ["rule", "window", "limit", "spent", "reserved", "remaining", "requested"];

/** A denial must contain its rule and numbers, and whether waiting helps. */
function checkDenial(body: Record<string, unknown>): void {
  if (body["blocked"] !== true) return;
  const policy = (body["policy"] ?? {}) as Record<string, unknown>;
  const isLimit = String(body["code"]).endsWith("_limit_exceeded");
  const missing = [
    ...POLICY.filter((member) => typeof policy[member] !== "string"),
    ...["paymentId", ...(isLimit ? ["nextReleaseAt", "availableAt"] : [])].filter(
      (member) => body[member] !== null && typeof body[member] !== "string",
    ),
  ];
  if (missing.length > 0) throw new Error(`a denial without ${missing.join(", ")}`);
}

function checkAnswer(request: FastifyRequest, reply: FastifyReply, body: unknown): void {
  // The facilitator follows the x402 protocol: its refusals have status 200 and a reason.
  const { errorReason } = (body ?? {}) as { errorReason?: unknown };
  if (typeof errorReason === "string" && errorReason in ERRORS) noteCode(errorReason);
  const loose = documented(request, reply.statusCode);
  if (loose === undefined) return;
  const schema = asDocumented(loose);
  if (Value.Check(schema, body)) return;
  const problems = Value.Errors(schema, body).map(
    (error) => `${error.instancePath} ${error.message}`,
  );
  throw new Error(
    `${request.method} ${request.routeOptions.url} ${reply.statusCode} is not as documented: ${problems.join("; ")}`,
  );
}

function documented(request: FastifyRequest, status: number): TSchema | undefined {
  const { response } = (request.routeOptions.schema ?? {}) as {
    response?: Record<string, TSchema>;
  };
  return response?.[String(status)] ?? response?.[`${Math.floor(status / 100)}xx`];
}

const strict = new WeakMap<object, TSchema>();
const byTitle = new Map(
  [...DOCUMENTED_AS].map(([loose, shown]) => [(loose as { title?: string }).title, shown] as const),
);

/** The schema with the patterns of the OpenAPI document: our own responses must match them. */
function asDocumented(schema: TSchema): TSchema {
  const known = strict.get(schema);
  if (known) return known;
  const { title } = schema as { title?: string };
  const shown = title === undefined ? undefined : byTitle.get(title);
  const result = shown ?? mapMembers(schema);
  strict.set(schema, result);
  return result;
}

function mapMembers(schema: TSchema): TSchema {
  const map = (value: unknown): unknown =>
    Array.isArray(value)
      ? value.map(map)
      : typeof value === "object" && value !== null
        ? asDocumented(value)
        : value;
  return Object.fromEntries(
    Object.entries(schema).map(([name, value]) => [
      name,
      name === "properties" || name === "patternProperties"
        ? Object.fromEntries(
            Object.entries(value as object).map(([member, child]) => [member, map(child)]),
          )
        : NOT_SCHEMAS.has(name)
          ? value
          : map(value),
    ]),
  ) as TSchema;
}

const NOT_SCHEMAS = new Set(["examples", "enum", "const", "default", "required"]);

const noted = new Set<string>();

/** Records a code of a response that passes no hook. */
export function noteCode(code: string): void {
  const folder = process.env["PURSER_TEST_CODES_DIR"];
  if (folder === undefined || noted.has(code)) return;
  noted.add(code);
  writeFileSync(join(folder, code), "");
}
