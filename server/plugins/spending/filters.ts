/** Filters that an owner saved under a name, on every device. */
import { newId } from "../../core/ids.ts";
import { ApiError } from "../../errors.ts";
import { databaseNow, type Db, jsonOf, type PrismaClient } from "../../infra/db/prisma.ts";
import type { SavedFilter, SpendingFilter } from "../../schemas/spending.ts";
import { lockOwner } from "../owners/store.ts";

const MOST_FILTERS = 50;

interface Stored {
  id: string;
  name: string;
  filter: unknown;
  createdAt: Date;
}

const present = ({ id, name, filter, createdAt }: Stored): SavedFilter => ({
  id,
  name,
  filter: filter as SpendingFilter,
  createdAt: createdAt.toISOString(),
});

export async function listFilters(db: Db, ownerId: string): Promise<SavedFilter[]> {
  const rows = await db.savedFilter.findMany({ where: { ownerId }, orderBy: { name: "asc" } });
  return rows.map(present);
}

/** A filter with the same name is replaced. */
export async function saveFilter(
  prisma: PrismaClient,
  ownerId: string,
  wanted: { name: string; filter: SpendingFilter },
): Promise<SavedFilter> {
  const name = wanted.name.trim();
  const filter = jsonOf(wanted.filter);
  return prisma.$transaction(async (tx) => {
    // Two devices together save no more than the limit.
    await lockOwner(tx, ownerId);
    const known = await tx.savedFilter.findFirst({ where: { ownerId, name } });
    if (known)
      return present(
        await tx.savedFilter.update({
          where: { ownerId_id: { ownerId, id: known.id } },
          data: { filter },
        }),
      );
    if ((await tx.savedFilter.count({ where: { ownerId } })) >= MOST_FILTERS)
      throw new ApiError("too_many_filters");
    const createdAt = await databaseNow(tx);
    return present(
      await tx.savedFilter.create({ data: { id: newId("flt"), ownerId, name, filter, createdAt } }),
    );
  });
}

export async function removeFilter(db: Db, ownerId: string, id: string): Promise<void> {
  const { count } = await db.savedFilter.deleteMany({ where: { ownerId, id } });
  if (count === 0) throw new ApiError("not_found", { detail: "You have no filter with this id." });
}
