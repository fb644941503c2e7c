import swagger from "@fastify/swagger";
import fp from "fastify-plugin";
import { ERRORS } from "../../errors.ts";
import { VERSION } from "../../infra/version.ts";
import type { Credential } from "./route-auth.ts";

const SECURITY: Record<Credential, { [scheme: string]: string[] }[] | undefined> = {
  public: [],
  agent: [{ agentKey: [] }],
  owner: [{ ownerSession: [] }],
  facilitator: [{}, { facilitatorKey: [] }],
};

/** OpenAPI 3.1 from the routes' own schemas; the error catalogue rides along as `x-error-codes`. */
export default fp(
  async (app) => {
    await app.register(swagger, {
      openapi: {
        openapi: "3.1.0",
        info: {
          title: "Purser",
          version: VERSION,
          description: "A USDC wallet with limits for AI agents, and an x402 payment facilitator.",
          license: { name: "MIT", identifier: "MIT" },
        },
        servers: [{ url: app.config.publicUrl }],
        components: {
          securitySchemes: {
            agentKey: {
              type: "http",
              scheme: "bearer",
              description: "An agent's API key (`purser_...`)",
            },
            facilitatorKey: {
              type: "http",
              scheme: "bearer",
              description: "Only where the operator set FACILITATOR_API_KEYS",
            },
            ownerSession: {
              type: "apiKey",
              in: "cookie",
              name: "purser_session",
              description: "The owner's session cookie (SIWE sign-in)",
            },
          },
        },
        "x-error-codes": Object.entries(ERRORS).map(([code, definition]) => ({
          code,
          ...definition,
        })),
      } as never,
      transform: ({ schema, url, route }) => {
        const auth = route.config?.auth;
        const security = auth === undefined ? undefined : SECURITY[auth];
        return { schema: { ...schema, ...(security ? { security } : {}) }, url };
      },
    });
  },
  { name: "openapi" },
);
