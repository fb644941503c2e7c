/** Orders that owners sign with their wallets or passkeys (EIP-712). */
import fp from "fastify-plugin";
import { OwnerOrders } from "./orders.ts";
import { OwnerSignatures } from "./signatures.ts";
import { memberLists, passkeyLists } from "./store.ts";

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
      listsOf: passkeyLists(prisma),
      membersOf: memberLists(prisma),
    });
    app.decorate("ownerSignatures", signatures);
    app.decorate(
      "ownerOrders",
      new OwnerOrders({
        prisma,
        screening: app.screening,
        checkSignature: (owner, signed) => signatures.check(owner, signed),
      }),
    );
  },
  { name: "orders" },
);
