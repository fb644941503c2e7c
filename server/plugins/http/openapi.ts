/** The OpenAPI document of the routes, as JSON. What it says is in document.ts. */
import type { FastifyInstance, RouteOptions } from "fastify";
import fp from "fastify-plugin";
import { VERSION } from "../../infra/version.ts";
import { openApiDocument } from "./document.ts";
import type { DeclaredRoute } from "./refusals.ts";

declare module "fastify" {
  interface FastifySchema {
    /** The name of the call in generated clients: a verb and a noun, and never another one again. */
    operationId?: string;
    summary?: string;
    description?: string;
    tags?: readonly string[];
    /** The media types of its 200, where they are more or others than JSON. */
    produces?: readonly string[];
    /** Not for callers: pages, files, and what only browsers ask. */
    hide?: boolean;
  }
  interface FastifyInstance {
    /** The OpenAPI document. */
    openApi(): object;
    /** Every route that is in the document. */
    documentedRoutes: readonly DeclaredRoute[];
  }
}

/** The prefix makes browsers refuse the cookie from a subdomain, from plain http or for one path. */
export const sessionCookieName = (isHttps: boolean): string =>
  isHttps ? "__Host-purser_session" : "purser_session";

export default fp(
  async (app) => {
    await app.register(describeRoutes);
    let text: string | undefined;
    app.get(
      "/openapi.json",
      { config: { auth: "public" }, schema: { hide: true } },
      async (_request, reply) => {
        // It never changes, and most processes are never asked.
        text ??= JSON.stringify(app.openApi());
        return reply
          .header("access-control-allow-origin", "*")
          .type("application/json; charset=utf-8")
          .send(text);
      },
    );
  },
  { name: "openapi" },
);

/** Our own: the ready-made plugin knows neither components, nor problem+json, nor what a credential refuses with. */
const describeRoutes = fp(
  async (app: FastifyInstance) => {
    const routes: RouteOptions[] = [];
    // Kept whole: what stands before a route may add to what it declares after this has seen it.
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
    let document: object | undefined;
    app.decorate("openApi", () => {
      document ??= openApiDocument({ version: VERSION, publicUrl, cookieName }, documented());
      return document;
    });
  },
  { name: "documented" },
);
