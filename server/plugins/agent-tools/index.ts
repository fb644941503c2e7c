/** The same calls as tools: MCP, and definitions for the common function-calling formats. */
import fp from "fastify-plugin";
import { definitionRoutes, mcpRoutes } from "./routes.ts";

export default fp(
  async (app) => {
    await app.register(mcpRoutes);
    await app.register(definitionRoutes);
  },
  { name: "agent-tools" },
);
