/**
 * What every answer carries, put together once at boot: its answer's name, what a browser may do with it, and which other
 * origins may read it. Every value is the same for all requests but the name.
 */
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import fp from "fastify-plugin";

const EXPOSED_HEADERS = [
  "payment-required",
  "payment-response",
  "payment-receipt",
  "x-payment-response",
  "x-request-id",
  "idempotent-replayed",
  "ratelimit-limit",
  "ratelimit-remaining",
  "ratelimit-reset",
  "retry-after",
  "www-authenticate",
  "mcp-session-id",
  "mcp-protocol-version",
];

/** Strict for everything we serve; a route that needs more (rendered docs) changes it itself. */
const CONTENT_POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self' data:",
  "font-src 'self'",
  "connect-src 'self'",
  "manifest-src 'self'",
  "base-uri 'none'",
  "form-action 'self'",
  "frame-ancestors 'none'",
];

const securityHeaders = (isHttps: boolean): Record<string, string> => ({
  "content-security-policy": [
    ...CONTENT_POLICY,
    ...(isHttps ? ["upgrade-insecure-requests"] : []),
  ].join(";"),
  "cross-origin-opener-policy": "same-origin",
  "cross-origin-resource-policy": "cross-origin",
  "origin-agent-cluster": "?1",
  "referrer-policy": "no-referrer",
  ...(isHttps ? { "strict-transport-security": "max-age=31536000; includeSubDomains" } : {}),
  "x-content-type-options": "nosniff",
  "x-dns-prefetch-control": "off",
  "x-download-options": "noopen",
  "x-frame-options": "DENY",
  "x-permitted-cross-domain-policies": "none",
  // The filter of old browsers could be turned against a page.
  "x-xss-protection": "0",
});

/**
 * Agents' and facilitator routes answer any origin, without credentials. Owners' routes carry a cookie, so no other
 * origin may read them at all.
 */
const READABLE_BY_ALL = {
  "access-control-allow-origin": "*",
  "access-control-expose-headers": EXPOSED_HEADERS.join(", "),
};

const PREFLIGHT = {
  "access-control-allow-methods": "GET, HEAD, POST, PUT, PATCH, DELETE",
  "access-control-max-age": "600",
  "content-length": "0",
};

/** First of all hooks: refusals carry all of it too, and can be read by a browser's script. */
export const standingHeaders = fp(
  async (app) => {
    const own = { ...securityHeaders(app.config.publicUrl.startsWith("https:")), vary: "Origin" };
    const open = { ...own, ...READABLE_BY_ALL };
    app.addHook("onRequest", (request, reply, done) => {
      reply.headers(isOwnersRoute(app, request) ? own : open).header("x-request-id", request.id);
      done();
    });
  },
  { name: "standing-headers" },
);

/** What a browser asks before it sends what another origin's page wants: answered before authentication and limits. */
export const preflights = fp(
  async (app) => {
    app.addHook("onRequest", (request, reply, done) => {
      if (request.method !== "OPTIONS" || isOwnersRoute(app, request)) return done();
      const asked = request.headers["access-control-request-headers"];
      reply.code(204).headers(PREFLIGHT).header("vary", "Origin, Access-Control-Request-Headers");
      if (asked !== undefined) reply.header("access-control-allow-headers", asked);
      return void reply.send();
    });
    app.options("*", { config: { auth: "public" }, schema: { hide: true } }, notAllowed);
  },
  { name: "preflights" },
);

const notAllowed = (_request: FastifyRequest, reply: FastifyReply): void => {
  reply.callNotFound();
};

function isOwnersRoute(app: FastifyInstance, request: FastifyRequest): boolean {
  if (request.method !== "OPTIONS") return request.routeOptions.config.auth === "owner";
  const method = request.headers["access-control-request-method"] ?? "GET";
  return app.routeLookup(method, request.url)?.auth === "owner";
}
