/** The steps of a new owner up to the first paid call. What decides is stored, so every device shows the same. */
import fp from "fastify-plugin";
import type { FastifyPluginAsyncTypebox } from "@fastify/type-provider-typebox";
import { FirstSteps } from "../../schemas/first-steps.ts";
import { acceptEmptyJson } from "../http/index.ts";
import { hideFirstSteps, readFirstSteps } from "./store.ts";

export default fp(
  async (app) => {
    await app.register(routes);
  },
  { name: "first-steps" },
);

const routes: FastifyPluginAsyncTypebox = async (app) => {
  acceptEmptyJson(app);
  app.addHook("onSend", async (_request, reply) => void reply.header("cache-control", "no-store"));
  const tags = ["owners: agents"];

  app.get(
    "/api/owner/first-steps",
    {
      config: { auth: "owner" },
      schema: {
        tags,
        operationId: "getFirstSteps",
        summary: "What a new owner has done, and what is left until the first paid call",
        response: { 200: FirstSteps },
      },
    },
    async ({ owner }) => readFirstSteps(app.prisma, owner.id),
  );

  app.post(
    "/api/owner/first-steps/hide",
    {
      config: { auth: "owner" },
      schema: {
        tags,
        operationId: "hideFirstSteps",
        summary: "Show the first steps no more",
        response: { 200: FirstSteps },
      },
    },
    async ({ owner }) => {
      await hideFirstSteps(app.prisma, owner.id);
      return readFirstSteps(app.prisma, owner.id);
    },
  );
};
