import type { FastifyPluginAsyncTypebox } from "@fastify/type-provider-typebox";
import type { FastifyRequest } from "fastify";
import type { Static } from "typebox";
import { readPage, toPage } from "../../core/paging.ts";
import { TEAMS_CHAIN } from "../../core/teams.ts";
import { ApiError } from "../../errors.ts";
import { IdParams, PageQuery } from "../../schemas/common.ts";
import {
  AllowBody,
  Answered,
  AskConsentBody,
  ConnectionPage,
  ConnectionParams,
  ConsentRequest,
  RevokedConnection,
  type Connection,
} from "../../schemas/oauth.ts";
import { keyRefusals } from "../../schemas/orders.ts";
import { changeAgent, ownerCall } from "../agents/change.ts";
import { ownAgent } from "../agents/store.ts";
import {
  findConnectionRow,
  listConnections,
  revokeConnection,
  type ConnectionRow,
} from "../auth/connections.ts";
import { acceptEmptyJson } from "../http/index.ts";
import { allow, readConsentRequest, deny } from "./consent.ts";
import { placeOfRedirect } from "./redirects.ts";

/** Routes for the web app's consent page and its list of connections. */
export const consentRoutes: FastifyPluginAsyncTypebox = async (app) => {
  acceptEmptyJson(app);
  app.addHook("onSend", async (_request, reply) => void reply.header("cache-control", "no-store"));
  const tags = ["owners: connections"];
  const issuerFor = (request: FastifyRequest) => app.ownOrigins.originOf(request);

  async function askConsent(request: FastifyRequest<{ Body: Static<typeof AskConsentBody> }>) {
    await assertOneSigns(request);
    return readConsentRequest(app, request.owner, request.body, issuerFor(request));
  }

  /** A consent belongs to one session of ten minutes, so several members cannot sign it. */
  async function assertOneSigns({ owner }: Pick<FastifyRequest, "owner">): Promise<void> {
    if (owner.chainId !== TEAMS_CHAIN) return;
    const list = await app.ownerSignatures.teams.listInForce(owner);
    if (list?.threshold === 1) return;
    throw new ApiError("conflict", {
      detail:
        "In this team several members must sign, so no program can be connected. Create an API key for the program instead.",
    });
  }

  app.post(
    "/api/oauth/requests",
    {
      // Rate limited, because reading a program's document causes requests to a third party's URL.
      config: {
        auth: "owner",
        limit: "probe",
        errors: ["program_refused", "return_address_refused", "conflict"],
      },
      schema: {
        operationId: "askConsent",
        tags,
        summary: "A program's request at /oauth/authorize, for this session",
        body: AskConsentBody,
        response: { 201: ConsentRequest },
      },
    },
    async (request, reply) => reply.code(201).send(await askConsent(request)),
  );

  app.post(
    "/api/oauth/requests/:id/allow",
    {
      config: { auth: "owner" },
      schema: {
        operationId: "allowConnection",
        tags,
        summary: "Connect the program to one agent; the owner's wallet signs it",
        params: IdParams,
        body: AllowBody,
        response: { 200: Answered, ...keyRefusals },
      },
    },
    async (request) => {
      await assertOneSigns(request);
      const { sessionId } = request.owner;
      const answer = { requestId: request.params.id, sessionId, issuer: issuerFor(request) };
      return { redirectTo: await allow(ownerCall(request), answer, request.body.agentId) };
    },
  );

  app.post(
    "/api/oauth/requests/:id/deny",
    {
      config: { auth: "owner" },
      schema: {
        operationId: "denyConnection",
        tags,
        summary: "Refuse the connection and notify the program",
        params: IdParams,
        response: { 200: Answered },
      },
    },
    async (request) => {
      const { sessionId } = request.owner;
      const answer = { requestId: request.params.id, sessionId, issuer: issuerFor(request) };
      return { redirectTo: await deny(ownerCall(request), answer) };
    },
  );

  app.get(
    "/api/agents/:id/connections",
    {
      config: { auth: "owner" },
      schema: {
        operationId: "listConnections",
        tags,
        summary: "Programs connected to an agent by OAuth, including past ones",
        params: IdParams,
        querystring: PageQuery,
        response: { 200: ConnectionPage },
      },
    },
    async (request) => {
      const page = readPage(request.query);
      const agent = await ownAgent(app.prisma, request.owner, request.params.id);
      const rows = await listConnections(app.prisma, agent.id, page);
      return toPage(rows, page.limit, viewConnection);
    },
  );

  app.delete(
    "/api/agents/:id/connections/:connectionId",
    {
      config: { auth: "owner", second: true },
      schema: {
        operationId: "revokeConnection",
        tags,
        summary: "End a connection immediately",
        params: ConnectionParams,
        response: { 200: RevokedConnection },
      },
    },
    async (request) => {
      const { id, connectionId: keyId } = request.params;
      const connection = await changeAgent(ownerCall(request), id, async ({ tx, audit }) => {
        const before = await findConnectionRow(tx, id, keyId);
        if (!before)
          throw new ApiError("not_found", { detail: "This agent has no connection with this id." });
        if (await revokeConnection(tx, { agentId: id, keyId }))
          await audit({
            action: "connection.revoked",
            before: { id: keyId, label: before.label },
            after: { by: "owner" },
          });
        return (await findConnectionRow(tx, id, keyId)) ?? before;
      });
      return { connection: viewConnection(connection) };
    },
  );
};

const viewConnection = (row: ConnectionRow): Connection => ({
  id: row.id,
  label: row.label,
  clientId: row.connection.clientId,
  thirdParty: { untrusted: true, name: row.connection.clientName },
  place: placeOfRedirect(row.connection.redirectUri),
  createdAt: row.createdAt.toISOString(),
  expiresAt: row.expiresAt?.toISOString() ?? null,
  lastUsedAt: row.lastUsedAt?.toISOString() ?? null,
  revokedAt: row.revokedAt?.toISOString() ?? null,
  status: row.revokedAt ? "revoked" : row.expired ? "expired" : "active",
});
