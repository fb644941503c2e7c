/** What operators, agents and programs ask about the service itself. */
import fp from "fastify-plugin";
import { agentDocRoutes, operatorRoutes, serviceRoutes } from "./routes.ts";

export default fp(
  async (app) => {
    await app.register(operatorRoutes);
    await app.register(serviceRoutes);
    await app.register(agentDocRoutes);
  },
  { name: "meta" },
);
