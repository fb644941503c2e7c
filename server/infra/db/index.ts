import fp from "fastify-plugin";
import { createPool, surviveLostConnections, type Pool } from "./pool.ts";
import { createPrisma, type Prisma } from "./prisma.ts";

declare module "fastify" {
  interface FastifyInstance {
    /** SQL for the hot paths: window, ledger, settlement queue. */
    pool: Pool;
    /** Everything else. */
    prisma: Prisma;
  }
}

export default fp(
  async (app) => {
    const { databaseUrl } = app.config;
    if (databaseUrl === undefined)
      throw new Error("databaseUrl must be resolved before the app is built");
    const pool = createPool(databaseUrl);
    surviveLostConnections(pool, (error) =>
      app.log.warn({ reason: error.message }, "database connection lost"),
    );
    const prisma = createPrisma(pool);
    app.decorate("pool", pool);
    app.decorate("prisma", prisma);
    app.addHook("onClose", async () => {
      await prisma.$disconnect();
      await pool.end();
    });
  },
  { name: "db" },
);
