/** What operators and programs ask about the service itself. */
import fp from "fastify-plugin";
import health from "./health.ts";
import info from "./info.ts";
import metrics from "./metrics.ts";
import openapiRoute from "./openapi-route.ts";
import agentDocs from "./agent-docs.ts";

export default fp(
  async (app) => {
    await app.register(health);
    await app.register(info);
    await app.register(metrics);
    await app.register(openapiRoute);
    await app.register(agentDocs);
  },
  { name: "meta-module" },
);
