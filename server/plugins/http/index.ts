/** What every request passes, whoever asks: errors, headers, limits, who may call, and what is not there. */
import fp from "fastify-plugin";
import type { FastifyInstance } from "fastify";
import errors from "./errors.ts";
import headers from "./headers.ts";
import rateLimits from "./rate-limits.ts";
import routeAuth from "./route-auth.ts";
import requestBody from "./request-body.ts";
import openapi from "./openapi.ts";
import notFound from "./not-found.ts";

export default fp(
  async (app) => {
    await app.register(errors);
    logAnswers(app);
    await app.register(headers);
    await app.register(rateLimits);
    await app.register(routeAuth);
    await app.register(requestBody);
    await app.register(openapi);
    await app.register(notFound);
  },
  { name: "http" },
);

/** One line per answer: what was asked, by which agent or owner, how it ended, how long it took. */
function logAnswers(app: FastifyInstance): void {
  app.addHook("onResponse", async (request, reply) => {
    const { agent, owner } = request;
    request.log.info(
      {
        req: request,
        statusCode: reply.statusCode,
        elapsedMs: Math.round(reply.elapsedTime),
        ...(agent ? { agentId: agent.id } : {}),
        ...(owner ? { ownerId: owner.id } : {}),
      },
      "answered",
    );
  });
}
