import fp from "fastify-plugin";
import type { FastifyRequest } from "fastify";
import { keyHolders, noteKeyUse, type KeyHolder } from "./api-keys.ts";
import { API_KEY_PREFIX, hashApiKey, isApiKeyShape } from "./api-keys.ts";
import { ApiError, type ErrorCode } from "../../errors.ts";

/** The agent whose key came with the request. Paused and expired ones still may read. */
export type RequestAgent = Omit<KeyHolder, "revoked" | "keyExpired" | "isUseStale">;

declare module "fastify" {
  interface FastifyRequest {
    /** Set on routes with `auth: "agent"`. */
    agent: RequestAgent;
  }
  interface FastifyInstance {
    /** The agent a bearer header names, or the ApiError that refuses it (MCP authenticates so too). */
    authenticateAgent(request: FastifyRequest): Promise<RequestAgent>;
  }
}

/** No cache: a key that is revoked on one replica is refused by all at once. */
export default fp(
  async (app) => {
    const holderOf = keyHolders(app.pool);
    app.decorateRequest("agent", null as unknown as RequestAgent);
    app.decorate("authenticateAgent", authenticate);
    app.authenticators.set("agent", async (request) => {
      request.agent = await authenticate(request);
    });

    async function authenticate(request: FastifyRequest): Promise<RequestAgent> {
      const apiKey = readBearer(request);
      const holder = isApiKeyShape(apiKey) ? await holderOf(hashApiKey(apiKey)) : undefined;
      if (!holder) throw await app.refused(request, refusal("invalid_api_key"));
      const { revoked, keyExpired, isUseStale, ...agent } = holder;
      if (revoked) throw await app.refused(request, refusal("api_key_revoked"));
      if (keyExpired) throw await app.refused(request, refusal("api_key_expired"));
      if (isUseStale) {
        // Beside the request: when it was last used is worth no waiting and no failure.
        noteKeyUse(app.pool, agent.apiKeyId).catch((error: unknown) =>
          app.log.warn({ err: error, apiKeyId: agent.apiKeyId }, "last use of a key not noted"),
        );
      }
      return agent;
    }
  },
  { name: "auth-agent" },
);

function readBearer(request: FastifyRequest): string {
  const { authorization } = request.headers;
  if (authorization === undefined || authorization === "") throw refusal("missing_api_key");
  const [, key] = /^Bearer +([^\s]+) *$/i.exec(authorization) ?? [];
  if (key === undefined)
    throw refusal("missing_api_key", "The Authorization header must be `Bearer <AGENT_API_KEY>`.");
  return key;
}

function refusal(code: ErrorCode, detail?: string): ApiError {
  const error = code === "missing_api_key" ? "" : ', error="invalid_token"';
  return new ApiError(code, {
    ...(detail === undefined ? {} : { detail }),
    ...(code === "invalid_api_key"
      ? {
          detail: `This API key is not known here. Keys begin with \`${API_KEY_PREFIX}\` and are shown once, when made.`,
        }
      : {}),
    headers: { "www-authenticate": `Bearer realm="purser"${error}` },
  });
}
