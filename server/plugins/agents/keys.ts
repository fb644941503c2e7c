import {
  findApiKey,
  insertApiKey,
  replaceApiKey,
  revokeApiKeys,
  type ApiKeyRow,
} from "../auth/api-keys.ts";
import { CONNECTION_LABEL } from "../../core/orders.ts";
import { databaseNow, type Db } from "../../infra/db/prisma.ts";
import { ApiError } from "../../errors.ts";
import type { ApiKeyInfo } from "../../schemas/agents.ts";
import { newId } from "../../core/ids.ts";
import { createApiKey } from "../auth/api-keys.ts";
import { changeAgent, type LockedAgent, type OwnerCall } from "./change.ts";
import { refuseField } from "../../core/refuse-field.ts";
import { readLabel, readTime } from "./rules.ts";

interface IssuedKey {
  row: ApiKeyRow;
  /** Shown only this once. */
  apiKey: string;
}

export async function createKey(
  call: OwnerCall,
  agentId: string,
  body: { label?: string; expiresAt?: string | null },
): Promise<IssuedKey> {
  const label = readLabel(body.label, "body.label");
  if (label.startsWith(CONNECTION_LABEL))
    throw refuseField("validation_failed", "body.label", "is reserved for connections");
  const expiresAt =
    typeof body.expiresAt === "string" ? readTime(body.expiresAt, "body.expiresAt") : null;
  const work = async ({ tx, audit, permitKey }: LockedAgent) => {
    // The database's clock decides, as it will when the key is used.
    if (expiresAt !== null && expiresAt <= (await databaseNow(tx)))
      throw refuseField("validation_failed", "body.expiresAt", "must be in the future");
    await permitKey(label, expiresAt);
    const issued = await issue(tx, { cell: call.cell, agentId, label, expiresAt });
    await audit({ action: "key.created", before: null, after: keyFacts(issued.row) });
    return issued;
  };
  return changeAgent(call, agentId, work, "IssueKey");
}

/** Creates a key with the old one's label; the old key works for a grace period, so that no client is interrupted. */
export async function rotateKey(
  call: OwnerCall,
  agentId: string,
  keyId: string,
  graceSeconds: number,
): Promise<IssuedKey & { previous: ApiKeyRow }> {
  const work = async ({ tx, audit, permitKey }: LockedAgent) => {
    const old = await existing(tx, agentId, keyId);
    if (old.revokedAt || old.expired || old.rotatedToId !== null) {
      const why = old.revokedAt ? "revoked" : old.expired ? "expired" : "rotated";
      throw new ApiError("conflict", { detail: `This key was already ${why}. Create a new one.` });
    }
    await permitKey(old.label, old.expiresAt);
    const issued = await issue(tx, {
      cell: call.cell,
      agentId,
      label: old.label,
      expiresAt: old.expiresAt,
    });
    const previous = await replaceApiKey(tx, { old, newKeyId: issued.row.id, graceSeconds });
    await audit({
      action: "key.rotated",
      before: keyFacts(old),
      after: { ...keyFacts(issued.row), previous: keyFacts(previous), graceSeconds },
    });
    return { ...issued, previous };
  };
  return changeAgent(call, agentId, work, "IssueKey");
}

/** Takes effect at once on all replicas, because each request looks up its key. Revoking twice is no error. */
export async function revokeKey(
  call: OwnerCall,
  agentId: string,
  keyId: string,
): Promise<ApiKeyRow> {
  return changeAgent(call, agentId, async ({ tx, audit }) => {
    const key = await existing(tx, agentId, keyId);
    const [revoked] = await revokeApiKeys(tx, agentId, keyId);
    if (!revoked) return key;
    await audit({ action: "key.revoked", before: keyFacts(key), after: keyFacts(revoked) });
    return revoked;
  });
}

interface NewKey {
  cell: string | undefined;
  agentId: string;
  label: string;
  expiresAt: Date | null;
}

async function issue(tx: Db, { cell, agentId, label, expiresAt }: NewKey): Promise<IssuedKey> {
  const { apiKey, ...facts } = createApiKey(cell);
  const row = await insertApiKey(tx, { id: newId("key"), agentId, label, expiresAt, ...facts });
  return { row, apiKey };
}

async function existing(tx: Db, agentId: string, keyId: string): Promise<ApiKeyRow> {
  const key = await findApiKey(tx, agentId, keyId);
  if (!key) throw new ApiError("not_found", { detail: "This agent has no key with this id." });
  return key;
}

/** The audit facts of a key, without the key itself. */
const keyFacts = (key: ApiKeyRow): Record<string, unknown> => ({
  id: key.id,
  label: key.label,
  prefix: key.prefix,
  last4: key.last4,
  expiresAt: key.expiresAt?.toISOString() ?? null,
  revokedAt: key.revokedAt?.toISOString() ?? null,
});

export const viewKey = (key: ApiKeyRow): ApiKeyInfo => ({
  id: key.id,
  label: key.label,
  prefix: key.prefix,
  last4: key.last4,
  createdAt: key.createdAt.toISOString(),
  expiresAt: key.expiresAt?.toISOString() ?? null,
  revokedAt: key.revokedAt?.toISOString() ?? null,
  lastUsedAt: key.lastUsedAt?.toISOString() ?? null,
  rotatedToId: key.rotatedToId,
  status: key.revokedAt ? "revoked" : key.expired ? "expired" : "active",
});
