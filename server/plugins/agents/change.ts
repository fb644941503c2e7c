/** A change of an agent: who asks for it, what it may say, its lock and its audit entry. */
import type { FastifyInstance, FastifyRequest } from "fastify";
import type { Address } from "viem";
import type { Db, PrismaClient } from "../../infra/db/prisma.ts";
import { noteAudit, type AuditAction } from "../audit/store.ts";
import { findAgent, lockAgent, type AgentRow } from "./store.ts";
import { ApiError, type ErrorCode } from "../../errors.ts";
import type { AllowlistEntry } from "./allowlist.ts";
import { parseAddress } from "../../core/foreign-text.ts";
import { parseDecimal } from "../../core/money.ts";

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

interface AuditNote {
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
  noteAudit(tx, {
    ownerId: call.owner.id,
    agentId,
    actor: call.owner.address,
    requestId: call.requestId,
    ...note,
  });

/** Reads the rules an owner writes: names, limits, times, allowlists. Refuses with the field's path. */

export function refuseField(code: ErrorCode, path: string, message: string): ApiError {
  return new ApiError(code, {
    detail: `${path} ${message}`,
    extra: { errors: [{ path, message }] },
  });
}

export function readName(text: string): string {
  const name = text.trim();
  if (name === "") throw refuseField("validation_failed", "body.name", "must not be blank");
  assertPrintable(name, "body.name");
  return name;
}

export function readLabel(text: string | undefined, path: string): string {
  const label = (text ?? "").trim();
  assertPrintable(label, path);
  return label;
}

function assertPrintable(text: string, path: string): void {
  // Control characters, and the marks that reorder text: they would let a label show as another.
  if (/[\p{Cc}\u2028\u2029\u202a-\u202e\u2066-\u2069]/u.test(text))
    throw refuseField("validation_failed", path, "must not contain control characters");
}

/** A limit may be "0": then nothing can be spent. */
export function readLimit(text: string, path: string): bigint {
  const parsed = parseDecimal(text);
  if (!parsed.ok) throw refuseField("invalid_amount", path, parsed.reason);
  return parsed.atomic;
}

export function readTime(text: string, path: string): Date {
  const time = new Date(text);
  const year = time.getUTCFullYear();
  if (Number.isNaN(time.getTime()) || year < 1970 || year > 9999)
    throw refuseField("validation_failed", path, "is not a time");
  return time;
}

export function readAddress(text: string, path: string): Address {
  const parsed = parseAddress(text);
  if (!parsed.ok) throw refuseField("invalid_address", path, parsed.reason);
  return parsed.address;
}

/** All wrong lines of a bulk paste are named at once; the same address twice is refused as well. */
export function readAllowlist(
  items: readonly (string | { address: string; label?: string })[],
): AllowlistEntry[] {
  const errors: { path: string; message: string }[] = [];
  const entries: AllowlistEntry[] = [];
  const firstAt = new Map<string, number>();
  let duplicates = 0;
  items.forEach((item, index) => {
    const path = `body.allowlist.${index}`;
    const { address: text, label } = typeof item === "string" ? { address: item } : item;
    const parsed = parseAddress(text);
    if (!parsed.ok) {
      errors.push({ path, message: parsed.reason });
      return;
    }
    const earlier = firstAt.get(parsed.address);
    if (earlier !== undefined) {
      duplicates += 1;
      errors.push({ path, message: `is the same address as body.allowlist.${earlier}` });
      return;
    }
    firstAt.set(parsed.address, index);
    entries.push({ address: parsed.address, label: readLabel(label, `${path}.label`) });
  });
  const [first] = errors;
  if (!first) return entries;
  const more = errors.length > 1 ? ` (and ${errors.length - 1} more)` : "";
  throw new ApiError(duplicates === errors.length ? "validation_failed" : "invalid_address", {
    detail: `${first.path} ${first.message}${more}`,
    extra: { errors },
  });
}
