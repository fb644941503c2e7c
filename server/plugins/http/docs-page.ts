import swaggerUi from "@fastify/swagger-ui";
import fp from "fastify-plugin";

/** The OpenAPI document, rendered. Its page sets inline styles, so it alone gets a wider style rule. */
export default fp(
  async (app) => {
    await app.register(async (scope) => {
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
    });
  },
  { name: "docs-page" },
);
