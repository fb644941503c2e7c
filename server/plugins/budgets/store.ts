import { BUDGET_FIELDS, type BudgetLimits } from "../../../packages/rules/src/budgets.ts";
import type { PageRequest } from "../../core/paging.ts";
import {
  atomicOrNull,
  databaseNow,
  decimalOf,
  placeOf,
  readKeyset,
  type Db,
  type Prisma,
} from "../../infra/db/prisma.ts";

export interface BudgetRow extends BudgetLimits {
  id: string;
  name: string;
  version: number;
  createdAt: Date;
  updatedAt: Date;
  archivedAt: Date | null;
}

function rowOf(stored: Prisma.BudgetGetPayload<object>): BudgetRow {
  const { id, name, version, createdAt, updatedAt, archivedAt } = stored;
  return {
    id,
    name,
    version,
    dailyLimit: atomicOrNull(stored.dailyLimit),
    weeklyLimit: atomicOrNull(stored.weeklyLimit),
    monthlyLimit: atomicOrNull(stored.monthlyLimit),
    createdAt,
    updatedAt,
    archivedAt,
  };
}

const storedLimits = (limits: BudgetLimits) =>
  Object.fromEntries(
    BUDGET_FIELDS.map(({ name }) => {
      const limit = limits[name];
      return [name, limit === null ? null : decimalOf(limit)];
    }),
  );

/** The budgets that are not archived, newest first. */
export async function listBudgets(db: Db, ownerId: string): Promise<BudgetRow[]> {
  const stored = await db.budget.findMany({
    where: { ownerId, archivedAt: null },
    orderBy: [{ createdAt: "desc" }, { id: "desc" }],
  });
  return stored.map(rowOf);
}

export const countBudgets = (db: Db, ownerId: string): Promise<number> =>
  db.budget.count({ where: { ownerId, archivedAt: null } });

export async function findBudget(
  db: Db,
  ownerId: string,
  id: string,
): Promise<BudgetRow | undefined> {
  const stored = await db.budget.findUnique({ where: { id, ownerId } });
  return stored === null ? undefined : rowOf(stored);
}

export async function insertBudget(
  db: Db,
  budget: BudgetLimits & { id: string; ownerId: string; name: string },
): Promise<BudgetRow> {
  const { id, ownerId, name } = budget;
  const now = await databaseNow(db);
  const stored = await db.budget.create({
    data: { id, ownerId, name, ...storedLimits(budget), createdAt: now, updatedAt: now },
  });
  return rowOf(stored);
}

/** Waits for payments that are being decided in this budget; later ones see the change. */
export async function updateBudget(
  db: Db,
  budget: BudgetLimits & { id: string; name: string; version: number },
  { archives }: { archives: boolean },
): Promise<BudgetRow> {
  const { id, name, version } = budget;
  const now = await databaseNow(db);
  const stored = await db.budget.update({
    where: { id },
    data: {
      name,
      version,
      ...storedLimits(budget),
      updatedAt: now,
      ...(archives && { archivedAt: now }),
    },
  });
  return rowOf(stored);
}

export interface LockedMember {
  id: string;
  status: string;
  budgetIds: string[];
}

/** These agents of the owner, locked until the transaction ends. */
export async function lockMembers(
  tx: Db,
  ownerId: string,
  agentIds: readonly string[],
): Promise<LockedMember[]> {
  // SQL: row locks, always in the same order.
  return tx.$queryRaw<LockedMember[]>`
    SELECT id, status, budget_ids AS "budgetIds" FROM agents
     WHERE owner_id = ${ownerId} AND id = ANY(${agentIds}::text[]) ORDER BY id FOR UPDATE`;
}

/** All agents in this budget, locked until the transaction ends. */
export async function lockAllMembers(
  tx: Db,
  ownerId: string,
  budgetId: string,
): Promise<LockedMember[]> {
  // SQL: row locks, always in the same order.
  return tx.$queryRaw<LockedMember[]>`
    SELECT id, status, budget_ids AS "budgetIds" FROM agents
     WHERE owner_id = ${ownerId} AND ${budgetId} = ANY(budget_ids) ORDER BY id FOR UPDATE`;
}

/** An agent's budgets are sorted. */
export async function joinBudget(
  tx: Db,
  budgetId: string,
  agentIds: readonly string[],
): Promise<void> {
  // SQL: arrays, which Prisma cannot sort.
  await tx.$executeRaw`
    UPDATE agents a
       SET budget_ids = ARRAY(SELECT DISTINCT b.id FROM unnest(a.budget_ids || ${budgetId}::text) AS b (id) ORDER BY b.id),
           updated_at = clock_timestamp()
     WHERE a.id = ANY(${agentIds}::text[])`;
}

export async function leaveBudget(
  tx: Db,
  budgetId: string,
  agentIds: readonly string[],
): Promise<void> {
  // SQL: array_remove, which Prisma does not have.
  await tx.$executeRaw`
    UPDATE agents SET budget_ids = array_remove(budget_ids, ${budgetId}), updated_at = clock_timestamp()
     WHERE id = ANY(${agentIds}::text[])`;
}

export interface Members {
  count: number;
  /** The first 1,000. */
  agents: string[];
}

/** The agents in each budget of an owner. */
export async function membersOf(db: Db, ownerId: string): Promise<Map<string, Members>> {
  // SQL: unnest, which Prisma does not have.
  const rows = await db.$queryRaw<(Members & { id: string })[]>`
    SELECT b.id, count(*)::int AS count, (array_agg(a.id ORDER BY a.id))[1:1000] AS agents
      FROM agents a, unnest(a.budget_ids) AS b (id)
     WHERE a.owner_id = ${ownerId} GROUP BY b.id`;
  return new Map(rows.map(({ id, ...members }) => [id, members]));
}

export async function listMembers(db: Db, ownerId: string, budgetId: string, page: PageRequest) {
  const rows = await readKeyset(page, (where, order) =>
    db.agent.findMany({ where: { ownerId, budgetIds: { has: budgetId }, ...where }, ...order }),
  );
  return rows.map((row) => ({
    ...placeOf(row),
    name: row.name,
    status: row.status as "active" | "paused" | "archived",
  }));
}
