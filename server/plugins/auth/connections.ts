/** OAuth connections of programs to an agent: a placeholder key, and the tokens that are used instead of it. */
import type { PageRequest } from "../../core/paging.ts";
import {
  readKeyset,
  databaseNow,
  secondsAfter,
  type Db,
  type Prisma,
} from "../../infra/db/prisma.ts";
import {
  createConnectionKey,
  HIDDEN,
  insertApiKey,
  revokeApiKeys,
  rowOf,
  type ApiKeyRow,
} from "./api-keys.ts";
import {
  ACCESS_TOKEN_PREFIX,
  REFRESH_TOKEN_PREFIX,
  createSecret,
  hashSecret,
  isSecretShape,
} from "./secrets.ts";

const ACCESS_TOKEN_SECONDS = 30 * 60;
/** The lifetime of an unused refresh token; each use returns a new one. */
const REFRESH_TOKEN_SECONDS = 30 * 24 * 3600;
/** How long older access tokens work after a renewal, so that requests in progress succeed. */
const OLD_ACCESS_SECONDS = 60;

interface Program {
  clientId: string;
  clientName: string;
  redirectUri: string;
}

export interface ConnectionRow extends ApiKeyRow {
  connection: Program;
}

export async function insertConnection(
  tx: Db,
  args: {
    keyId: string;
    agentId: string;
    label: string;
    expiresAt: Date;
    program: Program;
  },
): Promise<ApiKeyRow> {
  const { keyId, agentId, label, expiresAt, program } = args;
  const key = await insertApiKey(tx, {
    id: keyId,
    agentId,
    label,
    expiresAt,
    ...createConnectionKey(),
  });
  await tx.oauthConnection.create({ data: { keyId, ...program, createdAt: key.createdAt } });
  return key;
}

export async function listConnections(
  db: Db,
  agentId: string,
  page: PageRequest,
): Promise<ConnectionRow[]> {
  const now = await databaseNow(db);
  const rows = await readKeyset(page, (where, order) =>
    db.apiKey.findMany({
      where: { agentId, connection: { isNot: null }, ...where },
      omit: HIDDEN,
      include: { connection: true },
      ...order,
    }),
  );
  return rows.flatMap((row) => connectionRow(row, now));
}

/** A connection of this agent, active or not. */
export async function findConnectionRow(
  db: Db,
  agentId: string,
  keyId: string,
): Promise<ConnectionRow | undefined> {
  const found = await db.apiKey.findUnique({
    where: { id: keyId, agentId },
    omit: HIDDEN,
    include: { connection: true },
  });
  return found === null ? undefined : connectionRow(found, await databaseNow(db))[0];
}

type StoredKey = Prisma.ApiKeyGetPayload<{
  omit: typeof HIDDEN;
  include: { connection: true };
}>;

function connectionRow({ connection, ...key }: StoredKey, now: Date): ConnectionRow[] {
  if (connection === null) return [];
  return [{ ...rowOf(key, now), connection }];
}

interface FoundConnection {
  keyId: string;
  agentId: string;
  ownerId: string;
  clientId: string;
  label: string;
  /** Not revoked, not expired, and its agent is not archived. */
  isAlive: boolean;
  expiresAt: Date | null;
}

export async function findConnection(db: Db, keyId: string): Promise<FoundConnection | undefined> {
  const found = await db.oauthConnection.findUnique({
    where: { keyId },
    include: { key: { include: { agent: { select: { ownerId: true, status: true } } } } },
  });
  if (found === null) return undefined;
  const { key, clientId } = found;
  const now = await databaseNow(db);
  const isOver = key.expiresAt !== null && key.expiresAt <= now;
  return {
    keyId,
    agentId: key.agentId,
    ownerId: key.agent.ownerId,
    clientId,
    label: key.label,
    isAlive: key.revokedAt === null && !isOver && key.agent.status !== "archived",
    expiresAt: key.expiresAt,
  };
}

