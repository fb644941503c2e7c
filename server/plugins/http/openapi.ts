/** Serves the OpenAPI document of the routes as JSON. document.ts generates it. */
import type { RouteOptions } from "fastify";
import fp from "fastify-plugin";
import { VERSION } from "../../infra/version.ts";
import { openApiDocument } from "./document.ts";
import type { DeclaredRoute } from "./refusals.ts";

declare module "fastify" {
  interface FastifySchema {
    /** The name of the operation in generated clients: a verb and a noun, which must never change. */
    operationId?: string;
    summary?: string;
    description?: string;
    tags?: readonly string[];
    /** The media types of its 200 response, if not just JSON. */
    produces?: readonly string[];
    /** Not part of the API: pages, files, and routes for browsers only. */
    hide?: boolean;
  }
  interface FastifyInstance {
    /** Every route that is in the document. */
    documentedRoutes: readonly DeclaredRoute[];
  }
}

/** With this prefix browsers refuse the cookie from a subdomain, over plain http or for one path. */
export const sessionCookieName = (isHttps: boolean): string =>
  isHttps ? "__Host-purser_session" : "purser_session";

/**
 * Not the ready-made plugin: it drops what stands beside a reference, and has no shared responses, no references to
 * headers and no members of our own in a response.
 */
export default fp(
  async (app) => {
    const routes: RouteOptions[] = [];
    // The route objects themselves, because later hooks may add to their declarations.
    app.addHook("onRoute", (route) => void routes.push(route));
    const documented = (): DeclaredRoute[] =>
      routes
        .filter(({ schema, url }) => schema?.hide !== true && !url.includes("*"))
        .flatMap(({ method, url, config = {}, schema = {} }) =>
          [method].flat().map((each) => ({ method: each, url, config, schema })),
        )
        .filter(({ method }) => method !== "HEAD" && method !== "OPTIONS");
    app.decorate("documentedRoutes", { getter: documented });

    const { publicUrl } = app.config;
    const cookieName = sessionCookieName(publicUrl.startsWith("https:"));
    let text: string | undefined;
    app.get(
      "/openapi.json",
      { config: { auth: "public" }, schema: { hide: true } },
      async (_request, reply) => {
        // Generated on first use: it never changes, and most processes never need it.
        text ??= JSON.stringify(
          openApiDocument({ version: VERSION, publicUrl, cookieName }, documented()),
        );
        return reply
          .header("access-control-allow-origin", "*")
          .type("application/json; charset=utf-8")
          .send(text);
      },
    );
  },
  { name: "openapi" },
);
