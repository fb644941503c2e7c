/**
 * Changes of budgets. What loosens one needs the owner's signature: to raise or drop a limit, to take an agent out, to
 * archive it. All changes of an owner's budgets run one after another, under the lock of the owner's row. Agents are locked
 * before budgets, as a reservation does (purser_budgets_take).
 */
import { getAddress } from "viem";
import {
  agentsText,
  BUDGET_FIELDS,
  loosensBudget,
  type BudgetLimits,
} from "../../../packages/rules/src/budgets.ts";
import { newId } from "../../core/ids.ts";
import type { BudgetOrder } from "../../core/orders.ts";
import { ApiError } from "../../errors.ts";
import type { Db } from "../../infra/db/prisma.ts";
import type {
  BudgetAuthorization,
  ChangeBudgetBody,
  NewBudgetBody,
} from "../../schemas/budgets.ts";
import { useOrderOrRequest, withinQuota, type OwnerCall } from "../agents/change.ts";
import { refuseField } from "../../core/refuse-field.ts";
import { agentNotFound } from "../agents/store.ts";
import { noteAudit, type AuditAction } from "../audit/store.ts";
import { actorOf } from "../auth/index.ts";
import type { Draft } from "../orders/orders.ts";
import { lockOwner } from "../owners/store.ts";
import {
  countBudgets,
  findBudget,
  insertBudget,
  joinBudget,
  leaveBudget,
  lockAllMembers,
  lockMembers,
  updateBudget,
  type BudgetRow,
  type LockedMember,
} from "./store.ts";

const MAX_BUDGETS = 100;
const MAX_OF_AGENT = 4;
/** As many as one order can name. */
const MAX_REMOVED = 100;
/** Agents are locked one after the other, each behind a payment that is being decided. */
const CHANGE_MS = 30_000;
/** More agents than these are counted in the audit entry, not named. */
const NAMED_AGENTS = 80;

export async function createBudget(call: OwnerCall, body: NewBudgetBody): Promise<BudgetRow> {
  const { owner, prisma } = call;
  const limits = assertLimited({ ...NO_LIMITS, ...readLimits(body) });
  return prisma.$transaction(
    async (tx) => {
      await lockOwner(tx, owner.id);
      if ((await countBudgets(tx, owner.id)) >= MAX_BUDGETS)
        throw conflict(`An owner has at most ${MAX_BUDGETS} budgets. Archive one first.`);
      const members = await membersToAdd(tx, call, body.agents ?? []);
      const name = body.name.trim();
      const budget = await insertBudget(tx, {
        ...limits,
        id: newId("bud"),
        ownerId: owner.id,
        name,
      });
      await joinBudget(tx, budget.id, idsOf(members));
      await note(tx, call, "renames", {
        action: "budget.created",
        before: null,
        after: { ...factsOf(budget), ...named("added", idsOf(members)) },
      });
      return budget;
    },
    { timeout: CHANGE_MS },
  );
}

export async function changeBudget(
  call: OwnerCall,
  chainId: number,
  id: string,
  body: ChangeBudgetBody,
): Promise<BudgetRow> {
  const { authorization } = body;
  assertOneWay(body);
  const wantedLimits = readLimits(body);
  return change(call, { chainId, id, authorization }, async (tx, budget, permit) => {
    const { addAgents, removeAgents } = await wantedAgents(tx, call.owner.id, id, body);
    const all = await membersToAdd(tx, call, addAgents, removeAgents);
    const isIn = ({ budgetIds }: LockedMember): boolean => budgetIds.includes(id);
    const removed = all.filter((agent) => removeAgents.includes(agent.id) && isIn(agent));
    const added = all.filter((agent) => addAgents.includes(agent.id) && !isIn(agent));
    const limits = assertLimited({ ...limitsOf(budget), ...wantedLimits });
    const name = body.name?.trim() ?? budget.name;
    const next = { ...budget, ...limits, name, version: budget.version + 1 };
    const isSameRule = BUDGET_FIELDS.every((field) => next[field.name] === budget[field.name]);
    if (isSameRule && name === budget.name && removed.length + added.length === 0) return budget;
    const isLooser = loosensBudget(budget, next) || removed.length > 0;
    const isSigned = await permit(next, { isLooser, status: "active", agentsOut: idsOf(removed) });
    await leaveBudget(tx, id, idsOf(removed));
    await joinBudget(tx, id, idsOf(added));
    const changed = await updateBudget(tx, next, { archives: false });
    const tightens = !isSameRule || added.length > 0;
    await note(tx, call, isSigned ? "signed" : tightens ? "tightens" : "renames", {
      action: "budget.changed",
      before: factsOf(budget),
      after: {
        ...factsOf(changed),
        ...named("added", idsOf(added)),
        ...named("removed", idsOf(removed)),
      },
    });
    return changed;
  });
}

