import type { FastifyInstance, FastifyRequest } from "fastify";
import type { Address } from "viem";
import type { Db, PrismaClient } from "../../infra/db/prisma.ts";
import { findAgent, lockAgent, type AgentRow } from "./store.ts";
import { insertAudit, type AuditAction } from "./audit.ts";
import { ApiError } from "../../errors.ts";

/** Who asks for a change, and in which request. */
export interface OwnerCall {
  prisma: PrismaClient;
  inTurn: FastifyInstance["inTurn"];
  owner: { id: string; address: Address };
  requestId: string;
}

export const ownerCall = (request: FastifyRequest): OwnerCall => ({
  prisma: request.server.prisma,
  inTurn: (agentId, work) => request.server.inTurn(agentId, work),
  owner: request.owner,
  requestId: request.id,
});

export interface AuditNote {
  action: AuditAction;
  before: Record<string, unknown> | null;
  after: Record<string, unknown> | null;
}

/** Somebody else's agent is as absent as one that never was. */
const agentNotFound = (): ApiError =>
  new ApiError("not_found", { detail: "There is no such agent among yours." });

export async function ownAgent(
  call: Omit<OwnerCall, "inTurn">,
  agentId: string,
): Promise<AgentRow> {
  const agent = await findAgent(call.prisma, call.owner.id, agentId);
  if (!agent) throw agentNotFound();
  return agent;
}

/**
 * Every change of an agent's rules and keys: under the agent's row lock, so that two edits and a
 * reservation never interleave, and in one transaction with its audit entries.
 */
export async function changeAgent<T>(
  call: OwnerCall,
  agentId: string,
  work: (tx: Db, agent: AgentRow, audit: (note: AuditNote) => Promise<void>) => Promise<T>,
): Promise<T> {
  return call.inTurn(agentId, () =>
    call.prisma.$transaction(async (tx) => {
      const agent = await lockAgent(tx, call.owner.id, agentId);
      if (!agent) throw agentNotFound();
      if (agent.status === "archived")
        throw new ApiError("conflict", { detail: "This agent is archived; it can only be read." });
      return work(tx, agent, (note) => writeAudit(tx, call, agentId, note));
    }),
  );
}

export const writeAudit = (
  tx: Db,
  call: OwnerCall,
  agentId: string,
  note: AuditNote,
): Promise<void> =>
  insertAudit(tx, { agentId, actor: call.owner.address, requestId: call.requestId, ...note });
