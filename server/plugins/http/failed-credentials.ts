import fp from "fastify-plugin";
import type { FastifyRequest } from "fastify";
import { ApiError } from "../../errors.ts";
import { FAILED_CREDENTIALS_PER_MINUTE } from "./rate-limit.ts";

declare module "fastify" {
  interface FastifyInstance {
    /** What to throw: this refusal, or 429 after too many from one address within a minute. */
    refused(request: FastifyRequest, refusal: ApiError): Promise<ApiError>;
  }
}

/** Counts refused credentials only, per address: who proves who they are is never slowed by others. */
export default fp(
  async (app) => {
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
  { name: "failed-credentials" },
);
