/** A merchant's own API keys for verify and settle: create, list and revoke. */
import type { PageRequest, Place } from "../../core/paging.ts";
import { newId } from "../../core/ids.ts";
import { ApiError } from "../../errors.ts";
import {
  databaseNow,
  placeOf,
  readKeyset,
  type Db,
  type Prisma,
  type PrismaClient,
} from "../../infra/db/prisma.ts";
import type { MerchantKeyInfo } from "../../schemas/merchants.ts";
import { noteAudit, type AuditAction } from "../audit/store.ts";
import { actorOf, type RequestOwner } from "../auth/index.ts";
import { createMerchantKey } from "../auth/merchant-keys.ts";

/** Enough for every service of a merchant, and few enough for a person to review. */
const MOST_KEYS = 20;
const HIDDEN = { keyHash: true } as const;
type Stored = Prisma.MerchantKeyGetPayload<{ omit: typeof HIDDEN }>;

export interface KeyCall {
  prisma: PrismaClient;
  owner: Pick<RequestOwner, "id" | "address" | "second" | "member">;
  requestId: string;
}

export async function makeMerchantKey(
  { prisma, owner, requestId }: KeyCall,
  { label, cell }: { label: string; cell: string | undefined },
): Promise<{ row: Stored; key: string }> {
  const { key, facts } = createMerchantKey(cell);
  const row = await prisma.$transaction(async (tx) => {
    // SQL: FOR UPDATE of the owner's row, so that concurrent requests count each other's keys.
    await tx.$queryRaw`SELECT 1 FROM owners WHERE id = ${owner.id} FOR UPDATE`;
    const count = await tx.merchantKey.count({ where: { ownerId: owner.id, revokedAt: null } });
    if (count >= MOST_KEYS)
      throw new ApiError("conflict", {
        detail: `You already have ${MOST_KEYS} keys. Revoke one that you no longer use.`,
      });
    const made = await tx.merchantKey.create({
      data: {
        id: newId("mky"),
        ownerId: owner.id,
        ...facts,
        keyHash: Uint8Array.from(facts.keyHash),
        label,
        createdAt: await databaseNow(tx),
      },
      omit: HIDDEN,
    });
    await note(tx, { owner, requestId }, "merchant_key.created", made);
    return made;
  });
  return { row, key };
}

/** Takes effect at once on all replicas. Revoking twice is no error. */
export async function revokeMerchantKey(
  { prisma, owner, requestId }: KeyCall,
  id: string,
): Promise<Stored> {
  return prisma.$transaction(async (tx) => {
    const now = await databaseNow(tx);
    const [revoked] = await tx.merchantKey.updateManyAndReturn({
      where: { id, ownerId: owner.id, revokedAt: null },
      data: { revokedAt: now },
      omit: HIDDEN,
    });
    if (revoked) {
      await note(tx, { owner, requestId }, "merchant_key.revoked", revoked);
      return revoked;
    }
    const known = await tx.merchantKey.findFirst({
      where: { id, ownerId: owner.id },
      omit: HIDDEN,
    });
    if (known === null)
      throw new ApiError("not_found", { detail: "You have no key with this id." });
    return known;
  });
}

export async function listMerchantKeys(
  db: Db,
  ownerId: string,
  page: PageRequest,
): Promise<(Stored & Place)[]> {
  const rows = await readKeyset(page, (where, order) =>
    db.merchantKey.findMany({ where: { ownerId, ...where }, omit: HIDDEN, ...order }),
  );
  return rows.map((row) => ({ ...row, ...placeOf(row) }));
}

export const viewMerchantKey = (row: Stored): MerchantKeyInfo => ({
  id: row.id,
  label: row.label,
  hint: hintOf(row),
  createdAt: row.createdAt.toISOString(),
  lastUsedAt: row.lastUsedAt?.toISOString() ?? null,
  revokedAt: row.revokedAt?.toISOString() ?? null,
});

const hintOf = ({ prefix, last4 }: Stored): string => `${prefix}…${last4}`;

const note = (
  tx: Db,
  { owner, requestId }: Pick<KeyCall, "owner" | "requestId">,
  action: AuditAction,
  row: Stored,
): Promise<void> =>
  noteAudit(tx, {
    ownerId: owner.id,
    agentId: null,
    actor: actorOf(owner),
    action,
    before: null,
    after: { keyId: row.id, label: row.label, hint: hintOf(row) },
    requestId,
  });