function assertOneWay({ agents, addAgents = [], removeAgents = [] }: ChangeBudgetBody): void {
  if (agents && addAgents.length + removeAgents.length > 0)
    throw refuseField(
      "validation_failed",
      "body.agents",
      "is the whole list: send it without addAgents and removeAgents",
    );
  if (addAgents.some((agent) => removeAgents.includes(agent)))
    throw refuseField(
      "validation_failed",
      "body.removeAgents",
      "names an agent that is also added",
    );
}

async function wantedAgents(
  tx: Db,
  ownerId: string,
  id: string,
  { agents, addAgents = [], removeAgents = [] }: ChangeBudgetBody,
): Promise<{ addAgents: readonly string[]; removeAgents: readonly string[] }> {
  if (!agents) return { addAgents, removeAgents };
  const now = idsOf(await lockAllMembers(tx, ownerId, id));
  const removed = now.filter((agent) => !agents.includes(agent));
  if (removed.length > MAX_REMOVED)
    throw refuseField(
      "validation_failed",
      "body.agents",
      `takes out ${removed.length} agents: at most ${MAX_REMOVED} at a time`,
    );
  return { addAgents: agents.filter((agent) => !now.includes(agent)), removeAgents: removed };
}

/** Its agents leave it, so it limits none of them any more. */
export async function archiveBudget(
  call: OwnerCall,
  chainId: number,
  id: string,
  authorization: BudgetAuthorization | undefined,
): Promise<BudgetRow> {
  return change(call, { chainId, id, authorization }, async (tx, budget, permit) => {
    const members = await lockAllMembers(tx, call.owner.id, id);
    const next = { ...budget, version: budget.version + 1 };
    await permit(next, { isLooser: true, status: "archived", agentsOut: [] });
    await leaveBudget(tx, id, idsOf(members));
    const archived = await updateBudget(tx, next, { archives: true });
    await note(tx, call, "signed", {
      action: "budget.archived",
      before: factsOf(budget),
      after: { ...factsOf(archived), agents: members.length },
    });
    return archived;
  });
}

interface Change {
  isLooser: boolean;
  status: "active" | "archived";
  agentsOut: readonly string[];
}

/** Returns whether the owner signed it; throws if a signature is needed and missing. */
type Permit = (next: BudgetRow, change: Change) => Promise<boolean>;

async function change(
  call: OwnerCall,
  about: { chainId: number; id: string; authorization: BudgetAuthorization | undefined },
  work: (tx: Db, budget: BudgetRow, permit: Permit) => Promise<BudgetRow>,
): Promise<BudgetRow> {
  const { owner, orders, prisma } = call;
  const { chainId, id, authorization } = about;
  // Before any lock.
  const signed = authorization && (await orders.verify(owner, "Budget", authorization, chainId));
  return orders.requestingSignature(owner, () =>
    prisma.$transaction(
      async (tx) => {
        await lockOwner(tx, owner.id);
        const budget = await findBudget(tx, owner.id, id);
        if (!budget) throw budgetNotFound();
        if (budget.archivedAt !== null)
          throw conflict("This budget is archived and can only be read.");
        return work(tx, budget, async (next, { isLooser, status, agentsOut }) => {
          if (signed === undefined && !isLooser) return false;
          await useOrderOrRequest(
            tx,
            call,
            signed,
            draftOf(owner.address, chainId, { next, status, agentsOut }),
          );
          return true;
        });
      },
      { timeout: CHANGE_MS },
    ),
  );
}

