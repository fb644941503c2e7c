/** Approvals: payments that a rule denied, and that the owner may allow once. */
import fp from "fastify-plugin";
import { Approvals } from "./approvals.ts";
import routes from "./routes.ts";
import { decidedAmong, expireApprovals } from "./store.ts";
import { Waiting } from "./waiting.ts";

declare module "fastify" {
  interface FastifyInstance {
    approvals: Approvals;
  }
}

export default fp(
  async (app) => {
    app.decorate(
      "approvals",
      new Approvals({
        prisma: app.prisma,
        withAgentLock: (agentId, work) => app.withAgentLock(agentId, work),
        networkOf: (chainId) => app.chains.byChainId(chainId)?.network.id ?? `eip155:${chainId}`,
      }),
    );
    const waiting = new Waiting({
      decided: (ids) => decidedAmong(app.prisma, ids),
      trouble: (error) => app.log.debug({ err: error }, "could not read decisions"),
    });
    // Waiting requests would delay a shutdown.
    app.addHook("preClose", async () => waiting.close());
    app.jobs.addTask("expire-approvals", async () => void (await expireApprovals(app.prisma)), {
      cron: "* * * * *",
      atStart: true,
    });
    await app.register(routes, { waiting });
  },
  { name: "approvals" },
);
