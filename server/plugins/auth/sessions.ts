import { createHash, randomBytes } from "node:crypto";
import type { Address } from "viem";
import { newId } from "../../core/ids.ts";
import type { PageRequest } from "../../core/paging.ts";
import { beforePlace, newestFirst, placeParams, selectPlace } from "../../infra/db/keyset.ts";
import type { Sql } from "../../infra/db/pool.ts";

/** Sessions end after a day unused, and after a week in any case (database clock). */
export const SESSION_IDLE_SECONDS = 24 * 3600;
export const SESSION_ABSOLUTE_SECONDS = 7 * 24 * 3600;

const TOKEN_SHAPE = /^[A-Za-z0-9_-]{43}$/;

/** 256 random bits, opaque. Only its hash is stored. */
export const createSessionToken = (): string => randomBytes(32).toString("base64url");

export const isSessionTokenShape = (text: string): boolean => TOKEN_SHAPE.test(text);

export const hashSessionToken = (token: string): Buffer =>
  createHash("sha256").update(token).digest();

export interface SessionHolder {
  sessionId: string;
  ownerId: string;
  address: Address;
  createdAt: Date;
  expiresAt: Date;
  isSeenStale: boolean;
}

export interface SessionRow {
  id: string;
  createdAtMicros: bigint;
  userAgent: string;
  ip: string;
  createdAt: Date;
  lastSeenAt: Date;
  expiresAt: Date;
}

/** Alive: not revoked, not past its end, and used within the idle time. All on the database's clock. */
const ALIVE = `s.revoked_at IS NULL AND s.expires_at > now()
  AND s.last_seen_at > now() - interval '${SESSION_IDLE_SECONDS} seconds'`;

export async function insertSession(
  sql: Sql,
  args: { ownerId: string; tokenHash: Buffer; userAgent: string; ip: string },
): Promise<string> {
  const id = newId("ses");
  await sql.query(
    `INSERT INTO sessions (id, owner_id, token_hash, user_agent, ip, expires_at)
     VALUES ($1, $2, $3, $4, $5, now() + interval '${SESSION_ABSOLUTE_SECONDS} seconds')`,
    [id, args.ownerId, args.tokenHash, args.userAgent, args.ip],
  );
  return id;
}

export async function findSession(sql: Sql, tokenHash: Buffer): Promise<SessionHolder | undefined> {
  const { rows } = await sql.query<SessionHolder>({
    name: "session-holder",
    text: `SELECT s.id AS "sessionId", s.owner_id AS "ownerId", o.address, s.created_at AS "createdAt",
                  s.expires_at AS "expiresAt", s.last_seen_at < now() - interval '1 minute' AS "isSeenStale"
             FROM sessions s JOIN owners o ON o.id = s.owner_id
            WHERE s.token_hash = $1 AND ${ALIVE}`,
    values: [tokenHash],
  });
  return rows[0];
}

export async function noteSessionSeen(sql: Sql, sessionId: string): Promise<void> {
  await sql.query("UPDATE sessions SET last_seen_at = now() WHERE id = $1", [sessionId]);
}

export async function listSessions(
  sql: Sql,
  ownerId: string,
  page: PageRequest,
): Promise<SessionRow[]> {
  const { rows } = await sql.query<SessionRow>(
    `SELECT s.user_agent AS "userAgent", s.ip, s.created_at AS "createdAt",
            s.last_seen_at AS "lastSeenAt", s.expires_at AS "expiresAt", ${selectPlace("s")}
       FROM sessions s
      WHERE s.owner_id = $1 AND ${ALIVE} AND ${beforePlace("s", 2)}
      ${newestFirst("s")} LIMIT $4`,
    [ownerId, ...placeParams(page), page.limit + 1],
  );
  return rows;
}

/** Ends a session of this owner; false when there is none such alive. */
export async function revokeSession(
  sql: Sql,
  ownerId: string,
  sessionId: string,
): Promise<boolean> {
  const { rowCount } = await sql.query(
    `UPDATE sessions s SET revoked_at = now() WHERE s.id = $1 AND s.owner_id = $2 AND ${ALIVE}`,
    [sessionId, ownerId],
  );
  return rowCount === 1;
}

/** The session a browser still carried when it signed in anew: nobody holds its cookie any more. */
export async function revokeSessionByToken(sql: Sql, tokenHash: Buffer): Promise<void> {
  await sql.query(
    "UPDATE sessions SET revoked_at = now() WHERE token_hash = $1 AND revoked_at IS NULL",
    [tokenHash],
  );
}
