/** What every request passes through: error handling, headers, rate limits, authentication, and 404s. */
import fp from "fastify-plugin";
import type { FastifyInstance, FastifyRequest, FastifyReply, RouteOptions } from "fastify";
import errors from "./errors.ts";
import openapi from "./openapi.ts";
export { sessionCookieName } from "./openapi.ts";
import notFound from "./not-found.ts";
import ownHost from "./own-host.ts";
import rateLimits from "./rate-limits.ts";
import sockets from "./sockets.ts";
import { CREDENTIALS, type Credential, type KnownRoute } from "./refusals.ts";
import { preflights, fixedHeaders } from "./fixed-headers.ts";
import { ApiError } from "../../errors.ts";
import { traced } from "../../infra/tracing.ts";
import { repeatsName } from "../../core/exact-json.ts";
import { isTooDeep, MAX_JSON_DEPTH } from "../../core/foreign-text.ts";
import type { FastifyPluginAsyncTypebox } from "@fastify/type-provider-typebox";

export default fp(
  async (app) => {
    await app.register(fixedHeaders);
    await app.register(errors);
    logAnswers(app);
    await app.register(sockets);
    await app.register(ownHost);
    await app.register(preflights);
    await app.register(routeAuth);
    await app.register(rateLimits);
    await app.register(requestBody);
    await app.register(openapi);
    await app.register(notFound);
  },
  { name: "http" },
);

/** Whether this route logs every request. A very frequent route logs only problems, by a higher log level. */
const isLogged = ({ level }: FastifyRequest["log"]): boolean =>
  level === "info" || level === "debug" || level === "trace";

/**
 * Logs one line per response: the request, its agent or owner, the status and the duration. Redaction is switched off,
 * because it costs more than the line itself: the line has only these fields, and the path is cut and cleaned
 * (infra/telemetry.ts).
 */
function logAnswers(app: FastifyInstance): void {
  const answers = app.log.child({}, { redact: [] });
  app.addHook("onResponse", (request, reply, done) => {
    const { agent, owner, log } = request;
    if (isLogged(log))
      answers.info(
        {
          reqId: request.id,
          req: request,
          statusCode: reply.statusCode,
          elapsedMs: Math.round(reply.elapsedTime),
          ...(agent ? { agentId: agent.id } : {}),
          ...(owner ? { ownerId: owner.id } : {}),
        },
        "answered",
      );
    done();
  });
}

/** Runs `run` once the response was sent, or can no longer be sent; possibly twice. */
export function whenSent({ raw }: FastifyReply, run: () => void): void {
  if (raw.destroyed || raw.writableFinished) run();
  else raw.once("finish", run).once("close", run);
}

/** Verifies the credential, or throws an ApiError. */
type Authenticator = (request: FastifyRequest, reply: FastifyReply) => Promise<void> | undefined;

declare module "fastify" {
  interface FastifyContextConfig {
    auth?: Credential;
  }
  interface FastifyRequest {
    /** The original text of the JSON body, if the route's scope keeps it (`keepJsonText`). */
    jsonText: string | undefined;
  }
  interface FastifyInstance {
    /** Filled by the plugins that verify each credential. */
    authenticators: Map<Credential, Authenticator>;
    /** All routes with their declared credential; complete once the app is ready. */
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
      new Map<Credential, Authenticator>([["public", () => undefined]]),
    );
    app.decorate("knownRoutes", []);
    app.addHook("onRoute", (route) => void routes.push(route));

    // Checked when all routes are registered, so that a scope may declare one credential for all its routes.
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

    // onRequest: before the body is read, so that unauthenticated clients cannot make us parse it.
    app.addHook("onRequest", (request, reply, done) => {
      if (request.is404) return done();
      const { config, url } = request.routeOptions;
      const { auth } = config;
      const authenticate = auth === undefined ? undefined : app.authenticators.get(auth);
      if (!authenticate) throw new UndeclaredAuth(`Route ${url} has no authenticator`);
      const passed = (): void => done();
      const refused = (error: unknown): void => done(app.refusal(request, reply, error) as Error);
      let verification: Promise<void> | undefined;
      try {
        verification = traced("authenticate", { "purser.credential": auth ?? "none" }, () =>
          authenticate(request, reply),
        );
      } catch (error) {
        return refused(error);
      }
      // A route without a credential continues synchronously.
      if (verification === undefined) return passed();
      verification.then(passed, refused);
    });
  },
  { name: "route-auth" },
);

/** Reads JSON bodies, and refuses deeply nested ones for every parser, before any other code reads them. */
const requestBody = fp(
  async (app) => {
    app.decorateRequest("jsonText", undefined);
    parseJsonBodies(app);
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

/** In this scope an empty body counts as no body on every route, and the route's own schema decides whether it needs one. */
export function acceptEmptyJson(app: JsonScope): void {
  parseJsonBodies(app, { isEmptyNone: true });
}

/** In this scope a body is passed on to third parties, so its text is kept: its parsed numbers may have lost digits. */
export function keepJsonText(app: JsonScope): void {
  parseJsonBodies(app, { keepsText: true });
}

type JsonScope = Pick<
  Parameters<FastifyPluginAsyncTypebox>[0],
  "getDefaultJsonParser" | "removeContentTypeParser" | "addContentTypeParser"
>;

/**
 * Some clients send `Content-Type: application/json` with every request, even a DELETE without a body. Where a route has
 * no body, an empty one is no error.
 */
function parseJsonBodies(
  app: JsonScope,
  { isEmptyNone = false, keepsText = false }: { isEmptyNone?: boolean; keepsText?: boolean } = {},
): void {
  const parseJson = app.getDefaultJsonParser("error", "error");
  app.removeContentTypeParser("application/json");
  app.addContentTypeParser("application/json", { parseAs: "string" }, (request, text, done) => {
    const isNone = isEmptyNone || request.routeOptions.schema?.body === undefined;
    if (text === "" && isNone) return done(null, undefined);
    if (keepsText) request.jsonText = (text as string).replace(/^\uFEFF/, "");
    return void parseJson(request, text as string, (error, body) =>
      error === null && !isTooDeep(body) && repeatsName(text as string, body)
        ? done(new ApiError("invalid_json", { detail: "An object has two members of one name." }))
        : done(error, body),
    );
  });
}
