import fp from "fastify-plugin";
import { Outbound } from "./outbound.ts";
import { VERSION } from "../version.ts";

declare module "fastify" {
  interface FastifyInstance {
    /** Requests to addresses somebody else chose; nothing else in the service makes such. */
    outbound: Outbound;
  }
}

export default fp(
  async (app) => {
    const { config } = app;
    const outbound = new Outbound({
      isHttpAllowed: config.local !== undefined,
      privateOrigins: config.fetchPrivateOrigins,
      userAgent: `Purser/${VERSION} (+${config.publicUrl})`,
    });
    app.decorate("outbound", outbound);
    app.addHook("onClose", () => outbound.close());
  },
  { name: "outbound" },
);
