/** Errors of the OAuth endpoints in OAuth's own format (RFC 6749 section 5.2, RFC 7591 section 3.2.2). */
import type { FastifyError, FastifyReply, FastifyRequest } from "fastify";
import type { ApiError } from "../../errors.ts";
import { problemBody, sendProblem, toApiError } from "../http/errors.ts";

type OauthErrorCode =
  | "invalid_request"
  | "invalid_grant"
  | "invalid_target"
  | "unsupported_grant_type"
  | "invalid_redirect_uri"
  | "invalid_client_metadata";

export class OauthError extends Error {
  override name = "OauthError";
  readonly code: OauthErrorCode;

  constructor(code: OauthErrorCode, description: string) {
    super(description);
    this.code = code;
  }
}

export function sendOauthError(
  error: FastifyError | ApiError | OauthError,
  request: FastifyRequest,
  reply: FastifyReply,
): FastifyReply {
  reply.headers({ "cache-control": "no-store", pragma: "no-cache" });
  if (error instanceof OauthError)
    return reply.code(400).send({ error: error.code, error_description: error.message });
  const problem = toApiError(error);
  if (problem.status >= 500)
    request.log.error({ err: error, code: problem.code }, "request failed");
  // A program that gets "invalid_grant" forgets its connection.
  const isStopped = problem.code === "owner_stopped";
  const code =
    problem.status === 429 || problem.status === 503 || isStopped
      ? "temporarily_unavailable"
      : problem.status >= 500
        ? "server_error"
        : "invalid_request";
  // OAuth requires status 400 for invalid requests, whatever their HTTP status would be.
  const status = isStopped
    ? 503
    : problem.status === 429 || problem.status >= 500
      ? problem.status
      : 400;
  return reply
    .code(status)
    .headers(problem.headers)
    .send({ error: code, error_description: problem.message });
}

/** In the "server error" range of JSON-RPC; the problem itself is in `data`. */
const UNAUTHORIZED = -32_001;

/** A 401 of the protected resource: a JSON-RPC body for its clients, and the challenge in the header. */
export function sendMcpError(
  error: FastifyError | ApiError,
  request: FastifyRequest,
  reply: FastifyReply,
): FastifyReply {
  const problem = toApiError(error);
  if (problem.status !== 401) {
    if (problem.status >= 500)
      request.log.error({ err: error, code: problem.code }, "request failed");
    return sendProblem(request, reply, problem);
  }
  return reply
    .code(401)
    .headers({ "cache-control": "no-store", ...problem.headers })
    .send({
      jsonrpc: "2.0",
      id: null,
      error: {
        code: UNAUTHORIZED,
        message: problem.message,
        data: problemBody(problem, request.id),
      },
    });
}
