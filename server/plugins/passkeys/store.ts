import { databaseNow, secondsAfter, type Db } from "../../infra/db/prisma.ts";
import { ApiError } from "../../errors.ts";
import type { NewPasskey } from "./webauthn.ts";

/** An owner's passkeys, removed ones not counted. */
export const MAX_PASSKEYS = 20;
/** An offered passkey that no order lists after this time is deleted. */
const OFFER_SECONDS = 24 * 60 * 60;

export interface PasskeyRow {
  id: string;
  ownerId: string;
  name: string;
  x: string;
  y: string;
  status: string;
  transports: string[];
  usedAt: Date | null;
  createdAt: Date;
}

export const passkeysOf = (db: Db, ownerId: string): Promise<PasskeyRow[]> =>
  db.passkey.findMany({ where: { ownerId }, orderBy: [{ createdAt: "asc" }, { id: "asc" }] });

/** A key or a credential id that exists already is refused: it belongs to one owner. */
export async function insertPasskey(
  tx: Db,
  { id, key, count, transports }: NewPasskey,
  row: { ownerId: string; name: string; status: "offered" | "active" },
): Promise<void> {
  const data = { id, ...key, ...row, signCount: BigInt(count), transports };
  // An existing row is skipped, which does not abort the transaction.
  const made = await tx.passkey.createMany({
    data: [{ ...data, createdAt: await databaseNow(tx) }],
    skipDuplicates: true,
  });
  if (made.count === 0) throw new ApiError("passkey_known");
}

export async function deleteOldOffers(tx: Db, ownerId: string): Promise<void> {
  const before = secondsAfter(await databaseNow(tx), -OFFER_SECONDS);
  await tx.passkey.deleteMany({
    where: { ownerId, status: "offered", createdAt: { lt: before } },
  });
}

/** The version of the order of this kind that the owner signed last; 0 before that. Call it under the owner's lock. */
export const lastVersion = (
  db: Db,
  ownerId: string,
  kind: "Passkeys" | "PayoutAddress" | "Members",
): Promise<number> => db.ownerOrder.count({ where: { ownerId, kind, usedAt: { not: null } } });

export const setStatus = (
  tx: Db,
  ids: readonly string[],
  status: "active" | "removed",
): Promise<unknown> => tx.passkey.updateMany({ where: { id: { in: [...ids] } }, data: { status } });
