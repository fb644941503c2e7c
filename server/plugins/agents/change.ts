/** A change of an agent: the caller, the owner's signature, the lock of its row, and its audit entry. */
import type { FastifyInstance, FastifyRequest } from "fastify";
import type { Hex } from "viem";
import { keyOrder, policyOrder, type OrderKind } from "../../core/orders.ts";
import { loosens, payeeKey, rulesDigest, type Payee, type RulesInForce } from "../../core/rules.ts";
import type { Db, PrismaClient } from "../../infra/db/prisma.ts";
import { ApiError } from "../../errors.ts";
import type { AnyAuthorization } from "../../schemas/orders.ts";
import { noteAudit, type AuditAction } from "../audit/store.ts";
import { actorOf } from "../auth/index.ts";
import {
  quotaExceeded,
  orderNotSigned,
  SignatureNeeded,
  type Draft,
  type OrderOwner,
  type OwnerOrders,
  type SignedOrder,
} from "../orders/orders.ts";
import type { Custody } from "../custody/custody.ts";
import { KEPT_BYTES_PER_DAY, latestVersion, takeQuota } from "../orders/store.ts";
import { isOwnerStopped } from "../owners/store.ts";
import { payeeOnWire, rulesInForce, sealedRules, secondsOf } from "./rules.ts";
import type { AllowlistChange, AllowlistRow } from "./payees-store.ts";
import { agentNotFound, lockAgent, ownAgent, type AgentRow } from "./store.ts";

/** The caller of a change, with its request. */
export interface OwnerCall {
  prisma: PrismaClient;
  withAgentLock: FastifyInstance["withAgentLock"];
  orders: OwnerOrders;
  custody: Custody;
  owner: OrderOwner;
  /** In the keys that are issued, where there are several cells. */
  cell: string | undefined;
  requestId: string;
  /** The order that the owner's wallet signed for this request. */
  authorization: AnyAuthorization | undefined;
}

export const ownerCall = (request: FastifyRequest): OwnerCall => ({
  prisma: request.server.prisma,
  withAgentLock: (agentId, work) => request.server.withAgentLock(agentId, work),
  orders: request.server.ownerOrders,
  custody: request.server.custody,
  owner: request.owner,
  cell: request.server.config.cells?.self,
  requestId: request.id,
  authorization: (request.body as { authorization?: AnyAuthorization } | null | undefined)
    ?.authorization,
});

interface AuditNote {
  action: AuditAction;
  before: Record<string, unknown> | null;
  after: Record<string, unknown> | null;
}

/** Why a change is permitted. A change that only renames allows and prevents nothing. */
type Permission = "signed" | "tightens" | "renames";

/** The agent, locked by the transaction, with the checks for changing it. */
export interface LockedAgent {
  tx: Db;
  agent: AgentRow;
  /** The digest of the order that the owner's wallet signed for this request. */
  order: Hex | undefined;
  audit: (note: AuditNote) => Promise<void>;
  /**
   * Call this before writing rules, with the current payees. A change that loosens the rules needs the owner's
   * signature of the whole resulting policy; a change that only tightens them does not.
   */
  permit: (
    payees: readonly AllowlistRow[],
    wanted: RulesInForce,
    name: string,
    /** Whether this change sets the status; otherwise what a stop or a rule paused stays so. */
    setsStatus?: boolean,
  ) => Promise<void>;
  /** Issuing a key always needs the owner's signature. */
  permitKey: (label: string, expiresAt: Date | null) => Promise<void>;
}

/**
 * Runs every change of an agent's rules and keys: with the agent's row locked, so that two edits and a reservation
 * never interleave, and in one transaction with its order and its audit entries.
 */
export async function changeAgent<T>(
  call: OwnerCall,
  agentId: string,
  work: (held: LockedAgent) => Promise<T>,
  kind: "AgentPolicy" | "IssueKey" = "AgentPolicy",
): Promise<T> {
  const signed = await signedFor(call, agentId, kind);
  const withAgentLock = <R>(work: () => Promise<R>) =>
    withOwnerLock(call, signed, () => call.withAgentLock(agentId, work));
  return call.orders.requestingSignature(call.owner, () =>
    withAgentLock(() =>
      call.prisma.$transaction(async (tx) => {
        const isStopped = await isOwnerStopped(tx, call.owner.id);
        if (isStopped && kind === "IssueKey") throw new ApiError("owner_stopped");
        const agent = await lockAgent(tx, call.owner.id, agentId);
        if (!agent) throw agentNotFound();
        if (agent.status === "archived")
          throw new ApiError("conflict", {
            detail: "This agent is archived and can only be read.",
          });
        let permission: Permission = "tightens";
        return work({
          tx,
          agent,
          order: signed?.digest,
          audit: async (note) =>
            writeAudit(tx, call, agentId, await withinQuota(tx, call, permission, note)),
          permit: async (payees, wanted, name, setsStatus = false) => {
            if (isStopped && agent.status !== "active" && wanted.status === "active")
              throw new ApiError("owner_stopped");
            const change = { payees, wanted, name, setsStatus };
            permission = await permitRules(tx, call, { agent, signed, ...change });
          },
          permitKey: (label, expiresAt) => permitKey(tx, call, { agent, signed, label, expiresAt }),
        });
      }),
    ),
  );
}

/**
 * Serializes signed changes of one owner, which share a daily storage quota, so that a waiting change does not hold a
 * database connection. Nothing else waits for this lock.
 */