/** True if this call revoked it. From now on all replicas refuse its tokens. */
export async function revokeConnection(
  tx: Db,
  { agentId, keyId }: { agentId: string; keyId: string },
): Promise<boolean> {
  return (await revokeApiKeys(tx, agentId, keyId)).length === 1;
}

/** Revokes the connections that a former owner allowed. Returns those that were revoked now. */
export async function revokeConnectionsOf(
  tx: Db,
  agentIds: readonly string[],
): Promise<Pick<ApiKeyRow, "id" | "agentId" | "label">[]> {
  const revokedAt = await databaseNow(tx);
  return tx.apiKey.updateManyAndReturn({
    where: { agentId: { in: [...agentIds] }, revokedAt: null, connection: { isNot: null } },
    data: { revokedAt },
    select: { id: true, agentId: true, label: true },
  });
}

export interface Tokens {
  accessToken: string;
  refreshToken: string;
  accessSeconds: number;
}

/** A pair of tokens for an active connection; neither outlives it. */
export async function issueTokens(
  tx: Db,
  { keyId, expiresAt }: Pick<FoundConnection, "keyId" | "expiresAt">,
): Promise<Tokens> {
  const createdAt = await databaseNow(tx);
  const atMost = (seconds: number): Date => {
    const end = secondsAfter(createdAt, seconds);
    return expiresAt !== null && expiresAt < end ? expiresAt : end;
  };
  await tx.oauthToken.updateMany({
    where: {
      keyId,
      kind: "access",
      expiresAt: { gt: secondsAfter(createdAt, OLD_ACCESS_SECONDS) },
    },
    data: { expiresAt: secondsAfter(createdAt, OLD_ACCESS_SECONDS) },
  });
  const accessToken = createSecret(ACCESS_TOKEN_PREFIX);
  const refreshToken = createSecret(REFRESH_TOKEN_PREFIX);
  const accessEnd = atMost(ACCESS_TOKEN_SECONDS);
  const row = (text: string, kind: "access" | "refresh", end: Date) => ({
    hash: Uint8Array.from(hashSecret(text)),
    keyId,
    kind,
    createdAt,
    expiresAt: end,
  });
  await tx.oauthToken.createMany({
    data: [
      row(accessToken, "access", accessEnd),
      row(refreshToken, "refresh", atMost(REFRESH_TOKEN_SECONDS)),
    ],
  });
  const accessSeconds = Math.floor((accessEnd.getTime() - createdAt.getTime()) / 1000);
  return { accessToken, refreshToken, accessSeconds };
}

interface FoundToken {
  keyId: string;
  kind: "access" | "refresh";
  isUsed: boolean;
  isExpired: boolean;
}

export const isRefreshToken = (text: string): boolean => isSecretShape(REFRESH_TOKEN_PREFIX, text);
export const isAccessToken = (text: string): boolean => isSecretShape(ACCESS_TOKEN_PREFIX, text);

export async function findToken(db: Db, text: string): Promise<FoundToken | undefined> {
  const found = await db.oauthToken.findUnique({
    where: { hash: Uint8Array.from(hashSecret(text)) },
  });
  if (found === null) return undefined;
  const { keyId, kind, usedAt, expiresAt } = found;
  const isExpired = expiresAt <= (await databaseNow(db));
  return { keyId, kind: kind as FoundToken["kind"], isUsed: usedAt !== null, isExpired };
}

/**
 * Of two requests with the same refresh token, one gets true. Uses only its own columns, so that Postgres decides under
 * the row's lock.
 */
export async function useRefreshToken(tx: Db, text: string): Promise<boolean> {
  const now = await databaseNow(tx);
  const { count } = await tx.oauthToken.updateMany({
    where: {
      hash: Uint8Array.from(hashSecret(text)),
      kind: "refresh",
      usedAt: null,
      expiresAt: { gt: now },
    },
    data: { usedAt: now },
  });
  return count === 1;
}

export async function endAccessToken(tx: Db, text: string): Promise<void> {
  await tx.oauthToken.deleteMany({
    where: { hash: Uint8Array.from(hashSecret(text)), kind: "access" },
  });
}
