/**
 * Headers of every response, computed once at boot: security headers (Content-Security-Policy and others) and CORS.
 * Only the request id differs between requests.
 */
import cors from "@fastify/cors";
import type { FastifyInstance, FastifyRequest } from "fastify";
import fp from "fastify-plugin";
import type { Credential } from "./refusals.ts";

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

/** Strict for everything we serve; documentation pages add the hashes of their scripts. */
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
  // The XSS filter of old browsers could be misused against a page.
  "x-xss-protection": "0",
});

/**
 * Agents' and facilitator routes allow every origin, without credentials. Owners' routes use a cookie, so no other
 * origin may read them at all.
 */
const READABLE_BY_ALL = {
  "access-control-allow-origin": "*",
  "access-control-expose-headers": EXPOSED_HEADERS.join(", "),
};

const standing = (isHttps: boolean) => {
  const own = { ...securityHeaders(isHttps), vary: "Origin" };
  return { own: Object.freeze(own), open: Object.freeze({ ...own, ...READABLE_BY_ALL }) };
};
const OVER_HTTPS = standing(true);
const OVER_HTTP = standing(false);

/**
 * For owners' routes (`own`), and for all others (`open`). A request that reaches no route has no hooks, so its
 * response adds them explicitly.
 */
export const fixedHeadersOf = ({ publicUrl }: { publicUrl: string }): typeof OVER_HTTPS =>
  publicUrl.startsWith("https:") ? OVER_HTTPS : OVER_HTTP;

/** The first of all hooks, so that refusals have these headers too and browser scripts can read them. */
export const fixedHeaders = fp(
  async (app) => {
    const { own, open } = fixedHeadersOf(app.config);
    app.addHook("onRequest", (request, reply, done) => {
      reply.headers(isOwnersRoute(app, request) ? own : open).header("x-request-id", request.id);
      done();
    });
  },
  { name: "standing-headers" },
);

/** CORS preflights: answered before authentication and limits. */
export const preflights = fp(
  async (app) => {
    // In a scope of its own, because the CORS headers of all other responses are set above.
    await app.register(async (scope) => {
      scope.addHook("onRoute", (route) => {
        route.config = { ...route.config, auth: "public" };
      });
      await scope.register(cors, {
        hook: "onRequest",
        delegator: (request: FastifyRequest, callback) => {
          callback(null, {
            origin: isOwnersRoute(app, request) ? false : "*",
            methods: ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"],
            maxAge: 600,
            strictPreflight: false,
          });
        },
      });
    });
  },
  { name: "preflights" },
);

function isOwnersRoute(app: FastifyInstance, request: FastifyRequest): boolean {
  if (request.method !== "OPTIONS") return usesCookie(request.routeOptions.config.auth);
  const method = request.headers["access-control-request-method"] ?? "GET";
  return usesCookie(app.routeLookup(method, request.url)?.auth);
}

const usesCookie = (auth: Credential | undefined): boolean =>
  auth === "owner" || auth === "operator";
