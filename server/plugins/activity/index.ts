/** What happened to an owner's agents, as it happens: their payments, and money that came in. */
import fp from "fastify-plugin";
import incoming from "./incoming.ts";
import routes from "./routes.ts";
import { deleteOldEvents } from "./events.ts";

const EVENT_HOURS = 48;

export default fp(
  async (app) => {
    await app.register(incoming);
    await app.register(routes);
    app.jobs.addTask(
      "forget-events",
      async () =>
        app.log.info(
          { events: await deleteOldEvents(app.prisma, EVENT_HOURS) },
          "old rows deleted",
        ),
      { cron: "17 * * * *", atStart: true },
    );
  },
  { name: "activity" },
);
