import { createHash, timingSafeEqual } from "node:crypto";
import type { FastifyPluginAsyncTypebox } from "@fastify/type-provider-typebox";
import { ApiError } from "../../errors.ts";

const routes: FastifyPluginAsyncTypebox = async (app) => {
  app.get(
    "/metrics",
    { config: { auth: "public" }, schema: { hide: true } },
    async (request, reply) => {
      const { metricsToken } = app.config;
      if (
        metricsToken !== undefined &&
        !isSame(request.headers.authorization ?? "", `Bearer ${metricsToken}`)
      ) {
        throw new ApiError("missing_api_key", {
          detail: "Send `Authorization: Bearer <METRICS_TOKEN>`.",
          headers: { "www-authenticate": "Bearer" },
        });
      }
      return reply.type(app.metrics.contentType).send(await app.metrics.metrics());
    },
  );
};

const digest = (text: string): Buffer => createHash("sha256").update(text).digest();
const isSame = (left: string, right: string): boolean =>
  timingSafeEqual(digest(left), digest(right));

export default routes;
