/** The same calls as tools: MCP, and definitions for the common function-calling formats. */
import fp from "fastify-plugin";
import mcp from "./mcp.ts";
import definitions from "./definitions.ts";

export default fp(
  async (app) => {
    await app.register(mcp);
    await app.register(definitions);
  },
  { name: "agent-tools-module" },
);
