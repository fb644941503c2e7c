import { Readable } from "node:stream";
import type { FastifyPluginAsyncTypebox } from "@fastify/type-provider-typebox";

const routes: FastifyPluginAsyncTypebox = async (app) => {
  app.get(
    "/api/events",
    {
      config: { auth: "owner" },
      schema: {
        tags: ["owners: payments"],
        summary: "Server-sent events `payment`, `agent`, `session`; resumes with Last-Event-ID",
        produces: ["text/event-stream"],
      },
    },
    async (request, reply) => {
      const { owner, headers } = request;
      const lastEventId = [headers["last-event-id"]].flat()[0];
      const stream = app.ownerEvents({
        ownerId: owner.id,
        sessionId: owner.sessionId,
        lastEventId,
      });
      return reply
        .headers({
          "content-type": "text/event-stream; charset=utf-8",
          "cache-control": "no-store, no-transform",
          // Proxies that buffer would hold events back.
          "x-accel-buffering": "no",
        })
        .send(Readable.from(stream));
    },
  );
};

export default routes;
