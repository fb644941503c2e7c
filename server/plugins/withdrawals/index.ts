import fp from "fastify-plugin";
import routes from "./routes.ts";
import {
  isContractAt,
  isSignedByKey,
  verifyAccountSignature,
} from "../../infra/chain/account-signature.ts";
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
        reserve: (request) => reserveWithdrawal(app.pool, request),
        now: () => databaseSeconds(app.pool),
        networks: app.chains.all.map(({ network }) => network),
        networkOf: (chainId) => app.networkOf(Number(chainId)),
        verifySignature: async (networkId, args) => {
          const chain = app.chains.byNetwork(networkId);
          if (chain) return verifyAccountSignature(chain, args);
          // Configured no more: a key needs no chain to vouch for it.
          const { address, hash, signature } = args;
          return (await isSignedByKey(address, hash, signature)) ? "valid" : "unavailable";
        },
        isMissingOn: async (account, { home, other }) => {
          const [isHere, isThere] = await Promise.all(
            [home, other].map(async (id) => {
              const chain = app.chains.byNetwork(id);
              return chain && isContractAt(chain, account).catch(() => undefined);
            }),
          );
          // While home is silent it vouches for no contract's order either.
          return isHere === true && isThere !== true;
        },
      }),
    );
    await app.register(routes);
  },
  { name: "withdrawals" },
);
