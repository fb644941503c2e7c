import { databaseNow, secondsAfter, type Db } from "../../infra/db/prisma.ts";
import type { Client } from "./clients.ts";

/**
 * How many clients may be registered without ever connecting. The oldest are deleted first, so that a flood does not
 * block new registrations.
 */
const MAX_UNUSED = 10_000;
const NOTE_USE_SECONDS = 24 * 3600;
/** A client's document is fetched again after this. */
const DOCUMENT_SECONDS = 600;

/** How long a consent request stays open. */
const REQUEST_SECONDS = 15 * 60;
const CODE_SECONDS = 60;
const MAX_OPEN = 20;

export async function insertClient(db: Db, client: Client): Promise<Date> {
  const createdAt = await databaseNow(db);
  await makeRoom(db);
  await db.oauthClient.create({ data: { ...client, createdAt } });
  return createdAt;
}

/** Stores a client that is described by a document; it counts like a registered one. */
export async function keepDocument(db: Db, client: Client): Promise<void> {
  const fetchedAt = await databaseNow(db);
  await makeRoom(db);
  const { id, ...facts } = client;
  await db.oauthClient.upsert({
    where: { id },
    create: { ...client, createdAt: fetchedAt, fetchedAt },
    update: { ...facts, fetchedAt },
  });
}

async function makeRoom(db: Db): Promise<void> {
  const count = await db.oauthClient.count({ where: { usedAt: null } });
  if (count < MAX_UNUSED) return;
  const oldest = await db.oauthClient.findMany({
    where: { usedAt: null },
    orderBy: { createdAt: "asc" },
    take: count - MAX_UNUSED + 1,
    select: { id: true },
  });
  await db.oauthClient.deleteMany({
    where: { id: { in: oldest.map(({ id }) => id) }, usedAt: null },
  });
}

export async function findClient(
  db: Db,
  id: string,
): Promise<(Client & { isFresh: boolean }) | undefined> {
  const found = await db.oauthClient.findUnique({ where: { id } });
  if (found === null) return undefined;
  const { name, redirectUris, fetchedAt } = found;
  const since = secondsAfter(await databaseNow(db), -DOCUMENT_SECONDS);
  return { id, name, redirectUris, isFresh: fetchedAt === null || fetchedAt > since };
}

/** At most once a day, because the date only has to outlive the client's connections. */
export async function noteClientUse(db: Db, id: string): Promise<void> {
  const usedAt = await databaseNow(db);
  await db.oauthClient.updateMany({
    where: {
      id,
      OR: [{ usedAt: null }, { usedAt: { lt: secondsAfter(usedAt, -NOTE_USE_SECONDS) } }],
    },
    data: { usedAt },
  });
}

interface NewRequest {
  id: string;
  ownerId: string;
  sessionId: string;
  clientId: string;
  clientName: string;
  redirectUri: string;
  state: string | null;
  codeChallenge: string;
  label: string;
}

export type RequestRow = NewRequest & { createdAt: Date; expiresAt: Date };

export async function insertRequest(tx: Db, request: NewRequest): Promise<RequestRow> {
  const createdAt = await databaseNow(tx);
  const older = await tx.oauthRequest.findMany({
    where: { ownerId: request.ownerId, decidedAt: null },
    orderBy: { createdAt: "desc" },
    skip: MAX_OPEN - 1,
    select: { id: true },
  });
  if (older.length > 0)
    await tx.oauthRequest.deleteMany({
      where: { id: { in: older.map(({ id }) => id) }, decidedAt: null },
    });
  const expiresAt = secondsAfter(createdAt, REQUEST_SECONDS);
  await tx.oauthRequest.create({ data: { ...request, createdAt, expiresAt } });
  return { ...request, createdAt, expiresAt };
}

interface AuthorizationRequest {
  requestId: string;
  ownerId: string;
  /** The session in which the consent was shown; other sessions of the same owner cannot answer it. */
  sessionId: string;
}

const openAt = ({ requestId, ownerId, sessionId }: AuthorizationRequest, now: Date) => ({
  id: requestId,
  ownerId,
  sessionId,
  decidedAt: null,
  expiresAt: { gt: now },
});

/** A request of this session that was not answered yet. */
export async function findOpenRequest(
  db: Db,
  request: AuthorizationRequest,
): Promise<RequestRow | undefined> {
  const found = await db.oauthRequest.findFirst({ where: openAt(request, await databaseNow(db)) });
  return found ?? undefined;
}

/** Answers it once: of two concurrent calls, one gets true. */
export async function decideRequest(
  tx: Db,
  request: AuthorizationRequest,
  granted?: { keyId: string; codeHash: Buffer },
): Promise<boolean> {
  const now = await databaseNow(tx);
  const code = granted && {
    keyId: granted.keyId,
    codeHash: Uint8Array.from(granted.codeHash),
    codeExpiresAt: secondsAfter(now, CODE_SECONDS),
  };
  const { count } = await tx.oauthRequest.updateMany({
    where: openAt(request, now),
    data: { decidedAt: now, ...code },
  });
  return count === 1;
}

/** Uses the code of this program for this redirect URI, with the verifier of its challenge; once, and in time. */
export async function useCode(
  tx: Db,
  shown: {
    codeHash: Buffer;
    clientId: string;
    /** Undefined if the client did not send it; then the verifier alone binds the code. */
    redirectUri: string | undefined;
    codeChallenge: string;
  },
): Promise<boolean> {
  const now = await databaseNow(tx);
  const { codeHash, redirectUri, ...bound } = shown;
  const { count } = await tx.oauthRequest.updateMany({
    where: {
      ...bound,
      ...(redirectUri !== undefined && { redirectUri }),
      codeHash: Uint8Array.from(codeHash),
      codeUsedAt: null,
      codeExpiresAt: { gt: now },
    },
    data: { codeUsedAt: now },
  });
  return count === 1;
}

export async function findCode(
  db: Db,
  codeHash: Buffer,
): Promise<{ keyId: string; isUsed: boolean } | undefined> {
  const found = await db.oauthRequest.findUnique({
    where: { codeHash: Uint8Array.from(codeHash) },
    select: { keyId: true, codeUsedAt: true },
  });
  if (found?.keyId == null) return undefined;
  return { keyId: found.keyId, isUsed: found.codeUsedAt !== null };
}
