import fp from "fastify-plugin";
import type { KnownRoute } from "./route-auth.ts";

declare module "fastify" {
  interface FastifyInstance {
    /** The route another method or a preflight is about; undefined when there is none. */
    routeLookup(method: string, url: string): KnownRoute | undefined;
    /** The methods a path answers to: the Allow header of a 405. */
    methodsOf(url: string): string[];
  }
}

/** Answers "which route would this be?" for paths that Fastify itself has not routed. */
export default fp(
  async (app) => {
    let compiled: { pattern: RegExp; route: KnownRoute }[] | undefined;
    const table = () => {
      compiled ??= app.knownRoutes
        .filter((route) => !route.url.includes("*") && route.method !== "OPTIONS")
        .map((route) => ({ route, pattern: toPattern(route.url) }));
      return compiled;
    };
    const matching = (url: string): KnownRoute[] => {
      const path = url.split("?", 1)[0] ?? "/";
      return table()
        .filter(({ pattern }) => pattern.test(path))
        .map(({ route }) => route);
    };
    app.decorate("routeLookup", (method: string, url: string) =>
      matching(url).find((route) => route.method === method),
    );
    app.decorate("methodsOf", (url: string) => [
      ...new Set(matching(url).map((route) => route.method)),
    ]);
  },
  { name: "route-lookup" },
);

function toPattern(url: string): RegExp {
  const escaped = url
    .replaceAll(/[.+?^${}()|[\]\\]/g, String.raw`\$&`)
    .replaceAll(/:[A-Za-z]+/g, "[^/]+");
  return new RegExp(`^${escaped}/?$`);
}
