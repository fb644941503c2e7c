/** The OpenAPI document of the routes, served as JSON and rendered. What it says is in document.ts. */
import swaggerUi from "@fastify/swagger-ui";
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
    /** The OpenAPI document; what renders it asks for it by this name. */
    swagger(): object;
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
        text ??= JSON.stringify(app.swagger());
        return reply
          .header("access-control-allow-origin", "*")
          .type("application/json; charset=utf-8")
          .send(text);
      },
    );
    await app.register(renderedDocs);
  },
  { name: "openapi" },
);

/**
 * @fastify/swagger knows neither components, nor problem+json, nor what a credential refuses with; what renders the
 * document needs no more of it than its name.
 */
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
    app.decorate("swagger", () => {
      document ??= openApiDocument({ version: VERSION, publicUrl, cookieName }, documented());
      return document;
    });
  },
  { name: "@fastify/swagger" },
);

/** Its page sets inline styles, so it alone gets a wider style rule. */
async function renderedDocs(scope: FastifyInstance): Promise<void> {
  scope.addHook("onRoute", (route) => {
    route.config = { ...route.config, auth: "public" };
    route.schema = { ...route.schema, hide: true };
  });
  await scope.register(swaggerUi, {
    routePrefix: "/docs",
    indexPrefix: "",
    staticCSP: false,
    // So it writes the YAML itself.
    transformSpecification: (document) => document,
    transformSpecificationClone: false,
    uiConfig: {
      deepLinking: true,
      docExpansion: "list",
      defaultModelsExpandDepth: -1,
      persistAuthorization: false,
    },
  });
  scope.addHook("onSend", async (_request, reply) => {
    const policy = reply.getHeader("content-security-policy");
    if (typeof policy === "string")
      reply.header(
        "content-security-policy",
        policy.replace("style-src 'self'", "style-src 'self' 'unsafe-inline'"),
      );
  });
}
