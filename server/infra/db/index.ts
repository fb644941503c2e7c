import fp from "fastify-plugin";
import { createPool, surviveLostConnections, type Pool } from "./pool.ts";
import { createPrisma, type PrismaClient } from "./prisma.ts";

declare module "fastify" {
  interface FastifyInstance {
    /** SQL where Prisma cannot say it, or not fast enough (README, Database). */
    pool: Pool;
    /** Every ordinary read and write. */
    prisma: PrismaClient;
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
    // Loads its query compiler now instead of in the first request; the database is not asked yet.
    await prisma.$connect();
    app.decorate("pool", pool);
    app.decorate("prisma", prisma);
    app.addHook("onClose", async () => {
      await prisma.$disconnect();
      await pool.end();
    });
  },
  { name: "db" },
);
