/** The OpenAPI document: made from the routes' own schemas, served as JSON and rendered. */
import swagger from "@fastify/swagger";
import swaggerUi from "@fastify/swagger-ui";
import type { FastifyInstance } from "fastify";
import fp from "fastify-plugin";
import { ERRORS } from "../../errors.ts";
import { VERSION } from "../../infra/version.ts";
import type { Credential } from "./index.ts";

const SECURITY: Record<Credential, { [scheme: string]: string[] }[] | undefined> = {
  public: [],
  agent: [{ agentKey: [] }],
  owner: [{ ownerSession: [] }],
  facilitator: [{}, { facilitatorKey: [] }],
};

export default fp(
  async (app) => {
    await describeRoutes(app);
    app.get(
      "/openapi.json",
      { config: { auth: "public" }, schema: { hide: true } },
      async (_request, reply) => {
        reply.header("access-control-allow-origin", "*");
        return app.swagger();
      },
    );
    await app.register(renderedDocs);
  },
  { name: "openapi" },
);

/** OpenAPI 3.1; the error catalogue rides along as `x-error-codes`. */
async function describeRoutes(app: FastifyInstance): Promise<void> {
  await app.register(swagger, {
    openapi: {
      openapi: "3.1.0",
      info: {
        title: "Purser",
        version: VERSION,
        description: "A USDC wallet with limits for AI agents, and an x402 payment facilitator.",
        license: { name: "MIT", identifier: "MIT" },
      },
      servers: [{ url: app.config.publicUrl }],
      components: {
        securitySchemes: {
          agentKey: {
            type: "http",
            scheme: "bearer",
            description: "An agent's API key (`purser_...`)",
          },
          facilitatorKey: {
            type: "http",
            scheme: "bearer",
            description: "Only where the operator set FACILITATOR_API_KEYS",
          },
          ownerSession: {
            type: "apiKey",
            in: "cookie",
            name: "purser_session",
            description: "The owner's session cookie (SIWE sign-in)",
          },
        },
      },
      "x-error-codes": Object.entries(ERRORS).map(([code, definition]) => ({
        code,
        ...definition,
      })),
    } as never,
    transform: ({ schema, url, route }) => {
      const auth = route.config?.auth;
      const security = auth === undefined ? undefined : SECURITY[auth];
      return { schema: { ...schema, ...(security ? { security } : {}) }, url };
    },
  });
}

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
