/** OAuth 2.1 for the MCP endpoint: programs connect to an agent without copying a key by hand. */
import fp from "fastify-plugin";
import { deleteOldTokens } from "../auth/connections.ts";
import { consentRoutes } from "./consent-routes.ts";
import { sendMcpError } from "./errors.ts";
import { metadataRoutes } from "./metadata.ts";
import { deleteOldRequests } from "./store.ts";
import { tokenRoutes } from "./token-routes.ts";

export default fp(
  async (app) => {
    // The protected resource uses JSON-RPC, also for its refusals.
    app.addHook("onRoute", (route) => {
      if (route.config?.oauth === true) route.errorHandler = sendMcpError as never;
    });
    await app.register(metadataRoutes);
    await app.register(tokenRoutes);
    await app.register(consentRoutes);
    app.jobs.addTask(
      "forget-oauth",
      async () =>
        app.log.info(
          {
            ...(await deleteOldRequests(app.prisma)),
            expired: await deleteOldTokens(app.prisma),
          },
          "old rows deleted",
        ),
      { cron: "41 * * * *", atStart: true },
    );
  },
  { name: "oauth" },
);
