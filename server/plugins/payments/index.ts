/** What an agent pays, and everything its owner and it can read about that. */
import fp from "fastify-plugin";
import idempotencyPlugin from "./idempotency-plugin.ts";
import wiring from "./wiring.ts";
import reads from "./reads.ts";
import housekeeping from "./housekeeping.ts";
import agentRoutes from "./agent-routes.ts";
import spendRoute from "./spend-route.ts";
import ownerRoutes from "./owner-routes.ts";
import overviewRoute from "./overview-route.ts";

export default fp(
  async (app) => {
    await app.register(idempotencyPlugin);
    await app.register(wiring);
    await app.register(reads);
    await app.register(housekeeping);
    await app.register(agentRoutes);
    await app.register(spendRoute);
    await app.register(ownerRoutes);
    await app.register(overviewRoute);
  },
  { name: "payments-module" },
);
