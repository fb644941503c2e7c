/** The OpenAPI document of the routes, served as JSON and rendered. What it says is in document.ts. */
import Fastify, { type FastifyInstance, type RouteOptions } from "fastify";
import fp from "fastify-plugin";
import { memoFor } from "../../core/shared-answers.ts";
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

/** @fastify/swagger knows neither components, nor problem+json, nor what a credential refuses with. */
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
  { name: "documented" },
);

/**
 * What renders the document has a hundred files, and most processes are never asked for it: it is an app of its own,
 * made when the first one asks. What it answers goes out as any answer of ours.
 */
async function renderedDocs(scope: FastifyInstance): Promise<void> {
  const pages = memoFor(Number.POSITIVE_INFINITY, () => renderer(scope));
  const open = { config: { auth: "public" }, schema: { hide: true } } as const;
  for (const url of [PAGE, `${PAGE}/*`])
    scope.get(url, open, async (request, reply) => {
      const { url: asked, method } = request;
      const answer = await (await pages()).inject({ method: method as "GET", url: asked });
      // It knows what its answers are; of the rest (its age, its length, its rules) ours is told.
      for (const name of ["content-type", "location", "etag", "cache-control", "last-modified"])
        if (answer.headers[name] !== undefined) reply.header(name, answer.headers[name]);
      return reply.code(answer.statusCode).send(answer.rawPayload);
    });
  // Its page sets inline styles, so it alone gets a wider style rule.
  scope.addHook("onSend", async (_request, reply) => {
    const policy = reply.getHeader("content-security-policy");
    if (typeof policy === "string")
      reply.header(
        "content-security-policy",
        policy.replace("style-src 'self'", "style-src 'self' 'unsafe-inline'"),
      );
  });
}

const PAGE = "/docs";

async function renderer(app: FastifyInstance): Promise<FastifyInstance> {
  const { default: swaggerUi } = await import("@fastify/swagger-ui");
  const pages = Fastify({ routerOptions: { ignoreTrailingSlash: true } });
  await pages.register(
    fp(async (own) => void own.decorate("swagger", () => app.swagger()), {
      name: "@fastify/swagger",
    }),
  );
  await pages.register(swaggerUi, {
    routePrefix: PAGE,
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
  await pages.ready();
  return pages;
}
