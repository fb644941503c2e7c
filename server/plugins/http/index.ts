/** What every request passes, whoever asks: errors, headers, limits, who may call, and what is not there. */
import fp from "fastify-plugin";
import type { FastifyInstance, FastifyRequest, FastifyReply, RouteOptions } from "fastify";
import errors from "./errors.ts";
import openapi from "./openapi.ts";
export { sessionCookieName } from "./openapi.ts";
import notFound from "./not-found.ts";
import ownHost from "./own-host.ts";
import rateLimits from "./rate-limits.ts";
import sockets from "./sockets.ts";
import { preflights, standingHeaders } from "./standing-headers.ts";
import { ApiError } from "../../errors.ts";
import { traced } from "../../infra/tracing.ts";
import { isTooDeep, MAX_JSON_DEPTH } from "../../core/foreign-text.ts";
import type { FastifyPluginAsyncTypebox } from "@fastify/type-provider-typebox";

export default fp(
  async (app) => {
    await app.register(standingHeaders);
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

/** A route that is asked thousands of times a second says that only its troubles are told. */
const isHeard = ({ level }: FastifyRequest["log"]): boolean =>
  level === "info" || level === "debug" || level === "trace";

/**
 * One line per answer: what was asked, by which agent or owner, how it ended, how long it took. Nothing in it is found by
 * its name and hidden, which costs more than the line: it says no more than these words, and the path is cut and cleaned
 * (infra/telemetry.ts).
 */
function logAnswers(app: FastifyInstance): void {
  const answers = app.log.child({}, { redact: [] });
  app.addHook("onResponse", (request, reply, done) => {
    const { agent, owner, log } = request;
    if (isHeard(log))
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

/** Runs it once the answer has left, or can leave no more; perhaps twice. */
export function whenSent({ raw }: FastifyReply, run: () => void): void {
  if (raw.destroyed || raw.writableFinished) run();
  else raw.once("finish", run).once("close", run);
}

/** Who may call a route. Every route declares one; a route that does not stops the boot. */
export type Credential = "public" | "agent" | "owner" | "facilitator";
const CREDENTIALS: readonly Credential[] = ["public", "agent", "owner", "facilitator"];

/** Proves the credential, or throws the ApiError that says what is missing. */
type Authenticator = (request: FastifyRequest, reply: FastifyReply) => Promise<void> | undefined;

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
      new Map<Credential, Authenticator>([["public", () => undefined]]),
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
    app.addHook("onRequest", (request, reply, done) => {
      if (request.is404) return done();
      const { config, url } = request.routeOptions;
      const { auth } = config;
      const authenticate = auth === undefined ? undefined : app.authenticators.get(auth);
      if (!authenticate) throw new UndeclaredAuth(`Route ${url} has no authenticator`);
      const passed = (): void => done();
      const refused = (error: unknown): void => done(app.refusal(request, reply, error) as Error);
      let proving: Promise<void> | undefined;
      try {
        proving = traced("authenticate", { "purser.credential": auth ?? "none" }, () =>
          authenticate(request, reply),
        );
      } catch (error) {
        return refused(error);
      }
      // Who needs to prove nothing waits for nothing.
      if (proving === undefined) return passed();
      proving.then(passed, refused);
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
