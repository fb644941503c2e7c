/** Orders that owners sign with their wallets or passkeys (EIP-712). */
import fp from "fastify-plugin";
import { OwnerOrders } from "./orders.ts";
import { OwnerSignatures } from "./signatures.ts";
import { passkeyLists } from "./store.ts";

declare module "fastify" {
  interface FastifyInstance {
    ownerSignatures: OwnerSignatures;
    ownerOrders: OwnerOrders;
  }
}

export default fp(
  async (app) => {
    const { chains, config, prisma } = app;
    const signatures = new OwnerSignatures({
      chains,
      places: config.passkeys,
      listsOf: (owner, known) => passkeyLists(prisma, owner, known),
    });
    app.decorate("ownerSignatures", signatures);
    app.decorate(
      "ownerOrders",
      new OwnerOrders({
        prisma,
        verifySignature: (owner, signed) => signatures.isSigned(owner, signed),
      }),
    );
  },
  { name: "orders" },
);
