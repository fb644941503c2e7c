import fp from "fastify-plugin";
import type { FastifyReply, FastifyRequest, RouteOptions } from "fastify";

/** Who may call a route. Every route declares one; a route that does not stops the boot. */
export type Credential = "public" | "agent" | "owner" | "facilitator";
const CREDENTIALS: readonly Credential[] = ["public", "agent", "owner", "facilitator"];

/** Proves the credential, or throws the ApiError that says what is missing. */
export type Authenticator = (request: FastifyRequest, reply: FastifyReply) => Promise<void>;

export interface KnownRoute {
  method: string;
  url: string;
  auth: Credential;
}

declare module "fastify" {
  interface FastifyContextConfig {
    auth?: Credential;
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

export default fp(
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
      await authenticate(request, reply);
    });
  },
  { name: "route-auth" },
);
