import fp from "fastify-plugin";

/** One line per answer: what was asked, by which agent or owner, how it ended, how long it took. */
export default fp(
  async (app) => {
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
  },
  { name: "request-log" },
);
