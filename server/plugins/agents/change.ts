/** A change of an agent: who asks for it, whether the owner's wallet signed it, its lock and its audit entry. */
import type { FastifyInstance, FastifyRequest } from "fastify";
import { keyOrder, policyOrder, type OrderKind } from "../../core/orders.ts";
import { loosens, type RulesInForce } from "../../core/rules.ts";
import type { Db, PrismaClient } from "../../infra/db/prisma.ts";
import { ApiError } from "../../errors.ts";
import type { AnyAuthorization } from "../../schemas/orders.ts";
import { noteAudit, type AuditAction } from "../audit/store.ts";
import {
  orderNotSigned,
  SignatureNeeded,
  type Draft,
  type OrderOwner,
  type OwnerOrders,
  type SignedOrder,
} from "../orders/orders.ts";
import type { Custody } from "../custody/custody.ts";
import { latestVersion } from "../orders/store.ts";
import { rulesInForce, secondsOf } from "./rules.ts";
import { entriesOf } from "./payees-store.ts";
import { findAgent, lockAgent, type AgentRow } from "./store.ts";

/** Who asks for a change, and in which request. */
export interface OwnerCall {
  prisma: PrismaClient;
  inTurn: FastifyInstance["inTurn"];
  orders: OwnerOrders;
  custody: Custody;
  owner: OrderOwner;
  requestId: string;
  /** The order the owner's wallet signed for this request. */
  authorization: AnyAuthorization | undefined;
}

export const ownerCall = (request: FastifyRequest): OwnerCall => ({
  prisma: request.server.prisma,
  inTurn: (agentId, work) => request.server.inTurn(agentId, work),
  orders: request.server.ownerOrders,
  custody: request.server.custody,
  owner: request.owner,
  requestId: request.id,
  authorization: (request.body as { authorization?: AnyAuthorization } | null | undefined)
    ?.authorization,
});

interface AuditNote {
  action: AuditAction;
  before: Record<string, unknown> | null;
  after: Record<string, unknown> | null;
}

/** Somebody else's agent is as absent as one that never was. */
const agentNotFound = (): ApiError =>
  new ApiError("not_found", { detail: "There is no such agent among yours." });

export async function ownAgent(
  call: Pick<OwnerCall, "prisma" | "requestId"> & { owner: { id: string } },
  agentId: string,
): Promise<AgentRow> {
  const agent = await findAgent(call.prisma, call.owner.id, agentId);
  if (!agent) throw agentNotFound();
  return agent;
}

/** The agent as it is held by the transaction, and what may be done to it. */
export interface HeldAgent {
  tx: Db;
  agent: AgentRow;
  audit: (note: AuditNote) => Promise<void>;
  /**
   * To be called before rules are written. What loosens them needs the owner's signature over the whole resulting
   * policy; what only tightens them does not.
   */
  permit: (wanted: RulesInForce, name: string) => Promise<void>;
  /** A key is always the owner's to issue. */
  permitKey: (label: string, expiresAt: Date | null) => Promise<void>;
}

/**
 * Every change of an agent's rules and keys: under the agent's row lock, so that two edits and a
 * reservation never interleave, and in one transaction with its order and its audit entries.
 */
export async function changeAgent<T>(
  call: OwnerCall,
  agentId: string,
  work: (held: HeldAgent) => Promise<T>,
  kind: "AgentPolicy" | "IssueKey" = "AgentPolicy",
): Promise<T> {
  const signed = await signedFor(call, agentId, kind);
  return call.orders.answering(call.owner, () =>
    call.inTurn(agentId, () =>
      call.prisma.$transaction(async (tx) => {
        const agent = await lockAgent(tx, call.owner.id, agentId);
        if (!agent) throw agentNotFound();
        if (agent.status === "archived")
          throw new ApiError("conflict", {
            detail: "This agent is archived; it can only be read.",
          });
        return work({
          tx,
          agent,
          audit: (note) => writeAudit(tx, call, agentId, note),
          permit: (wanted, name) => permitRules(tx, call, { agent, signed, wanted, name }),
          permitKey: (label, expiresAt) => permitKey(tx, call, { agent, signed, label, expiresAt }),
        });
      }),
    ),
  );
}

/** CAIP-2 of an EVM chain. */
export const chainIdOf = (network: string): number => Number(network.split(":")[1]);

async function signedFor<K extends "AgentPolicy" | "IssueKey">(
  call: OwnerCall,
  agentId: string,
  kind: K,
): Promise<SignedOrder<K> | undefined> {
  if (call.authorization === undefined) return undefined;
  const { network } = await ownAgent(call, agentId);
  const { authorization } = call;
  if (authorization.order.agent !== agentId)
    throw orderNotSigned("The order is for another agent.");
  return call.orders.verify(call.owner, kind, authorization, chainIdOf(network));
}

async function permitRules(
  tx: Db,
  call: OwnerCall,
  args: {
    agent: AgentRow;
    signed: SignedOrder | undefined;
    wanted: RulesInForce;
    name: string;
  },
): Promise<void> {
  const { agent, signed, wanted, name } = args;
  const current = rulesInForce(agent, await entriesOf(tx, agent.id));
  const { custody, owner } = call;
  if (signed === undefined && !loosens(current, wanted)) {
    await custody.reseal(tx, { agentId: agent.id, owner }, { current, wanted, signed: undefined });
    return;
  }
  const version = (await latestVersion(tx, agent.id)) + 1;
  await useOrAsk(tx, call, signed, {
    ...factsOf(agent),
    kind: "AgentPolicy",
    version,
    build: (single) =>
      policyOrder({
        agentId: agent.id,
        walletAddress: agent.walletAddress,
        version,
        name,
        rules: wanted,
        ...single,
      }),
  });
  if (signed === undefined) return;
  const policy = signed as SignedOrder<"AgentPolicy">;
  await custody.reseal(tx, { agentId: agent.id, owner }, { current, wanted, signed: policy });
}

async function permitKey(
  tx: Db,
  call: OwnerCall,
  args: {
    agent: AgentRow;
    signed: SignedOrder | undefined;
    label: string;
    expiresAt: Date | null;
  },
): Promise<void> {
  const { agent, signed, label, expiresAt } = args;
  const expiresAtSeconds = secondsOf(expiresAt);
  const { id: agentId, walletAddress } = agent;
  await useOrAsk(tx, call, signed, {
    ...factsOf(agent),
    kind: "IssueKey",
    version: null,
    build: (single) => keyOrder({ agentId, walletAddress, label, expiresAtSeconds, ...single }),
  });
}

const factsOf = (agent: AgentRow) => ({ agentId: agent.id, chainId: chainIdOf(agent.network) });

export async function useOrAsk<K extends OrderKind>(
  tx: Db,
  call: Pick<OwnerCall, "orders" | "owner">,
  signed: SignedOrder | undefined,
  draft: Draft<K>,
): Promise<void> {
  if (signed === undefined) throw new SignatureNeeded(draft, "owner_signature_required");
  await call.orders.use(tx, call.owner, signed as unknown as SignedOrder<K>, draft);
}

export const writeAudit = (
  tx: Db,
  call: OwnerCall,
  agentId: string,
  note: AuditNote,
): Promise<void> =>
  noteAudit(tx, {
    ownerId: call.owner.id,
    agentId,
    actor: (call.owner.second ?? call.owner).address,
    requestId: call.requestId,
    ...note,
  });