export const withOwnerLock = <T>(
  { withAgentLock, owner }: Pick<OwnerCall, "withAgentLock" | "owner">,
  signed: SignedOrder | undefined,
  work: () => Promise<T>,
): Promise<T> => (signed === undefined ? work() : withAgentLock(owner.id, work));

/** The chain id of a CAIP-2 id (EVM). */
const chainIdOf = (network: string): number => Number(network.split(":")[1]);

async function signedFor<K extends "AgentPolicy" | "IssueKey">(
  call: OwnerCall,
  agentId: string,
  kind: K,
): Promise<SignedOrder<K> | undefined> {
  if (call.authorization === undefined) return undefined;
  const { network } = await ownAgent(call.prisma, call.owner, agentId);
  const { authorization } = call;
  if (authorization.order.agent !== agentId)
    throw orderNotSigned("The order is for a different agent.");
  return call.orders.verify(call.owner, kind, authorization, chainIdOf(network));
}

async function permitRules(
  tx: Db,
  call: OwnerCall,
  args: {
    agent: AgentRow;
    signed: SignedOrder | undefined;
    payees: readonly AllowlistRow[];
    wanted: RulesInForce;
    name: string;
    setsStatus: boolean;
  },
): Promise<Permission> {
  const { agent, signed, payees, wanted, name, setsStatus } = args;
  const current = rulesInForce(agent, payees);
  const sealed = {
    current: sealedRules(agent, current),
    wanted: setsStatus ? wanted : sealedRules(agent, wanted),
  };
  const { custody, owner } = call;
  if (signed === undefined && !loosens(current, wanted)) {
    await custody.reseal(tx, { agentId: agent.id, owner }, { ...sealed, signed: undefined });
    return rulesDigest(current) === rulesDigest(wanted) ? "renames" : "tightens";
  }
  await custody.assertKnownRules(tx, agent.id);
  const version = (await latestVersion(tx, agent.id)) + 1;
  await useOrderOrRequest(tx, call, signed, {
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
  const policy = signed as SignedOrder<"AgentPolicy">;
  await custody.reseal(tx, { agentId: agent.id, owner }, { ...sealed, signed: policy });
  return "signed";
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
  await useOrderOrRequest(tx, call, signed, {
    ...factsOf(agent),
    kind: "IssueKey",
    version: null,
    build: (single) => keyOrder({ agentId, walletAddress, label, expiresAtSeconds, ...single }),
  });
}

const factsOf = (agent: AgentRow) => ({ agentId: agent.id, chainId: chainIdOf(agent.network) });

export async function useOrderOrRequest<K extends OrderKind>(
  tx: Db,
  call: Pick<OwnerCall, "orders" | "owner">,
  signed: SignedOrder | undefined,
  draft: Draft<K>,
): Promise<void> {
  if (signed === undefined) throw new SignatureNeeded(draft, "owner_signature_required");
  await call.orders.use(tx, call.owner, signed as unknown as SignedOrder<K>, draft);
}

/** The size of an audit entry besides its values. */
const ENTRY_BYTES = 1024;
/** Larger lists of payees may be counted instead of named. */
const NAMED_BYTES = 4_000;

const bytesOf = (value: object): number => Buffer.byteLength(JSON.stringify(value));

/**
 * The payees that a change adds, removes or changes, before and after. A signed order names them too, so a long list is
 * then only counted.
 */
export function payeeFacts(
  { before, after }: Pick<AllowlistChange, "after"> & { before: readonly Payee[] },
  order: Hex | undefined,
): Pick<AuditNote, "before" | "after"> & { after: Record<string, unknown> } {
  const known = new Set(before.map(payeeKey));
  const changed = after.filter((payee) => known.has(payeeKey(payee))).length;
  const facts = {
    ...(after.length > changed && { added: after.length - changed }),
    ...(before.length > changed && { removed: before.length - changed }),
    ...(changed > 0 && { changed }),
    ...(order !== undefined && { order }),
  };
  const named = { before: before.map(payeeOnWire), after: after.map(payeeOnWire) };
  if (order !== undefined && bytesOf(named) > NAMED_BYTES) return { before: null, after: facts };
  return {
    before: before.length > 0 ? { payees: named.before } : null,
    after: { ...(after.length > 0 && { payees: named.after }), ...facts },
  };
}

/**
 * Applies the owner's daily quota, because audit entries are kept forever, including those of unsigned changes. Without
 * quota left, a change that only renames is refused; one that tightens never is, and its entry then counts the payees
 * instead of naming them.
 */
export async function withinQuota(
  tx: Db,
  { owner }: OwnerCall,
  permission: Permission,
  note: AuditNote,
): Promise<AuditNote> {
  const bytes = ENTRY_BYTES + bytesOf({ before: note.before, after: note.after });
  if (permission === "signed" || (permission === "tightens" && bytes <= NAMED_BYTES)) return note;
  // Half of the day's quota is reserved for changes that the owner's wallet signs.
  const withHalf = { bytes: bytes + KEPT_BYTES_PER_DAY / 2, dryRun: true };
  const seconds =
    (await takeQuota(tx, owner.id, withHalf)) ||
    (await takeQuota(tx, owner.id, { bytes, dryRun: false }));
  if (seconds === 0) return note;
  if (permission === "renames") throw quotaExceeded(seconds);
  const { payees: _payees, ...counts } = note.after ?? {};
  return { ...note, before: null, after: counts };
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
    actor: actorOf(call.owner),
    requestId: call.requestId,
    ...note,
  });
