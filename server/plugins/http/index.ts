/** What every request passes, whoever asks: errors, headers, limits, who may call, and what is not there. */
import cors from "@fastify/cors";
import helmet from "@fastify/helmet";
import fp from "fastify-plugin";
import type { FastifyInstance, FastifyRequest } from "fastify";
import errors from "./errors.ts";
import rateLimits from "./rate-limits.ts";
import routeAuth from "./route-auth.ts";
import requestBody from "./request-body.ts";
import openapi from "./openapi.ts";
import notFound from "./not-found.ts";

export default fp(
  async (app) => {
    await app.register(errors);
    logAnswers(app);
    await setSecurityHeaders(app);
    await answerOtherOrigins(app);
    await app.register(rateLimits);
    await app.register(routeAuth);
    await app.register(requestBody);
    await app.register(openapi);
    await app.register(notFound);
  },
  { name: "http" },
);

/** One line per answer: what was asked, by which agent or owner, how it ended, how long it took. */
function logAnswers(app: FastifyInstance): void {
  app.addHook("onResponse", async (request, reply) => {
    const { agent, owner } = request;
    request.log.info(
      {
        req: request,
        statusCode: reply.statusCode,
        elapsedMs: Math.round(reply.elapsedTime),
        ...(agent ? { agentId: agent.id } : {}),
        ...(owner ? { ownerId: owner.id } : {}),
      },
      "answered",
    );
  });
}

/** Strict CSP for everything we serve; a route that needs more (rendered docs) declares it itself. */
async function setSecurityHeaders(app: FastifyInstance): Promise<void> {
  const isHttps = app.config.publicUrl.startsWith("https:");
  await app.register(helmet, {
    contentSecurityPolicy: {
      useDefaults: false,
      directives: {
        defaultSrc: ["'none'"],
        scriptSrc: ["'self'"],
        styleSrc: ["'self'"],
        imgSrc: ["'self'", "data:"],
        fontSrc: ["'self'"],
        connectSrc: ["'self'"],
        manifestSrc: ["'self'"],
        baseUri: ["'none'"],
        formAction: ["'self'"],
        frameAncestors: ["'none'"],
        ...(isHttps ? { upgradeInsecureRequests: [] } : {}),
      },
    },
    strictTransportSecurity: isHttps ? { maxAge: 31_536_000 } : false,
    crossOriginResourcePolicy: { policy: "cross-origin" },
    referrerPolicy: { policy: "no-referrer" },
  });
}

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
async function answerOtherOrigins(app: FastifyInstance): Promise<void> {
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
}
