import type { FastifyPluginAsyncTypebox } from "@fastify/type-provider-typebox";
import type { FastifyRequest } from "fastify";
import { newId } from "../../core/ids.ts";
import {
  OauthProblem,
  Registered,
  RegistrationBody,
  RevokeBody,
  Revoked,
  TokenAnswer,
  TokenBody,
} from "../../schemas/oauth.ts";
import { OAUTH_SCOPE } from "../http/document.ts";
import { readMetadata } from "./clients.ts";
import { isResource } from "./consent.ts";
import { OauthError, sendOauthError } from "./errors.ts";
import { resourceOf } from "./metadata.ts";
import { insertClient } from "./store.ts";
import { exchangeCode, renew, revoke } from "./tokens.ts";

const FORM_BYTES = 16 * 1024;
const problems = { "4xx": OauthProblem, "5xx": OauthProblem };

/**
 * Endpoints for programs, which are unauthenticated until their credentials are verified. The OAuth metadata lists them
 * and they use OAuth's errors, so they are not in the OpenAPI document.
 */
export const tokenRoutes: FastifyPluginAsyncTypebox = async (app) => {
  const config = { auth: "public" } as const;
  app.setErrorHandler(sendOauthError);
  app.addHook(
    "onSend",
    async (_request, reply) =>
      void reply.headers({ "cache-control": "no-store", pragma: "no-cache" }),
  );

  app.post(
    "/oauth/register",
    {
      config: { ...config, limit: "register" },
      bodyLimit: FORM_BYTES,
      schema: {
        hide: true,
        summary: "Register a program (RFC 7591); deleted after a week if nobody connects it",
        body: RegistrationBody,
        response: { 201: Registered, ...problems },
      },
    },
    async ({ body }, reply) => {
      const client = { id: newId("ocl"), ...readMetadata(body) };
      const createdAt = await insertClient(app.prisma, client);
      return reply.code(201).send({
        client_id: client.id,
        client_id_issued_at: Math.floor(createdAt.getTime() / 1000),
        client_name: client.name,
        redirect_uris: client.redirectUris,
        grant_types: ["authorization_code", "refresh_token"],
        response_types: ["code"],
        token_endpoint_auth_method: "none" as const,
        scope: OAUTH_SCOPE,
      });
    },
  );

  await app.register(async (forms) => {
    readForms(forms);
    const asForm: FastifyPluginAsyncTypebox = async (scope) => {
      scope.post(
        "/oauth/token",
        {
          config,
          bodyLimit: FORM_BYTES,
          schema: {
            hide: true,
            summary: "Tokens for a code (with PKCE) or for a refresh token",
            consumes: [FORM],
            body: TokenBody,
            response: { 200: TokenAnswer, ...problems },
          },
        },
        async (request) => {
          const { accessToken, refreshToken, accessSeconds } = await grant(request, request.body);
          return {
            access_token: accessToken,
            token_type: "Bearer" as const,
            expires_in: accessSeconds,
            refresh_token: refreshToken,
            scope: OAUTH_SCOPE,
          };
        },
      );

      scope.post(
        "/oauth/revoke",
        {
          config,
          bodyLimit: FORM_BYTES,
          schema: {
            hide: true,
            summary: "End a token (RFC 7009); a refresh token ends its connection",
            consumes: [FORM],
            body: RevokeBody,
            response: { 200: Revoked, ...problems },
          },
        },
        async (request) => {
          const token = wanted(request.body.token, "token");
          const clientId = request.body.client_id;
          const call = { prisma: app.prisma, requestId: request.id };
          await app.proveCredential(request, token, {
            look: () => revoke(call, { token, clientId }),
            // The response reveals nothing about the token, so every call is counted.
            isProven: () => false,
          });
          return {};
        },
      );
    };
    await forms.register(asForm);
  });

  async function grant(request: FastifyRequest, body: Record<string, unknown>) {
    const text = (name: string) => wanted(body[name], name);
    const call = { prisma: app.prisma, requestId: request.id };
    const type = text("grant_type");
    if (type !== "authorization_code" && type !== "refresh_token")
      throw new OauthError("unsupported_grant_type", "authorization_code or refresh_token.");
    const clientId = text("client_id");
    const requested = body["resource"];
    const resource = resourceOf(app.ownOrigins.originOf(request));
    if (!isResource(typeof requested === "string" ? requested : undefined, resource))
      throw new OauthError("invalid_target", `resource must be ${resource}.`);
    const isCode = type === "authorization_code";
    const shown = text(isCode ? "code" : "refresh_token");
    const look = isCode
      ? () =>
          exchangeCode(call, {
            code: shown,
            clientId,
            redirectUri: redirectUriOf(body),
            verifier: text("code_verifier"),
          })
      : () =>
          renew(call, { refreshToken: shown, clientId }, (keyId) => app.countFor("renewal", keyId));
    // A refusal is returned and not thrown here, so that it counts as an unverified credential.
    const found = await app.proveCredential(request, shown, {
      look: () =>
        look().catch((error: unknown) => {
          if (error instanceof OauthError) return error;
          throw error;
        }),
      isProven: (answer) => !(answer instanceof OauthError),
    });
    if (found instanceof OauthError) throw found;
    return found;
  }
};

const FORM = "application/x-www-form-urlencoded";

function readForms(app: Parameters<FastifyPluginAsyncTypebox>[0]): void {
  app.removeAllContentTypeParsers();
  app.addContentTypeParser(FORM, { parseAs: "string" }, (_request, body, done) => {
    const form = new URLSearchParams(body as string);
    const names = [...form.keys()];
    // RFC 6749 section 3.2: each parameter at most once, so that two parsers cannot read different values.
    if (new Set(names).size !== names.length)
      done(new OauthError("invalid_request", "A parameter is repeated."), undefined);
    else done(null, Object.fromEntries(form));
  });
}

/** Optional in OAuth 2.1, required in OAuth 2.0; an empty value counts as absent (RFC 6749 section 3.2). */
function redirectUriOf({ redirect_uri: shown }: Record<string, unknown>): string | undefined {
  return typeof shown === "string" && shown !== "" ? shown : undefined;
}

function wanted(value: unknown, name: string): string {
  if (typeof value !== "string" || value === "")
    throw new OauthError("invalid_request", `${name} is missing.`);
  return value;
}
