/** What an agent may do with its tasks. What a payment counts in them is decided in purser_reserve. */
import { plainWords } from "../../core/foreign-text.ts";
import { newId } from "../../core/ids.ts";
import { formatAtomic, parsePayable } from "../../core/money.ts";
import { ApiError } from "../../errors.ts";
import { databaseNow, type PrismaClient } from "../../infra/db/prisma.ts";
import type { NewTaskBody, Task } from "../../schemas/tasks.ts";
import { refuseField } from "../../core/refuse-field.ts";
import { remainingOf } from "../guardrails/rules.ts";
import { countOpenTasks, findTask, insertTask, type TaskRow } from "./store.ts";

/** At the same time. Tasks that have ended do not count. */
export const MOST_OPEN_TASKS = 1_000;

interface Terms {
  name: string | null;
  ceilingAtomic: bigint;
  endsAt: Date | null;
}

function readTerms({ limit, expiresAt = null, name = null }: NewTaskBody): Terms {
  const amount = parsePayable(limit);
  if (!amount.ok) throw refuseField("invalid_amount", "body.limit", amount.reason);
  const end = expiresAt === null ? null : new Date(expiresAt);
  // A second of 60 is a time in RFC 3339.
  if (end !== null && Number.isNaN(end.getTime()))
    throw refuseField("validation_failed", "body.expiresAt", "is not a time");
  return { name: plainWords(name, 60) || null, ceilingAtomic: amount.atomic, endsAt: end };
}

const isSame = (task: TaskRow, terms: Terms): boolean =>
  task.name === terms.name &&
  task.ceilingAtomic === terms.ceilingAtomic &&
  task.endsAt?.getTime() === terms.endsAt?.getTime();

/** Opens a task, or finds it if it was opened with the same terms. The caller has the agent's lock. */
export async function openTask(
  prisma: PrismaClient,
  agentId: string,
  body: NewTaskBody,
): Promise<{ task: TaskRow; isNew: boolean }> {
  const terms = readTerms(body);
  const { id = newId("tsk") } = body;
  return prisma.$transaction(async (tx) => {
    // SQL: a row lock, so that processes together open no more than the limit.
    await tx.$queryRaw`SELECT 1 FROM agents WHERE id = ${agentId} FOR UPDATE`;
    const known = await findTask(tx, agentId, id);
    if (known) {
      if (!isSame(known, terms)) throw new ApiError("task_exists");
      return { task: known, isNew: false };
    }
    const createdAt = await databaseNow(tx);
    if (terms.endsAt !== null && terms.endsAt <= createdAt)
      throw refuseField("validation_failed", "body.expiresAt", "must be in the future");
    if ((await countOpenTasks(tx, agentId)) >= MOST_OPEN_TASKS)
      throw new ApiError("too_many_tasks");
    await insertTask(tx, { agentId, id, ...terms, createdAt });
    const task = await findTask(tx, agentId, id);
    if (!task) throw new Error("the new task is missing");
    return { task, isNew: true };
  });
}

export const taskNotFound = (): ApiError =>
  new ApiError("not_found", { detail: "This agent has no task with this id." });

export function taskOnWire(task: TaskRow): Task {
  const { id, name, ceilingAtomic, usedAtomic, reservedAtomic, payments } = task;
  return {
    id,
    name,
    state: task.closedAt !== null ? "closed" : task.hasEnded ? "ended" : "open",
    limit: formatAtomic(ceilingAtomic),
    spent: formatAtomic(usedAtomic - reservedAtomic),
    reserved: formatAtomic(reservedAtomic),
    left: formatAtomic(remainingOf(ceilingAtomic, usedAtomic)),
    payments,
    expiresAt: task.endsAt?.toISOString() ?? null,
    closedAt: task.closedAt?.toISOString() ?? null,
    createdAt: task.createdAt.toISOString(),
  };
}
