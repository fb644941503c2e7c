/** Owners' sign-in with their wallet (with a passkey: plugins/passkeys), and their sessions. */
import fp from "fastify-plugin";
import type { FastifyPluginAsyncTypebox } from "@fastify/type-provider-typebox";
import { getAddress, type Address } from "viem";
import { parseAddress } from "../../core/foreign-text.ts";
import type { FastifyRequest } from "fastify";
import { actorOf, isOperator } from "../auth/index.ts";
import { listSessions, revokeSession } from "../auth/sessions.ts";
import { noteAudit } from "../audit/store.ts";
import { issueNonce, signIn, type Caller } from "./sign-in.ts";
import { signsWith, stoppedOf, teamsOf, viewStopped } from "./store.ts";
import { readPage, toPage } from "../../core/paging.ts";
import { ApiError } from "../../errors.ts";
import { IdParams, PageQuery } from "../../schemas/common.ts";
import {
  Done,
  Nonce,
  SessionInfo,
  SessionPage,
  SignInBody,
  SignedIn,
} from "../../schemas/owners.ts";
import { acceptEmptyJson } from "../http/index.ts";

export default fp(
  async (app) => {
    await app.register(routes);
  },
  { name: "owners" },
);

const routes: FastifyPluginAsyncTypebox = async (app) => {
  acceptEmptyJson(app);
  app.addHook("onSend", async (_request, reply) => void reply.header("cache-control", "no-store"));
  const tags = ["owners: session"];

  app.get(
    "/api/auth/nonce",
    {
      config: { auth: "public", limit: "sign-in" },
      schema: {
        tags,
        operationId: "createSignInNonce",
        summary: "A nonce for a sign-in message",
        response: { 200: Nonce },
      },
    },
    async () => ({ nonce: await issueNonce(app.prisma) }),
  );

  app.post(
    "/api/auth/verify",
    {
      // Rate limited, because anybody can make us call a chain to verify a contract's signature.
      config: {
        auth: "public",
        limit: "sign-in",
        errors: [
          "origin_not_allowed",
          "invalid_signature",
          "chain_unavailable",
          "account_screened",
          "screening_unavailable",
          "other_cell",
        ],
      },
      onRequest: async (request) => app.requireOwnOrigin(request),
      schema: {
        tags,
        operationId: "signIn",
        summary: "Sign in with a signed SIWE message; sets the session cookie",
        body: SignInBody,
        response: { 200: SignedIn },
      },
    },
    async (request, reply) => {
      const { address, token } = await app.proveCredential(request, request.body.message, {
        look: () =>
          signIn(
            {
              message: request.body.message,
              signature: request.body.signature,
              secondOf: readOwner(request.body.owner),
              ...callerOf(request),
            },
            {
              prisma: app.prisma,
              own: app.ownOrigins,
              chains: app.chains.all,
              isVerified: (chainId) => app.chains.verified.has(chainId),
              screening: app.screening,
              cells: app.cells,
            },
          ),
        // A message works once, so the result is a session and not a credential to remember.
        isProven: () => true,
      });
      app.sessionCookie.set(reply, token);
      return { address: getAddress(address) };
    },
  );

  app.get(
    "/api/auth/session",
    {
      config: { auth: "owner" },
      schema: {
        tags,
        operationId: "getSession",
        summary: "Who is signed in",
        response: { 200: SessionInfo },
      },
    },
    async ({ owner }) => {
      const [stopped, teams] = await Promise.all([
        stoppedOf(app.prisma, owner.id),
        owner.second ? [] : teamsOf(app.prisma, owner.member ?? owner),
      ]);
      const { member } = owner;
      return {
        teams,
        member: member && { address: getAddress(member.address), role: member.role },
        address: getAddress(owner.address),
        signsWith: signsWith(owner.chainId),
        signedInWith: owner.passkeyId === null ? ("wallet" as const) : ("passkey" as const),
        second: owner.second && getAddress(owner.second.address),
        stopped: stopped && viewStopped(stopped),
        ...(isOperator(app.config.operators, owner) && { operator: true as const }),
        sessionId: owner.sessionId,
        createdAt: owner.sessionCreatedAt.toISOString(),
        expiresAt: owner.sessionExpiresAt.toISOString(),
      };
    },
  );

  app.post(
    "/api/auth/logout",
    {
      config: { auth: "owner", second: true, team: "viewer" },
      schema: {
        tags,
        operationId: "signOut",
        summary: "End this session",
        response: { 200: Done },
      },
    },
    async (request, reply) => {
      await endSession(request, request.owner.sessionId);
      app.sessionCookie.clear(reply);
      return { success: true as const };
    },
  );

  app.get(
    "/api/auth/sessions",
    {
      config: { auth: "owner" },
      schema: {
        tags,
        operationId: "listSessions",
        summary: "This owner's active sessions",
        querystring: PageQuery,
        response: { 200: SessionPage },
      },
    },
    async ({ owner, query }) => {
      const page = readPage(query);
      return toPage(await listSessions(app.prisma, owner.id, page), page.limit, (row) => ({
        id: row.id,
        createdAt: row.createdAt.toISOString(),
        lastSeenAt: row.lastSeenAt.toISOString(),
        expiresAt: row.expiresAt.toISOString(),
        userAgent: row.userAgent,
        ip: row.ip,
        current: row.id === owner.sessionId,
      }));
    },
  );

  app.delete(
    "/api/auth/sessions/:id",
    {
      config: { auth: "owner", second: true, team: false },
      schema: {
        tags,
        operationId: "endSession",
        summary: "End one of this owner's sessions",
        params: IdParams,
        response: { 200: Done },
      },
    },
    async (request, reply) => {
      const { owner, params } = request;
      if (!(await endSession(request, params.id)))
        throw new ApiError("not_found", { detail: "You have no session with this id." });
      if (params.id === owner.sessionId) app.sessionCookie.clear(reply);
      return { success: true as const };
    },
  );
};

/** Who asks for a session. */
export const callerOf = (request: FastifyRequest): Caller => ({
  userAgent: request.headers["user-agent"] ?? "",
  ip: request.ip,
  requestId: request.id,
  oldToken: request.server.sessionCookie.read(request),
});

function readOwner(text: string | undefined): Address | undefined {
  if (text === undefined) return undefined;
  const parsed = parseAddress(text);
  if (parsed.ok) return parsed.address;
  const errors = [{ path: "body.owner", message: parsed.reason }];
  throw new ApiError("invalid_address", {
    detail: `body.owner ${parsed.reason}`,
    extra: { errors },
  });
}

/** False if the owner has no such active session. */
async function endSession(request: FastifyRequest, sessionId: string): Promise<boolean> {
  const { owner, server } = request;
  // A session is its person's, also while that person acts for a team.
  const ownerId = owner.member?.ownerId ?? owner.id;
  return server.prisma.$transaction(async (tx) => {
    if (!(await revokeSession(tx, ownerId, sessionId))) return false;
    await noteAudit(tx, {
      ownerId,
      agentId: null,
      actor: actorOf(owner),
      action: sessionId === owner.sessionId ? "session.ended" : "session.revoked",
      before: null,
      after: { sessionId },
      requestId: request.id,
    });
    return true;
  });
}
