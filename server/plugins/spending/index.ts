/** What the agents of an owner spent together: sums, saved filters, and exports for bookkeeping. */
import fp from "fastify-plugin";
import routes from "./routes.ts";

export default fp(
  async (app) => {
    await app.register(routes);
  },
  { name: "spending" },
);
