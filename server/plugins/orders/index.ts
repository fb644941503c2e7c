/** Orders that owners sign with their wallets (EIP-712). */
import fp from "fastify-plugin";
import { isSignedByOwner } from "../../infra/chain/account-signature.ts";
import { OwnerOrders } from "./orders.ts";

declare module "fastify" {
  interface FastifyInstance {
    ownerOrders: OwnerOrders;
  }
}

export default fp(
  async (app) => {
    app.decorate(
      "ownerOrders",
      new OwnerOrders({
        prisma: app.prisma,
        verifySignature: (owner, signed) => isSignedByOwner(app.chains, owner, signed),
      }),
    );
  },
  { name: "orders" },
);
