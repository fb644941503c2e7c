/** Teams: owners that are several people, with their members, sessions of members, and orders that wait for signatures. */
import fp from "fastify-plugin";
import routes from "./routes.ts";
import waitingRoutes from "./waiting-routes.ts";

export default fp(
  async (app) => {
    await app.register(routes);
    await app.register(waitingRoutes);
  },
  { name: "teams" },
);
