import fp from "fastify-plugin";
import routes from "./routes.ts";
import { verifyAccountSignature } from "../../infra/chain/account-signature.ts";
import { databaseSeconds, reserveWithdrawal } from "./store.ts";
import { Withdrawals } from "./withdrawals.ts";

declare module "fastify" {
  interface FastifyInstance {
    withdrawals: Withdrawals;
  }
}

export default fp(
  async (app) => {
    app.decorate(
      "withdrawals",
      new Withdrawals({
        flow: app.payments,
        settlement: app.settlement,
        readBalance: (chainId, wallet) => app.agentReserve.readBalance(chainId, wallet),
        outstanding: (args) => app.limits.outstanding(args),
        reserve: (request) =>
          app.inTurn(request.agentId, () => reserveWithdrawal(app.pool, request)),
        now: () => databaseSeconds(app.pool),
        verifySignature: async (chainId, args) => {
          const chain = app.chains.byChainId(chainId);
          return chain ? verifyAccountSignature(chain, args) : "unavailable";
        },
      }),
    );
    await app.register(routes);
  },
  { name: "withdrawals" },
);
