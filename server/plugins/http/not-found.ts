import { existsSync, readdirSync } from "node:fs";
import { join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import fastifyStatic from "@fastify/static";
import fp from "fastify-plugin";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { ApiError } from "../../errors.ts";
import { ROOT } from "../../infra/root.ts";
import { sendProblem } from "./errors.ts";
import type { KnownRoute } from "./refusals.ts";

const WEB_ROOT = fileURLToPath(new URL("web/dist/", ROOT));
/** Paths for programs: a missing one returns a problem document, never the web app. */
const MACHINE_PATHS =
  /^\/(api|mcp|metrics|openapi\.json|assets|docs|\.well-known|oauth\/(register|token|revoke))(\/|\?|$)|\.(json|txt|md)(\?|$)/;
/** The first part of the app's paths, as in web/src/app/router.tsx. The app shows any other page as "not found". */
const APP_PATHS =
  /^\/(agents|approvals|budgets|developers|facilitator|join|marketplace|merchant|notifications|operator|oauth\/authorize|receipts|settings|signin|spending|team|unsubscribe|validate|waiting)(\/|\?|$)/;
/** Pages for anyone with their link, and not for search engines. */
const UNLISTED = /^\/receipts\//;
const ONE_YEAR_SECONDS = 31_536_000;

declare module "fastify" {
  interface FastifyInstance {
    /** The route for another method or a preflight; undefined if there is none. */
    routeLookup(method: string, url: string): KnownRoute | undefined;
  }
}

/** Serves the built web app, with the SPA fallback for its deep links, and a problem document for every other 404. */
export default fp(
  async (app) => {
    const matching = routesMatching(app);
    app.decorate("routeLookup", (method: string, url: string) =>
      matching(url).find((route) => route.method === method),
    );
    const files = builtFiles();
    if (files.has("index.html")) {
      await app.register(async (scope) => {
        scope.addHook("onRoute", (route) => {
          route.config = { ...route.config, auth: "public" };
          route.schema = { ...route.schema, hide: true };
        });
        await scope.register(fastifyStatic, {
          root: WEB_ROOT,
          // Two routes for each of hundreds of files took a twelfth of the start, so files are looked up here.
          serve: false,
          // The build writes .br and .gz files next to its files.
          preCompressed: true,
          cacheControl: false,
          redirect: false,
          decorateReply: true,
          setHeaders: (response, path) => {
            // Vite adds a content hash to every name under assets/.
            const isHashed = path.includes("/assets/");
            response.header(
              "cache-control",
              isHashed ? `public, max-age=${ONE_YEAR_SECONDS}, immutable` : "no-cache",
            );
          },
        });
        scope.get("/", (_request, reply) => reply.sendFile("index.html"));
        scope.get<{ Params: { "*": string } }>("/*", (request, reply) => {
          const { "*": path } = request.params;
          return files.has(path) ? reply.sendFile(path) : spaOrProblem(request, reply);
        });
      });
    }
    app.setNotFoundHandler((request, reply) => problem(request, reply));

    function spaOrProblem(request: FastifyRequest, reply: FastifyReply): FastifyReply {
      const wantsPage = (request.headers.accept ?? "*/*").match(/text\/html|\*\/\*/) !== null;
      if (MACHINE_PATHS.test(request.url) || !wantsPage) return problem(request, reply);
      return reply
        .code(APP_PATHS.test(request.url) ? 200 : 404)
        .header("cache-control", "no-cache")
        .headers(UNLISTED.test(request.url) ? { "x-robots-tag": "noindex" } : {})
        .sendFile("index.html");
    }

    function problem(request: FastifyRequest, reply: FastifyReply): FastifyReply {
      // Of operators' routes, the methods would show that they exist.
      const known = matching(request.url)
        .filter(({ auth }) => auth !== "operator")
        .map(({ method }) => method);
      const isFile = files.has((request.url.split("?", 1)[0] ?? "").slice(1));
      const methods = isFile ? ["GET", "HEAD"] : [...new Set(known)];
      if (methods.length > 0 && !methods.includes(request.method)) {
        const allow = methods.join(", ");
        return sendProblem(
          request,
          reply,
          new ApiError("method_not_allowed", {
            detail: `This route does not support ${request.method}. Use ${allow}.`,
            headers: { allow },
          }),
        );
      }
      return sendProblem(request, reply, noRoute(request));
    }
  },
  { name: "not-found" },
);

/** The answer where no route is. */
export const noRoute = ({ method, url }: Pick<FastifyRequest, "method" | "url">): ApiError =>
  new ApiError("not_found", {
    detail: `There is no route ${method} ${url.split("?", 1)[0]}. See /openapi.json for all routes.`,
  });

/** The files of the built web app, by path; empty if it was not built. */
function builtFiles(): Set<string> {
  if (!existsSync(WEB_ROOT)) return new Set();
  const entries = readdirSync(WEB_ROOT, { recursive: true, withFileTypes: true });
  const files = entries.filter((entry) => entry.isFile());
  return new Set(
    files.map(({ parentPath, name }) =>
      relative(WEB_ROOT, join(parentPath, name)).replaceAll("\\", "/"),
    ),
  );
}

/** Finds the routes of a path, for requests that Fastify itself has not routed. */
function routesMatching(app: FastifyInstance): (url: string) => KnownRoute[] {
  let compiled: { pattern: RegExp; route: KnownRoute }[] | undefined;
  return (url) => {
    compiled ??= app.knownRoutes
      .filter((route) => !route.url.includes("*") && route.method !== "OPTIONS")
      .map((route) => ({ route, pattern: toPattern(route.url) }));
    const path = url.split("?", 1)[0] ?? "/";
    return compiled.filter(({ pattern }) => pattern.test(path)).map(({ route }) => route);
  };
}

function toPattern(url: string): RegExp {
  const escaped = url
    .replaceAll(/[.+?^${}()|[\]\\]/g, String.raw`\$&`)
    .replaceAll(/:[A-Za-z]+/g, "[^/]+");
  return new RegExp(`^${escaped}/?$`);
}
