import type { PageRequest, Place } from "../../core/paging.ts";
import {
  atomicOf,
  databaseNow,
  decimalOf,
  placeOf,
  readKeyset,
  type Db,
  type Prisma,
} from "../../infra/db/prisma.ts";

export interface TaskRow extends Place {
  name: string | null;
  ceilingAtomic: bigint;
  /** What its payments count, reserved amounts included. */
  usedAtomic: bigint;
  reservedAtomic: bigint;
  payments: number;
  endsAt: Date | null;
  closedAt: Date | null;
  createdAt: Date;
  hasEnded: boolean;
}

type Stored = Prisma.TaskGetPayload<object>;

async function withReserved(
  db: Db,
  agentId: string,
  stored: readonly Stored[],
): Promise<TaskRow[]> {
  if (stored.length === 0) return [];
  const [open, now] = await Promise.all([
    db.payment.groupBy({
      by: ["taskId"],
      where: {
        agentId,
        outstanding: true,
        counted: true,
        taskId: { in: stored.map(({ id }) => id) },
      },
      _sum: { amount: true },
    }),
    databaseNow(db),
  ]);
  const reserved = new Map(open.map(({ taskId, _sum }) => [taskId, _sum.amount]));
  return stored.map((task) => {
    const amount = reserved.get(task.id);
    const usedAtomic = atomicOf(task.used);
    const reservedAtomic = amount == null ? 0n : atomicOf(amount);
    const { name, payments, endsAt, closedAt, createdAt, endedAt } = task;
    return {
      ...placeOf(task),
      name,
      payments,
      endsAt,
      closedAt,
      createdAt,
      ceilingAtomic: atomicOf(task.ceiling),
      usedAtomic,
      // Two reads: a payment may have ended in between.
      reservedAtomic: reservedAtomic < usedAtomic ? reservedAtomic : usedAtomic,
      hasEnded: endedAt !== null && endedAt <= now,
    };
  });
}

const isOpen = (now: Date): Prisma.TaskWhereInput => ({
  OR: [{ endedAt: null }, { endedAt: { gt: now } }],
});

/** Newest first. One row more than the page, to show whether there is another page. */
export async function listTasks(
  db: Db,
  agentId: string,
  { page, onlyOpen }: { page: PageRequest; onlyOpen: boolean },
): Promise<TaskRow[]> {
  const open = onlyOpen ? isOpen(await databaseNow(db)) : {};
  const stored = await readKeyset(page, (where, order) =>
    db.task.findMany({ where: { AND: [{ agentId }, open, where] }, ...order }),
  );
  return withReserved(db, agentId, stored);
}

export async function findTask(db: Db, agentId: string, id: string): Promise<TaskRow | undefined> {
  const stored = await db.task.findUnique({ where: { agentId_id: { agentId, id } } });
  return stored === null ? undefined : (await withReserved(db, agentId, [stored]))[0];
}

export async function countOpenTasks(db: Db, agentId: string): Promise<number> {
  return db.task.count({ where: { agentId, ...isOpen(await databaseNow(db)) } });
}

export async function insertTask(
  db: Db,
  task: {
    agentId: string;
    id: string;
    name: string | null;
    ceilingAtomic: bigint;
    endsAt: Date | null;
    createdAt: Date;
  },
): Promise<void> {
  const { ceilingAtomic, ...columns } = task;
  await db.task.create({ data: { ...columns, ceiling: decimalOf(ceilingAtomic) } });
}

/** Waits for a payment that is being decided in this task; later ones are refused. */
export async function closeTask(db: Db, agentId: string, id: string): Promise<void> {
  await db.task.updateMany({
    where: { agentId, id, closedAt: null },
    data: { closedAt: await databaseNow(db) },
  });
}
