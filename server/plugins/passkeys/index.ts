/** Passkeys: sign-up and sign-in, the list of those that may sign, and the payout address of an owner without a wallet. */
import fp from "fastify-plugin";
import signInRoutes from "./sign-in-routes.ts";
import routes from "./routes.ts";

export default fp(
  async (app) => {
    await app.register(signInRoutes);
    await app.register(routes);
  },
  { name: "passkeys" },
);
