// Holds every answer of every test to what its route documents, and notes which error codes were produced.
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import type { TSchema } from "typebox";
import { Value } from "typebox/value";
import { ERRORS } from "../../server/errors.ts";
import { Problem } from "../../server/schemas/common.ts";

/** An answer that breaks its promise becomes a 500, so that the test which asked for it fails. */
export function holdAnswersToTheirSchemas(app: FastifyInstance): void {
  app.addHook("onSend", async (request, reply, payload) => {
    if (typeof payload !== "string" || payload === "") return payload;
    const type = String(reply.getHeader("content-type") ?? "");
    if (type.startsWith("application/problem+json")) checkProblem(reply, JSON.parse(payload));
    else if (type.startsWith("application/json")) checkAnswer(request, reply, JSON.parse(payload));
    return payload;
  });
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

/** A denial says by which rule and numbers, and whether waiting helps. */
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
  // The facilitator speaks the protocol: its refusals are answers with status 200 and a reason.
  const { errorReason } = (body ?? {}) as { errorReason?: unknown };
  if (typeof errorReason === "string" && errorReason in ERRORS) noteCode(errorReason);
  const schema = documented(request, reply.statusCode);
  if (schema === undefined || Value.Check(schema, body)) return;
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

const noted = new Set<string>();

/** For answers that no hook sees. */
export function noteCode(code: string): void {
  const folder = process.env["PURSER_TEST_CODES_DIR"];
  if (folder === undefined || noted.has(code)) return;
  noted.add(code);
  writeFileSync(join(folder, code), "");
}
