/** How each credential is proven: an agent's key, an owner's session, a merchant's key. */
import fp from "fastify-plugin";
import agent from "./agent.ts";
import owner from "./owner.ts";
import facilitator from "./facilitator.ts";

export default fp(
  async (app) => {
    await app.register(agent);
    await app.register(owner);
    await app.register(facilitator);
  },
  { name: "auth-module" },
);
