import type { Sql } from "../../infra/db/pool.ts";
import { databaseNow, hoursBefore, type Db } from "../../infra/db/prisma.ts";

export interface EventRow {
  tx: bigint;
  seq: bigint;
  type: "payment" | "agent" | "session";
  agentId: string | null;
  subjectId: string;
  /** False: a transaction that began before this one's is still running, and may add events before it. */
  ready: boolean;
}

/** A place in an owner's stream. */
export interface EventPlace {
  tx: bigint;
  seq: bigint;
}

export async function readEvents(
  sql: Sql,
  args: { ownerId: string; after: EventPlace; limit: number },
): Promise<EventRow[]> {
  // SQL: what this very snapshot sees, and which transactions still run, are one question.
  const { rows } = await sql.query<EventRow>(
    `SELECT tx, seq, type, agent_id AS "agentId", subject_id AS "subjectId",
            tx < pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS ready
       FROM events WHERE owner_id = $1 AND (tx, seq) > ($2, $3)
      ORDER BY tx, seq LIMIT $4`,
    [args.ownerId, String(args.after.tx), String(args.after.seq), args.limit],
  );
  return rows;
}

/** Which of these owners have events that are not older than this, and where to look from next time. */
export async function ownersWithNews(
  sql: Sql,
  ownerIds: readonly string[],
  sinceTx: bigint,
): Promise<{ owners: string[]; nextTx: bigint }> {
  // SQL: the snapshot and what it shows are one question, asked four times a second.
  const { rows } = await sql.query<{ xmin: bigint; owners: string[] }>(
    `SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS xmin,
            ARRAY(SELECT o.id FROM unnest($1::text[]) AS o (id)
                   WHERE EXISTS (SELECT 1 FROM events e WHERE e.owner_id = o.id AND e.tx >= $2)) AS owners`,
    [ownerIds, String(sinceTx)],
  );
  const row = rows[0];
  return { owners: row?.owners ?? [], nextTx: row?.xmin ?? sinceTx };
}

/** Where a stream without a past begins, and the first place that cannot exist yet. */
export async function currentPlace(sql: Sql): Promise<{ now: EventPlace; futureTx: bigint }> {
  // SQL: the snapshot itself, which is no table.
  const { rows } = await sql.query<{ xmin: bigint; xmax: bigint }>(
    `SELECT pg_snapshot_xmin(s)::text::bigint AS xmin, pg_snapshot_xmax(s)::text::bigint AS xmax
       FROM pg_current_snapshot() AS s`,
  );
  const { xmin, xmax } = rows[0] ?? { xmin: 0n, xmax: 0n };
  return { now: { tx: xmin - 1n, seq: MAX_SEQ }, futureTx: xmax };
}
const MAX_SEQ = (1n << 63n) - 1n;

export async function deleteOldEvents(db: Db, olderThanHours: number): Promise<number> {
  const before = hoursBefore(await databaseNow(db), olderThanHours);
  const { count } = await db.event.deleteMany({ where: { createdAt: { lt: before } } });
  return count;
}
