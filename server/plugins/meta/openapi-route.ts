import type { FastifyPluginAsyncTypebox } from "@fastify/type-provider-typebox";

const routes: FastifyPluginAsyncTypebox = async (app) => {
  app.get(
    "/openapi.json",
    { config: { auth: "public" }, schema: { hide: true } },
    async (_request, reply) => {
      reply.header("access-control-allow-origin", "*");
      return app.swagger();
    },
  );
};

export default routes;
