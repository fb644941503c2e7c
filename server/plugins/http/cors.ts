import cors from "@fastify/cors";
import fp from "fastify-plugin";
import type { FastifyRequest } from "fastify";

const EXPOSED_HEADERS = [
  "payment-required",
  "payment-response",
  "x-payment-response",
  "x-request-id",
  "idempotent-replayed",
  "ratelimit-limit",
  "ratelimit-remaining",
  "ratelimit-reset",
  "retry-after",
  "www-authenticate",
];

/**
 * Before authentication and rate limits, so that their refusals can be read by a browser's script too.
 * Agents' and facilitator routes answer any origin, without credentials. Owners' routes carry a
 * cookie, so no other origin may read them at all.
 */
export default fp(
  async (app) => {
    // The preflight route is the CORS plugin's own and carries nothing.
    app.addHook("onRoute", (route) => {
      if ([route.method].flat().includes("OPTIONS"))
        route.config = { ...route.config, auth: "public" };
    });
    await app.register(cors, {
      hook: "onRequest",
      delegator: (request: FastifyRequest, callback) => {
        callback(null, {
          origin: isOwnersRoute(request) ? false : "*",
          credentials: false,
          exposedHeaders: EXPOSED_HEADERS,
          methods: ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"],
          maxAge: 600,
          strictPreflight: false,
        });
      },
    });

    function isOwnersRoute(request: FastifyRequest): boolean {
      if (request.method !== "OPTIONS") return request.routeOptions.config.auth === "owner";
      const method = request.headers["access-control-request-method"] ?? "GET";
      return app.routeLookup(method, request.url)?.auth === "owner";
    }
  },
  { name: "cors" },
);