const draftOf = (
  owner: string,
  chainId: number,
  { next, status, agentsOut }: { next: BudgetRow } & Omit<Change, "isLooser">,
): Draft<"Budget"> => ({
  kind: "Budget",
  // Not about one agent.
  agentId: "",
  chainId,
  // The column is of policies.
  version: null,
  build: ({ nonce, deadlineSeconds }): BudgetOrder => ({
    owner: getAddress(owner),
    budgetId: next.id,
    version: String(next.version),
    name: next.name,
    ...signedLimits(next),
    status,
    agentsOut: agentsText(agentsOut),
    nonce,
    deadline: String(deadlineSeconds),
  }),
});

/** The agents of this owner, locked; those to add must have room for one more budget. */
async function membersToAdd(
  tx: Db,
  { owner }: OwnerCall,
  add: readonly string[],
  others: readonly string[] = [],
): Promise<LockedMember[]> {
  const wanted = [...new Set([...add, ...others])];
  const members = await lockMembers(tx, owner.id, wanted);
  if (members.length < wanted.length) throw agentNotFound();
  for (const { id, status, budgetIds } of members) {
    if (!add.includes(id)) continue;
    if (status === "archived") throw conflict(`The agent ${id} is archived.`);
    if (budgetIds.length >= MAX_OF_AGENT)
      throw conflict(`The agent ${id} is in ${MAX_OF_AGENT} budgets, and that is the most.`);
  }
  return members;
}

const idsOf = (members: readonly LockedMember[]): string[] => members.map(({ id }) => id);

const NO_LIMITS: BudgetLimits = { dailyLimit: null, weeklyLimit: null, monthlyLimit: null };

const limitsOf = ({ dailyLimit, weeklyLimit, monthlyLimit }: BudgetLimits): BudgetLimits => ({
  dailyLimit,
  weeklyLimit,
  monthlyLimit,
});

const signedLimits = (limits: BudgetLimits) =>
  Object.fromEntries(
    BUDGET_FIELDS.map(({ name, kind }) => [name, kind.sign(limits[name])]),
  ) as Record<keyof BudgetLimits, string>;

/** The limits that a request names. */
function readLimits(
  body: Partial<Record<keyof BudgetLimits, string | null>>,
): Partial<BudgetLimits> {
  return Object.fromEntries(
    BUDGET_FIELDS.flatMap(({ name, kind }) => {
      const wire = body[name];
      if (wire === undefined) return [];
      const read = kind.readWire(wire);
      if (!read.ok) throw refuseField(kind.fault, `body.${name}`, read.reason);
      return [[name, read.value]];
    }),
  );
}

function assertLimited(limits: BudgetLimits): BudgetLimits {
  if (BUDGET_FIELDS.every(({ name }) => limits[name] === null))
    throw refuseField(
      "validation_failed",
      "body.dailyLimit",
      "or another limit is needed: a budget has at least one",
    );
  return limits;
}

/** For the audit. */
const factsOf = (budget: BudgetRow): Record<string, unknown> => ({
  budgetId: budget.id,
  name: budget.name,
  version: budget.version,
  ...Object.fromEntries(BUDGET_FIELDS.map(({ name, kind }) => [name, kind.wire(budget[name])])),
});

const named = (what: "added" | "removed", ids: readonly string[]) =>
  ids.length === 0 ? {} : { [what]: ids.length > NAMED_AGENTS ? ids.length : ids };

async function note(
  tx: Db,
  call: OwnerCall,
  permission: "signed" | "tightens" | "renames",
  entry: {
    action: AuditAction;
    before: Record<string, unknown> | null;
    after: Record<string, unknown>;
  },
): Promise<void> {
  await noteAudit(tx, {
    ownerId: call.owner.id,
    agentId: null,
    actor: actorOf(call.owner),
    requestId: call.requestId,
    ...(await withinQuota(tx, call, permission, entry)),
  });
}

export const budgetNotFound = (): ApiError =>
  new ApiError("not_found", { detail: "You have no budget with this id." });

const conflict = (detail: string): ApiError => new ApiError("conflict", { detail });
