/** What every request passes, whoever asks: errors, headers, limits, who may call, and what is not there. */
import cors from "@fastify/cors";
import helmet from "@fastify/helmet";
import fp from "fastify-plugin";
import type { FastifyInstance, FastifyRequest, FastifyReply, RouteOptions } from "fastify";
import errors from "./errors.ts";
import openapi from "./openapi.ts";
export { sessionCookieName } from "./openapi.ts";
import notFound from "./not-found.ts";
import ownHost from "./own-host.ts";
import rateLimits from "./rate-limits.ts";
import sockets from "./sockets.ts";
import { ApiError } from "../../errors.ts";
import { traced } from "../../infra/tracing.ts";
import { isTooDeep, MAX_JSON_DEPTH } from "../../core/foreign-text.ts";
import type { FastifyPluginAsyncTypebox } from "@fastify/type-provider-typebox";

export default fp(
  async (app) => {
    nameAnswers(app);
    await app.register(errors);
    logAnswers(app);
    await app.register(sockets);
    await app.register(ownHost);
    await setSecurityHeaders(app);
    await answerOtherOrigins(app);
    await app.register(routeAuth);
    await app.register(rateLimits);
    await app.register(requestBody);
    await app.register(openapi);
    await app.register(notFound);
  },
  { name: "http" },
);

/** First of all hooks: every answer, of whatever kind, carries the id its log lines have. */
function nameAnswers(app: FastifyInstance): void {
  app.addHook("onRequest", async (request, reply) => void reply.header("x-request-id", request.id));
}

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
    xFrameOptions: { action: "deny" },
  });
}

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

/** Who may call a route. Every route declares one; a route that does not stops the boot. */
export type Credential = "public" | "agent" | "owner" | "facilitator";
const CREDENTIALS: readonly Credential[] = ["public", "agent", "owner", "facilitator"];

/** Proves the credential, or throws the ApiError that says what is missing. */
type Authenticator = (request: FastifyRequest, reply: FastifyReply) => Promise<void>;

export interface KnownRoute {
  method: string;
  url: string;
  auth: Credential;
}

declare module "fastify" {
  interface FastifyContextConfig {
    auth?: Credential;
  }
  interface FastifyRequest {
    /** The JSON body as it was written, where the route's scope keeps it (`keepJsonText`). */
    jsonText: string | undefined;
  }
  interface FastifyInstance {
    /** Filled by the plugins that know how to prove each credential. */
    authenticators: Map<Credential, Authenticator>;
    /** Every route with its declared credential, complete once the app is ready. */
    knownRoutes: KnownRoute[];
  }
}

export class UndeclaredAuth extends Error {
  override name = "UndeclaredAuth";
}

export const routeAuth = fp(
  async (app) => {
    const routes: RouteOptions[] = [];
    app.decorate(
      "authenticators",
      new Map<Credential, Authenticator>([["public", async () => undefined]]),
    );
    app.decorate("knownRoutes", []);
    app.addHook("onRoute", (route) => void routes.push(route));

    // Checked when all routes are there, so that a scope may declare one credential for all of its own.
    app.addHook("onReady", async () => {
      for (const route of routes) {
        const auth = route.config?.auth;
        const name = `${String(route.method)} ${route.url}`;
        if (auth === undefined || !CREDENTIALS.includes(auth)) {
          throw new UndeclaredAuth(
            `Route ${name} does not declare who may call it (config.auth: ${CREDENTIALS.join(" | ")})`,
          );
        }
        if (!app.authenticators.has(auth))
          throw new UndeclaredAuth(`Route ${name} needs "${auth}", which nothing can prove`);
        for (const method of [route.method].flat())
          app.knownRoutes.push({ method, url: route.url, auth });
      }
    });

    // onRequest: before the body is read, so that strangers cannot make us parse anything.
    app.addHook("onRequest", async (request, reply) => {
      if (request.is404) return;
      const auth = request.routeOptions.config.auth;
      const authenticate = auth === undefined ? undefined : app.authenticators.get(auth);
      if (!authenticate)
        throw new UndeclaredAuth(`Route ${request.routeOptions.url} has no authenticator`);
      try {
        await traced("authenticate", { "purser.credential": auth ?? "none" }, () =>
          authenticate(request, reply),
        );
      } catch (error) {
        throw app.refusal(request, reply, error);
      }
    });
  },
  { name: "route-auth" },
);

/** What is refused, and what is let through, of a body before its route sees it. */

/** Refuses deeply nested bodies on every route, whichever parser read them, before anything looks at them. */
const requestBody = fp(
  async (app) => {
    app.decorateRequest("jsonText", undefined);
    app.addHook("preValidation", (request, _reply, done) => {
      if (!isTooDeep(request.body)) return done();
      return done(
        new ApiError("invalid_json", {
          detail: `The body is nested deeper than ${MAX_JSON_DEPTH} levels.`,
        }),
      );
    });
  },
  { name: "request-body" },
);

/**
 * Clients that always send `Content-Type: application/json` also do so with a DELETE or a POST that
 * has no body. In this scope that is no body, and the route's own schema says whether it needs one.
 */
export function acceptEmptyJson(app: Parameters<FastifyPluginAsyncTypebox>[0]): void {
  const parseJson = app.getDefaultJsonParser("error", "error");
  app.removeContentTypeParser("application/json");
  app.addContentTypeParser("application/json", { parseAs: "string" }, (request, body, done) => {
    if (body === "") done(null, undefined);
    else void parseJson(request, body as string, done);
  });
}

/** In this scope a body is passed on to somebody else: its text is kept, since its value may have lost digits. */
export function keepJsonText(app: Parameters<FastifyPluginAsyncTypebox>[0]): void {
  const parseJson = app.getDefaultJsonParser("error", "error");
  app.removeContentTypeParser("application/json");
  app.addContentTypeParser("application/json", { parseAs: "string" }, (request, body, done) => {
    request.jsonText = (body as string).replace(/^\uFEFF/, "");
    void parseJson(request, body as string, done);
  });
}
