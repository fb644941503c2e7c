import fp from "fastify-plugin";
import { verifyAccountSignature } from "../adapters/chain/account-signature.ts";
import { findPayment } from "../adapters/stores/payments.ts";
import { databaseSeconds, reserveWithdrawal } from "../adapters/stores/withdrawals.ts";
import { Withdrawals } from "../domain/withdrawals/withdrawals.ts";

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
  },
  { name: "withdrawals", dependencies: ["payments", "guardrails", "idempotency"] },
);
