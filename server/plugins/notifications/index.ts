/** Telling people what their agents did. */
import fp from "fastify-plugin";
import { mail } from "./mail-plugin.ts";

export default fp(
  async (app) => {
    await mail(app);
  },
  { name: "notifications" },
);
