/** Passkeys: sign-up and sign-in, the list of those that may sign, and the payout address of an owner without a wallet. */
import type { FastifyPluginAsyncTypebox } from "@fastify/type-provider-typebox";
import fp from "fastify-plugin";
import { RelatedOrigins } from "../../schemas/passkeys.ts";
import signInRoutes from "./sign-in-routes.ts";
import routes from "./routes.ts";

export default fp(
  async (app) => {
    await app.register(relatedOrigins);
    await app.register(signInRoutes);
    await app.register(routes);
  },
  { name: "passkeys" },
);

/** Read by browsers at the domain of the passkeys, when the pages have moved to another one. */
const relatedOrigins: FastifyPluginAsyncTypebox = async (app) => {
  const { passkeys } = app.config;
  app.get(
    "/.well-known/webauthn",
    {
      config: { auth: "public" },
      schema: {
        hide: true,
        summary: "The pages that may use passkeys of this domain (WebAuthn)",
        response: { 200: RelatedOrigins },
      },
    },
    async (_request, reply) => {
      reply.header("cache-control", "public, max-age=300");
      return { origins: [...(passkeys?.origins ?? [])] };
    },
  );
};
