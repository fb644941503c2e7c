/** How often anybody may ask, and how often a credential may be refused. */
import { createHash } from "node:crypto";
import rateLimit from "@fastify/rate-limit";
import fp from "fastify-plugin";
import type { FastifyRequest } from "fastify";
import { ApiError } from "../../errors.ts";
import type { Credential } from "./route-auth.ts";

/**
 * Requests per minute, by what the route asks for. They protect one process from a flood, so each
 * process counts for itself; money is protected by guardrails in Postgres, never by these.
 */
const PER_MINUTE: Record<Credential, number> = {
  public: 3_000,
  agent: 6_000,
  owner: 3_000,
  facilitator: 300_000,
};
/** Refused credentials per address: a person mistypes, a guesser does not stop. */
const FAILED_CREDENTIALS_PER_MINUTE = 600;

declare module "fastify" {
  interface FastifyInstance {
    /** What to throw: this refusal, or 429 after too many from one address within a minute. */
    refused(request: FastifyRequest, refusal: ApiError): Promise<ApiError>;
  }
}

export default fp(
  async (app) => {
    await app.register(rateLimit, {
      global: true,
      timeWindow: "1 minute",
      hook: "onRequest",
      cache: 20_000,
      enableDraftSpec: true,
      keyGenerator: limitKey,
      max: (request: FastifyRequest) => PER_MINUTE[request.routeOptions.config.auth ?? "public"],
      errorResponseBuilder: (_request, context) =>
        new ApiError("rate_limited", {
          extra: { retryAfterSeconds: Math.ceil(context.ttl / 1000) },
        }),
    });
    // Counts refused credentials only, per address: who proves who they are is never slowed by others.
    const countFailure = app.createRateLimit({
      max: FAILED_CREDENTIALS_PER_MINUTE,
      timeWindow: "1 minute",
      keyGenerator: (request: FastifyRequest) => `failed:${request.ip}`,
    });
    app.decorate("refused", async (request: FastifyRequest, refusal: ApiError) => {
      const count = await countFailure(request);
      if (count.isAllowed || !count.isExceeded) return refusal;
      return new ApiError("rate_limited", {
        detail: "Too many refused credentials from this address. Wait, then check the credential.",
        extra: { retryAfterSeconds: count.ttlInSeconds },
        headers: { "retry-after": String(count.ttlInSeconds) },
      });
    });
  },
  { name: "rate-limits" },
);

/** Per credential where one is shown, else per address; the credential itself is never kept. */
function limitKey(request: FastifyRequest): string {
  const auth = request.routeOptions.config.auth ?? "public";
  const shown =
    request.headers.authorization ?? (auth === "owner" ? request.headers.cookie : undefined);
  if (shown === undefined || auth === "public") return `${auth}:ip:${request.ip}`;
  return `${auth}:key:${createHash("sha256").update(shown).digest("base64url")}`;
}
