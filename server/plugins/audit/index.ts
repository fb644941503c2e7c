/**
 * The audit log: every change of rules, keys, sessions and orders, in a hash chain per owner, with an export that
 * anybody can verify.
 */
import { Readable } from "node:stream";
import fp from "fastify-plugin";
import type { FastifyRequest } from "fastify";
import type { FastifyPluginAsyncTypebox } from "@fastify/type-provider-typebox";
import { getAddress } from "viem";
import { readPage, toPage } from "../../core/paging.ts";
import { ApiError } from "../../errors.ts";
import { AuditExportQuery, AuditPage } from "../../schemas/audit.ts";
import { actorOf } from "../auth/index.ts";
import { PageQuery } from "../../schemas/common.ts";
import { hex, listAudit, noteAudit, findOwnerOf, readChain, type AuditRow } from "./store.ts";

export default fp(
  async (app) => {
    await app.register(routes);
    await app.register(noteRefusals);
  },
  { name: "audit" },
);

const routes: FastifyPluginAsyncTypebox = async (app) => {
  const config = { auth: "owner" } as const;
  const tags = ["owners: audit"];

  app.get(
    "/api/audit",
    {
      config,
      schema: {
        tags,
        operationId: "listAudit",
        summary: "The owner's audit log, newest first",
        querystring: PageQuery,
        response: { 200: AuditPage },
      },
    },
    async ({ owner, query }) => {
      const page = readPage(query);
      return toPage(
        await listAudit(app.prisma, { ownerId: owner.id }, page),
        page.limit,
        viewEntry,
      );
    },
  );

  app.get(
    "/api/audit/export",
    {
      config,
      schema: {
        tags,
        operationId: "exportAudit",
        summary: "The audit log as JSON lines, oldest first, for anyone to check",
        querystring: AuditExportQuery,
        produces: ["application/x-ndjson"],
      },
    },
    async ({ owner, query }, reply) =>
      reply
        .headers({
          "cache-control": "no-store",
          "content-disposition": 'attachment; filename="purser-audit.jsonl"',
        })
        .type("application/x-ndjson")
        .send(Readable.from(exportLines(owner.id, BigInt(query.after ?? "0")))),
  );

  async function* exportLines(ownerId: string, after: bigint): AsyncGenerator<string> {
    for await (const { columns: _columns, ...row } of readChain(app.prisma, ownerId, after))
      yield `${JSON.stringify(row)}\n`;
  }
};

export const viewEntry = ({ seq, hash, entry, createdAt }: AuditRow) => ({
  id: entry.id,
  seq: Number(seq),
  hash: hex(hash),
  agentId: entry.agentId,
  actor: getAddress(entry.actor),
  action: entry.action,
  before: entry.before,
  after: entry.after,
  requestId: entry.requestId,
  createdAt: createdAt.toISOString(),
});

/**
 * Records refused authority: a signature that is not the owner's in the owner's session, and a session that uses
 * another owner's agent. Recorded after the response, because the response time must not reveal whether an agent
 * exists.
 */
const noteRefusals: FastifyPluginAsyncTypebox = fp(async (app) => {
  const refused = new WeakMap<FastifyRequest, string>();
  app.addHook("onError", async (request, _reply, error) => {
    if (error instanceof ApiError) refused.set(request, error.code);
  });
  app.addHook("onResponse", (request, _reply, done) => {
    const code = refused.get(request);
    // Without a session there is no owner: the sign-in route records a refused sign-in itself.
    if (code === undefined || !(request.owner as unknown)) return done();
    const unnoted = (error: unknown): void =>
      request.log.error({ err: error }, "a refusal was not recorded in the audit log");
    const noted = (): void => done();
    note(request, code).catch(unnoted).finally(noted);
  });

  async function note(request: FastifyRequest, code: string): Promise<void> {
    const { owner, id: requestId } = request;
    const { url: route = "" } = request.routeOptions;
    const { id: named } = (request.params ?? {}) as { id?: string };
    const agentId = route.startsWith("/api/agents/:id") && named !== undefined ? named : null;
    const refused = { method: request.method, route };
    const actor = actorOf(owner);
    const common = { actor, before: null, after: refused, requestId };
    if (code === "invalid_signature") {
      // An entry about an agent belongs to its owner, so another owner's agent is not named.
      const isOwn = agentId !== null && (await findOwnerOf(app.prisma, agentId)) === owner.id;
      await noteAudit(app.prisma, {
        ...common,
        agentId: isOwn ? agentId : null,
        ownerId: owner.id,
        action: "signature.refused",
      });
    }
    if (code !== "not_found" || agentId === null) return;
    const ownerId = await findOwnerOf(app.prisma, agentId);
    if (ownerId !== undefined && ownerId !== owner.id)
      await noteAudit(app.prisma, { ...common, agentId, ownerId, action: "agent.refused" });
  }
});
