import fp from "fastify-plugin";
import routes from "./routes.ts";
import { verifyAccountSignature } from "../../infra/chain/account-signature.ts";
import { findPayment } from "../payments/store.ts";
import { databaseSeconds, reserveWithdrawal } from "./store.ts";
import { Withdrawals } from "./withdrawals.ts";

declare module "fastify" {
  interface FastifyInstance {
    withdrawals: Withdrawals;
  }
}

export default fp(
  async (app) => {
    const { settlement, chainReads } = app;
    app.decorate(
      "withdrawals",
      new Withdrawals({
        payments: app.payments,
        idempotency: app.idempotency,
        settlement,
        balances: chainReads,
        outstanding: (args) => app.limits.outstanding(args),
        reserve: (request) => reserveWithdrawal(app.pool, request),
        now: () => databaseSeconds(app.pool),
        verifySignature: async (chainId, args) => {
          const chain = app.chains.byChainId(chainId);
          return chain ? verifyAccountSignature(chain, args) : "unavailable";
        },
        findPayment: (key) => findPayment(app.pool, key),
        settleWaitMs: app.config.settleWaitMs,
      }),
    );
    await app.register(routes);
  },
  { name: "withdrawals" },
);
