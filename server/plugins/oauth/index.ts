/** OAuth 2.1 for the MCP endpoint: programs connect to an agent without copying a key by hand. */
import fp from "fastify-plugin";
import { consentRoutes } from "./consent-routes.ts";
import { sendMcpError } from "./errors.ts";
import { metadataRoutes } from "./metadata.ts";
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
  },
  { name: "oauth" },
);
