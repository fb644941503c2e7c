import { createHash, randomBytes } from "node:crypto";
import type { Address } from "viem";
import type { Role } from "../../core/teams.ts";
import { newId } from "../../core/ids.ts";
import type { PageRequest, Place } from "../../core/paging.ts";
import { placeOf, readKeyset, databaseNow, secondsAfter, type Db } from "../../infra/db/prisma.ts";
import type { Sql } from "../../infra/db/pool.ts";

/** Sessions end after a day without use, and after a week in any case (database clock). */
const SESSION_IDLE_SECONDS = 24 * 3600;
export const SESSION_ABSOLUTE_SECONDS = 7 * 24 * 3600;

const TOKEN_SHAPE = /^[A-Za-z0-9_-]{43}$/;

/** 256 random bits. Only the hash is stored. */
export const createSessionToken = (): string => randomBytes(32).toString("base64url");

export const isSessionTokenShape = (text: string): boolean => TOKEN_SHAPE.test(text);

export const hashSessionToken = (token: string): Buffer =>
  createHash("sha256").update(token).digest();

export interface SessionHolder {
  sessionId: string;
  ownerId: string;
  address: Address;
  chainId: number;
  /** The recovery wallet that signed in for this owner. */
  secondAddress: Address | null;
  secondChainId: number | null;
  /** The passkey that opened it. */
  passkeyId: string | null;
  /** Whose session it is, and the role in the team, if this person acts for one. */
  memberOwnerId: string;
  memberAddress: Address;
  memberChainId: number;
  role: Role | null;
  createdAt: Date;
  expiresAt: Date;
  isSeenStale: boolean;
  /** The cell to which the account moves or moved, and that cell's pages. */
  movedTo: string | null;
  movedUrl: string | null;
}

interface SessionRow extends Place {
  userAgent: string;
  ip: string;
  createdAt: Date;
  lastSeenAt: Date;
  expiresAt: Date;
}

/** Active: not revoked, not past its end, and used within the idle time. All by the database's clock. */
const aliveAt = (now: Date) => ({
  revokedAt: null,
  expiresAt: { gt: now },
  lastSeenAt: { gt: secondsAfter(now, -SESSION_IDLE_SECONDS) },
});
const ALIVE = `s.revoked_at IS NULL AND s.expires_at > now()
  AND s.last_seen_at > now() - interval '${SESSION_IDLE_SECONDS} seconds'`;

export async function insertSession(
  db: Db,
  args: {
    ownerId: string;
    tokenHash: Buffer;
    userAgent: string;
    ip: string;
    second?: { address: Address; chainId: number };
    passkeyId?: string | null;
    /** The team for which its owner acts. */
    teamId?: string | null;
    expiresAt?: Date;
  },
): Promise<string> {
  const { second, ...facts } = args;
  const id = newId("ses");
  const now = await databaseNow(db);
  await db.session.create({
    data: {
      ...facts,
      id,
      tokenHash: Uint8Array.from(args.tokenHash),
      secondAddress: second?.address ?? null,
      secondChainId: second === undefined ? null : BigInt(second.chainId),
      createdAt: now,
      lastSeenAt: now,
      expiresAt: facts.expiresAt ?? secondsAfter(now, SESSION_ABSOLUTE_SECONDS),
    },
  });
  return id;
}

export async function findSession(sql: Sql, tokenHash: Buffer): Promise<SessionHolder | undefined> {
  // SQL: part of every owner request; prepared once per connection, with its owner in one round trip.
  const { rows } = await sql.query<SessionHolder>({
    name: "session-holder-3",
    text: `SELECT s.id AS "sessionId", a.id AS "ownerId", a.address, a.chain_id::float8 AS "chainId",
                  o.id AS "memberOwnerId", o.address AS "memberAddress", o.chain_id::float8 AS "memberChainId", m.role,
                  s.second_address AS "secondAddress", s.second_chain_id::float8 AS "secondChainId",
                  s.passkey_id AS "passkeyId", s.created_at AS "createdAt",
                  s.expires_at AS "expiresAt", s.last_seen_at < now() - interval '1 minute' AS "isSeenStale",
                  a.moved_to AS "movedTo", a.moved_url AS "movedUrl"
             FROM sessions s JOIN owners o ON o.id = s.owner_id
             JOIN owners a ON a.id = coalesce(s.team_id, s.owner_id)
             LEFT JOIN team_members m ON m.team_id = s.team_id AND m.address = o.address AND m.chain_id = o.chain_id
            WHERE s.token_hash = $1 AND ${ALIVE} AND (s.team_id IS NULL OR m.role IS NOT NULL)`,
    values: [tokenHash],
  });
  return rows[0];
}

export async function noteSessionSeen(db: Db, sessionId: string): Promise<void> {
  const lastSeenAt = await databaseNow(db);
  await db.session.updateMany({ where: { id: sessionId }, data: { lastSeenAt } });
}

export async function listSessions(
  db: Db,
  ownerId: string,
  page: PageRequest,
): Promise<SessionRow[]> {
  const alive = aliveAt(await databaseNow(db));
  const rows = await readKeyset(page, (where, order) =>
    db.session.findMany({
      where: { ownerId, ...alive, ...where },
      omit: { tokenHash: true },
      ...order,
    }),
  );
  return rows.map((row) => ({ ...row, ...placeOf(row) }));
}

/** Ends a session of this owner; false if there is no such active session. */
export async function revokeSession(db: Db, ownerId: string, sessionId: string): Promise<boolean> {
  const now = await databaseNow(db);
  const { count } = await db.session.updateMany({
    where: { id: sessionId, ownerId, ...aliveAt(now) },
    data: { revokedAt: now },
  });
  return count === 1;
}

/** Ends the sessions of a former recovery wallet. */
export async function revokeSecondSessions(db: Db, ownerId: string): Promise<void> {
  const revokedAt = await databaseNow(db);
  await db.session.updateMany({
    where: { ownerId, secondAddress: { not: null }, revokedAt: null },
    data: { revokedAt },
  });
}

/** Ends the sessions that these passkeys opened. */
export async function revokePasskeySessions(
  db: Db,
  ownerId: string,
  passkeyIds: readonly string[],
): Promise<void> {
  const revokedAt = await databaseNow(db);
  await db.session.updateMany({
    where: { ownerId, passkeyId: { in: [...passkeyIds] }, revokedAt: null },
    data: { revokedAt },
  });
}

/** Whether a session can still be used, for a stream that outlives its request. */
export async function isSessionLive(db: Db, sessionId: string): Promise<boolean> {
  const now = await databaseNow(db);
  const found = await db.session.findFirst({
    where: { id: sessionId, revokedAt: null, expiresAt: { gt: now } },
    select: { teamId: true, owner: { select: { address: true, chainId: true } } },
  });
  if (!found?.teamId) return found !== null;
  // Removed from the team, the person acts for it no longer.
  return (await db.teamMember.count({ where: { teamId: found.teamId, ...found.owner } })) === 1;
}

/** Ends the previous session of a browser that signed in again: its cookie was replaced. Returns its owner. */
export async function revokeSessionByToken(
  db: Db,
  tokenHash: Buffer,
): Promise<{ id: string; owner: { id: string; address: string } } | undefined> {
  const now = await databaseNow(db);
  const alive = { tokenHash: Uint8Array.from(tokenHash), revokedAt: null };
  const found = await db.session.findFirst({
    where: alive,
    select: { id: true, owner: { select: { id: true, address: true } } },
  });
  const { count } = await db.session.updateMany({ where: alive, data: { revokedAt: now } });
  return count === 1 && found !== null ? found : undefined;
}
