/** Owners sign in with their wallet. */
import fp from "fastify-plugin";
import routes from "./routes.ts";
import { deleteExpiredSignIns } from "./store.ts";

export default fp(
  async (app) => {
    await app.register(routes);
    app.jobs.addTask(
      "forget-sign-ins",
      async () =>
        app.log.info({ signIns: await deleteExpiredSignIns(app.prisma) }, "old rows deleted"),
      { cron: "17 * * * *", atStart: true },
    );
  },
  { name: "owners" },
);
