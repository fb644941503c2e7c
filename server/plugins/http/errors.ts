import fp from "fastify-plugin";
import type { FastifyError, FastifyReply, FastifyRequest } from "fastify";
import { stringifyExact } from "../../core/exact-json.ts";
import { isDatabaseUnavailable, isOwnerStop, isTextRefused, movedTo } from "../../infra/db/pool.ts";
import { ApiError, ERRORS, type ErrorCode } from "../../errors.ts";
import { describePattern } from "../../schemas/patterns.ts";

/** The error handler: every thrown error becomes problem+json with a code from the registry. */
export default fp(
  async (app) => {
    app.setErrorHandler((error: FastifyError, request, reply) => {
      const apiError = toApiError(error);
      // An outcome that is not known yet is no fault, so it is logged without a stack unless something failed.
      if (apiError.code === "payment_status_unknown")
        request.log.warn(
          { code: apiError.code, err: apiError.cause && error },
          "the outcome of a payment is not known yet",
        );
      else if (apiError.status >= 500)
        request.log[apiError.code === "internal_error" ? "error" : "warn"](
          { err: error, code: apiError.code },
          "request failed",
        );
      return sendProblem(request, reply, apiError);
    });
  },
  { name: "errors" },
);

export function sendProblem(
  request: FastifyRequest,
  reply: FastifyReply,
  error: ApiError,
): FastifyReply {
  return reply
    .code(error.status)
    .headers({ "cache-control": "no-store", "x-request-id": request.id, ...error.headers })
    .type("application/problem+json; charset=utf-8")
    .serializer(stringifyExact)
    .send(problemBody(error, request.id));
}

/** Fastify's own errors that a client can cause. */
const FASTIFY_CODES: Record<string, ErrorCode> = {
  FST_ERR_CTP_INVALID_JSON_BODY: "invalid_json",
  FST_ERR_CTP_EMPTY_JSON_BODY: "invalid_json",
  FST_ERR_CTP_INVALID_CONTENT_LENGTH: "bad_request",
  FST_ERR_CTP_BODY_TOO_LARGE: "body_too_large",
  FST_ERR_CTP_INVALID_MEDIA_TYPE: "unsupported_media_type",
  FST_ERR_BAD_URL: "bad_request",
  FST_ERR_MAX_PARAM_LENGTH: "not_found",
};

/** An outage of seconds, such as a failover, is the usual one. */
const RETRY_SOON = { "retry-after": "2" };

/** For an owner, its agents and its keys, from the moment when it begins to move to another cell. */
export const otherCell = (
  { cell, url }: { cell: string; url: string },
  cause?: unknown,
): ApiError =>
  new ApiError("other_cell", {
    detail: `This account moved to the cell ${cell}. Nothing was done here: use ${url}.`,
    extra: { cell, url },
    ...(cause !== undefined && { cause }),
  });

export function toApiError(error: FastifyError | ApiError): ApiError {
  if (error instanceof ApiError) return error;
  if (error.validation) return validationError(error);
  if (isOwnerStop(error)) return new ApiError("owner_stopped", { cause: error });
  const place = movedTo(error);
  if (place) return otherCell(place, error);
  const code = FASTIFY_CODES[error.code];
  if (code) return new ApiError(code, { cause: error });
  // secure-json-parse refuses __proto__ with a plain SyntaxError of status 400.
  if (error.statusCode === 400 && error instanceof SyntaxError)
    return new ApiError("invalid_json", { cause: error });
  if (error.statusCode !== undefined && error.statusCode >= 400 && error.statusCode < 500)
    return new ApiError("bad_request", { cause: error, detail: error.message });
  if (isTextRefused(error))
    return new ApiError("validation_failed", {
      cause: error,
      detail: "The request contains a NUL character, which cannot be stored.",
    });
  if (isDatabaseUnavailable(error))
    return new ApiError("service_unavailable", { cause: error, headers: RETRY_SOON });
  return new ApiError("internal_error", {
    cause: error,
    detail: "Purser failed to handle this request. Report the request id.",
  });
}

