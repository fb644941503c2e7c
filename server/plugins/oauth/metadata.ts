/** OAuth metadata documents (RFC 8414, RFC 9728). They contain only supported features. */
import type { FastifyPluginAsyncTypebox } from "@fastify/type-provider-typebox";
import { AuthorizationServer, ProtectedResource } from "../../schemas/oauth.ts";
import { RESOURCE_METADATA_PATH, RESOURCE_PATH } from "../auth/index.ts";
import { OAUTH_SCOPE } from "../http/document.ts";

/** The issuer is an origin: that of PUBLIC_URL, and for a loopback address also the other loopback name. */
export const resourceOf = (issuer: string): string => `${issuer}${RESOURCE_PATH}`;

const protectedResource = (issuer: string) => ({
  resource: resourceOf(issuer),
  authorization_servers: [issuer],
  scopes_supported: [OAUTH_SCOPE],
  bearer_methods_supported: ["header"],
  resource_name: "Purser: an agent's wallet",
  resource_documentation: `${issuer}/skill.md`,
});

const authorizationServer = (issuer: string) => ({
  issuer: issuer,
  authorization_endpoint: `${issuer}/oauth/authorize`,
  token_endpoint: `${issuer}/oauth/token`,
  registration_endpoint: `${issuer}/oauth/register`,
  revocation_endpoint: `${issuer}/oauth/revoke`,
  response_types_supported: ["code"],
  response_modes_supported: ["query"],
  grant_types_supported: ["authorization_code", "refresh_token"],
  code_challenge_methods_supported: ["S256"],
  token_endpoint_auth_methods_supported: ["none"],
  revocation_endpoint_auth_methods_supported: ["none"],
  scopes_supported: [OAUTH_SCOPE],
  authorization_response_iss_parameter_supported: true,
  client_id_metadata_document_supported: true,
  protected_resources: [resourceOf(issuer)],
  service_documentation: `${issuer}/developers`,
});

/** Clients of different ages read different paths; the response is the same. */
const RESOURCE_PATHS = ["/.well-known/oauth-protected-resource", RESOURCE_METADATA_PATH];
const SERVER_PATHS = [
  "/.well-known/oauth-authorization-server",
  `/.well-known/oauth-authorization-server${RESOURCE_PATH}`,
];

export const metadataRoutes: FastifyPluginAsyncTypebox = async (app) => {
  const config = { auth: "public" } as const;
  // A refusal, such as of too many requests, keeps its own header: a cache must not return it to others.
  app.addHook("onSend", async (_request, reply) => {
    if (reply.statusCode === 200) reply.header("cache-control", "public, max-age=300");
  });
  for (const path of RESOURCE_PATHS)
    app.get(
      path,
      {
        config,
        schema: {
          hide: true,
          summary: "The MCP endpoint as a protected resource (RFC 9728)",
          response: { 200: ProtectedResource },
        },
      },
      async (request) => protectedResource(app.ownOrigins.originOf(request)),
    );
  for (const path of SERVER_PATHS)
    app.get(
      path,
      {
        config,
        schema: {
          hide: true,
          summary: "The authorization server (RFC 8414)",
          response: { 200: AuthorizationServer },
        },
      },
      async (request) => authorizationServer(app.ownOrigins.originOf(request)),
    );
};
