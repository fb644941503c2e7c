import type { FastifyPluginAsyncTypebox } from "@fastify/type-provider-typebox";
import { FacilitatorService, Supported } from "../../schemas/facilitator.ts";

const routes: FastifyPluginAsyncTypebox = async (app) => {
  const config = { auth: "public" } as const;
  const tags = ["facilitator"];

  app.get(
    "/api/x402",
    {
      config,
      schema: {
        tags,
        summary: "What this facilitator settles: exactly the configured networks and assets",
        response: { 200: FacilitatorService },
      },
    },
    async () => app.facilitator.service(),
  );

  app.get(
    "/api/x402/supported",
    {
      config,
      schema: {
        tags,
        summary: "The protocol's supported kinds; stock middleware reads this at start",
        response: { 200: Supported },
      },
    },
    async () => app.facilitator.supported(),
  );
};

export default routes;
