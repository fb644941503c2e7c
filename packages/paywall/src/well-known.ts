/**
 * `/.well-known/x402`: the URLs that an app sells, for catalogues. The shape is the one that they read:
 * `{"version": 1, "resources": ["https://..."]}`, whose entries are whole URLs without a method.
 */
import type { FastifyInstance, FastifyRequest, RouteOptions } from "fastify";

export const WELL_KNOWN = "/.well-known/x402";

interface PaidRoute {
  path: string;
  /** Only for requests with this Host header. */
  host: unknown;
  originFor: OriginReader;
}
type OriginReader = (request: FastifyRequest) => string | undefined;

/** A plugin may be registered for several parts of one app, and its routes are one document. */
const routesOf = new WeakMap<object, PaidRoute[]>();

/** Returns what lists a route. The app's own route at this path wins if it was added before. */
export function serveWellKnown(
  app: FastifyInstance,
  options: { originFor: OriginReader; route: object; invalidHost: object },
): (route: RouteOptions) => void {
  const { originFor, invalidHost } = options;
  const routes = routesOf.get(app.server) ?? [];
  routesOf.set(app.server, routes);
  // Below a prefix nobody looks for it.
  if (app.prefix === "" && !app.hasRoute({ method: "GET", url: WELL_KNOWN }))
    app.get(WELL_KNOWN, options.route, async (request, reply) => {
      reply.header("cache-control", "no-store").type("application/json; charset=utf-8");
      const found = new Set<string>();
      for (const { path, host, originFor: read } of routes) {
        const origin = read(request);
        if (origin === undefined) return reply.code(400).send(invalidHost);
        if (isFor(host, request.headers.host)) found.add(`${origin}${path}`);
      }
      return reply.send({ version: 1, resources: [...found] });
    });
  return ({ url, method, constraints = {} }) => {
    const { host, ...others } = constraints as Record<string, unknown>;
    // A pattern is no URL, and other constraints need headers that a reader does not send.
    if (/[:*]/.test(url) || Object.keys(others).length > 0 || method === "HEAD") return;
    routes.push({ path: url, host, originFor });
  };
}

const isFor = (host: unknown, asked = ""): boolean =>
  host === undefined || (host instanceof RegExp ? host.test(asked) : host === asked);