/** If all invalid fields have the same meaning, its specific code is returned. */
const FIELD_CODES: Record<string, ErrorCode> = {
  amount: "invalid_amount",
  maxAmount: "invalid_amount",
  dailyLimit: "invalid_amount",
  perPaymentLimit: "invalid_amount",
  recipient: "invalid_address",
  address: "invalid_address",
};

type Issue = NonNullable<FastifyError["validation"]>[number];

/**
 * Merges the failures of an enum (one for each value, and one for the union) into one sentence with the valid values.
 * The value may only have the wrong case.
 */
function inOneSentence(issues: readonly Issue[]): Issue[] {
  const choices = new Map<string, unknown[]>();
  for (const { instancePath, keyword, params } of issues)
    if (keyword === "const")
      choices.set(instancePath, [
        ...(choices.get(instancePath) ?? []),
        (params as { allowedValue: unknown }).allowedValue,
      ]);
  const isPart = ({ instancePath, keyword }: Issue): boolean =>
    choices.has(instancePath) && ["const", "anyOf", "type"].includes(keyword);
  const merged = [...choices].map(([instancePath, values]) => ({
    instancePath,
    keyword: "enum",
    schemaPath: "",
    params: {},
    message: `must be ${values.length > 1 ? "one of " : ""}${values.map(String).join(", ")}`,
  }));
  return [...withoutUnions(issues.filter((issue) => !isPart(issue))), ...merged];
}

/** Of a value that may also be null: what is wrong with it, and not that it is none of the possible types. */
function withoutUnions(issues: readonly Issue[]): Issue[] {
  const unions = new Set(
    issues.filter(({ keyword }) => keyword === "anyOf").map(({ instancePath }) => instancePath),
  );
  const isExtra = ({ keyword, params }: Issue): boolean =>
    keyword === "anyOf" || (keyword === "type" && params["type"] === "null");
  const isOnly = ({ instancePath }: Issue): boolean =>
    !issues.some((other) => other.instancePath === instancePath && !isExtra(other));
  return issues.filter(
    (issue) => !unions.has(issue.instancePath) || !isExtra(issue) || isOnly(issue),
  );
}

const isTimeFormat = ({ keyword, params }: Issue): boolean =>
  keyword === "format" && params["format"] === "date-time";

function validationError(error: FastifyError): ApiError {
  const errors = inOneSentence(error.validation ?? []).map((issue) => {
    const params = issue.params as { missingProperty?: string; additionalProperty?: string };
    const field = params.missingProperty ?? params.additionalProperty;
    const place = error.validationContext === "querystring" ? "query" : error.validationContext;
    const path = `${place ?? "body"}${issue.instancePath.replaceAll("/", ".")}${field === undefined ? "" : `.${field}`}`;
    const problem = isTimeFormat(issue)
      ? "must be a time with its zone, such as 2026-12-31T18:00:00Z"
      : issue.keyword === "pattern"
        ? describePattern(String((issue.params as { pattern?: unknown }).pattern))
        : (issue.message ?? "is not valid");
    const message =
      params.missingProperty !== undefined
        ? "is missing"
        : params.additionalProperty === undefined
          ? problem
          : "is not a known field";
    return { path, message, isMissing: field !== undefined };
  });
  const codes = new Set(
    errors.map(({ path, isMissing }) =>
      isMissing ? undefined : FIELD_CODES[path.split(".").at(-1) ?? ""],
    ),
  );
  const [onlyCode] = codes;
  const code = codes.size === 1 && onlyCode !== undefined ? onlyCode : "validation_failed";
  const listed = errors.map(({ path, message }) => ({ path, message }));
  return new ApiError(code, {
    cause: error,
    detail: listed.map(({ path, message }) => `${path} ${message}`).join("; "),
    extra: { errors: listed },
  });
}

/** The RFC 9457 body, with `success:false` and `error` added for simple clients. */
export function problemBody(error: ApiError, requestId: string): Record<string, unknown> {
  const definition = ERRORS[error.code];
  return {
    type: `/developers/errors#${error.code}`,
    title: definition.title,
    status: definition.status,
    detail: error.message,
    code: error.code,
    requestId,
    success: false,
    error: error.message,
    retryable: definition.retryable,
    suggestion: definition.help,
    ...error.extra,
  };
}
