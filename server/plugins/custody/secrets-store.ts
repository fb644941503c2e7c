import type { Db } from "../../infra/db/prisma.ts";

/** A secret that replicas share and that nobody outside needs: the first who asks makes it. */
export async function findServiceSecret(db: Db, purpose: string): Promise<Uint8Array | undefined> {
  const row = await db.serviceSecret.findUnique({ where: { purpose } });
  return row?.sealed;
}

/** False where another replica was faster, or `instead` is no longer what is there. */
export async function keepServiceSecret(
  db: Db,
  purpose: string,
  sealed: Uint8Array,
  instead: Uint8Array | undefined,
): Promise<boolean> {
  const bytes = Uint8Array.from(sealed);
  if (instead === undefined) {
    const { count } = await db.serviceSecret.createMany({
      data: [{ purpose, sealed: bytes }],
      skipDuplicates: true,
    });
    return count === 1;
  }
  const { count } = await db.serviceSecret.updateMany({
    where: { purpose, sealed: Uint8Array.from(instead) },
    data: { sealed: bytes },
  });
  return count === 1;
}

export const listServiceSecrets = (db: Db): Promise<{ purpose: string; sealed: Uint8Array }[]> =>
  db.serviceSecret.findMany({ select: { purpose: true, sealed: true } });
