import type { Sql } from "../../infra/db/pool.ts";
import type { Db } from "../../infra/db/prisma.ts";
import { kidOfSealed } from "./secret-box.ts";

/** A secret that replicas share; the first caller creates it. */
export async function findServiceSecret(
  sql: Sql,
  purpose: string,
): Promise<Uint8Array | undefined> {
  // SQL: the server listens only after this, and would wait for Prisma's query compiler.
  const { rows } = await sql.query<{ sealed: Uint8Array }>(
    "SELECT sealed FROM service_secrets WHERE purpose = $1",
    [purpose],
  );
  return rows[0]?.sealed;
}

/** False if another replica was faster, or the stored secret is no longer `instead`. */
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

/** The master keys of small secrets: those of webhooks, by steps of an index, and the service's own few. */
export async function kidsOfSecrets(db: Db): Promise<string[]> {
  // SQL: a recursive skip over the index; Prisma's `distinct` reads every webhook.
  const webhooks = await db.$queryRaw<{ kid: string }[]>`
    WITH RECURSIVE kids AS (
      SELECT min(secret_kid) AS kid FROM webhooks
      UNION ALL
      SELECT (SELECT min(w.secret_kid) FROM webhooks w WHERE w.secret_kid > kids.kid) FROM kids WHERE kids.kid IS NOT NULL
    ) SELECT kid FROM kids WHERE kid IS NOT NULL`;
  const own = await listServiceSecrets(db);
  return [
    ...new Set([
      ...webhooks.map(({ kid }) => kid),
      ...own.map(({ sealed }) => kidOfSealed(sealed)),
    ]),
  ];
}
