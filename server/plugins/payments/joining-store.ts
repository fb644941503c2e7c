/**
 * Stored state of calls without an Idempotency-Key: which can be joined, which were delivered, and which were
 * canceled.
 */
import { Coalescer } from "../../core/shared-answers.ts";
import type { Sql } from "../../infra/db/pool.ts";
import type { IdempotencyRef } from "../guardrails/types.ts";
import type { EarlierCall, JoiningStore } from "./joining.ts";

export async function findEarlier(sql: Sql, ref: IdempotencyRef): Promise<EarlierCall | undefined> {
  // SQL: the first query of every call that pays without a key; prepared.
  const { rows } = await sql.query<EarlierCall>({
    name: "joinable-call",
    text: `SELECT j.key, (extract(epoch FROM statement_timestamp() - j.told_at) * 1000)::float8 AS "deliveredAgoMs",
                  NOT p.outstanding AND GREATEST(j.updated_at, p.settled_at) > statement_timestamp() - interval '2 seconds'
                    AS "isFresh"
             FROM purser_joinable($1, $2, $3) j JOIN payments p ON p.agent_id = $1 AND p.id = j.payment_id`,
    values: [ref.subjectId, ref.route, Buffer.from(ref.bodyHash)],
  });
  return rows[0];
}

const GROUPS = { maxBatch: 64, maxInFlight: 2 };

/**
 * Marks responses as delivered, grouped when several are delivered at once. A row that is locked is being
 * marked already and is skipped.
 */
export function markDelivered(sql: Sql): JoiningStore["markDelivered"] {
  const groups = new Coalescer<Parameters<JoiningStore["markDelivered"]>[0], void>(
    async (delivered) => {
      // SQL: with every response to a call without a key, in groups.
      await sql.query({
        name: "calls-delivered",
        text: `UPDATE idempotency_keys k SET told_at = statement_timestamp() - make_interval(secs => free.ago / 1000)
               FROM (SELECT o.subject_id, o.route, o.key, w.ago FROM idempotency_keys o
                       JOIN unnest($1::text[], $2::text[], $3::text[], $4::float8[]) AS w (subject_id, route, key, ago)
                      USING (subject_id, route, key)
                      WHERE o.implicit AND o.told_at IS NULL FOR UPDATE OF o SKIP LOCKED) AS free
              WHERE k.subject_id = free.subject_id AND k.route = free.route AND k.key = free.key`,
        values: [
          delivered.map(({ ref }) => ref.subjectId),
          delivered.map(({ ref }) => ref.route),
          delivered.map(({ key }) => key),
          delivered.map(({ atMs }) => performance.now() - atMs),
        ],
      });
      return delivered.map(() => undefined);
    },
    GROUPS,
  );
  return async (delivered) => {
    const { ref, key, atMs } = delivered;
    if (ref.call === undefined) return groups.fetch(delivered);
    // SQL: serialized with a cancellation that arrives at the same moment.
    await sql.query("SELECT purser_call_told($1, $2, $3, $4, $5)", [
      ref.subjectId,
      ref.route,
      key,
      ref.call,
      performance.now() - atMs,
    ]);
  };
}

/** Stops the call unless it is signed, in whichever process it runs, and removes its delivery mark. */
export async function cancelCall(sql: Sql, agentId: string, call: string): Promise<void> {
  // SQL: one function under the agent's lock.
  await sql.query("SELECT purser_cancel_call($1, $2)", [agentId, call]);
}

/** The total size of stored responses that are kept only so that an identical call can join them. */
export async function undeliveredBytes(
  sql: Sql,
  agentId: string,
): Promise<{ bytes: number; releaseInSeconds: number }> {
  // SQL: the size of what is stored, without reading it.
  const { rows } = await sql.query<{ bytes: number; releaseInSeconds: number }>(
    `SELECT COALESCE(sum(pg_column_size(response)), 0)::float8 AS bytes,
            GREATEST(60, COALESCE(ceil(660 - extract(epoch FROM now() - min(updated_at))), 0))::int AS "releaseInSeconds"
       FROM idempotency_keys
      WHERE subject_id = $1 AND implicit AND call IS NULL AND told_call IS NULL AND response IS NOT NULL`,
    [agentId],
  );
  return rows[0] ?? { bytes: 0, releaseInSeconds: 60 };
}

const FORGET_BATCH = 500;
/**
 * The condition is checked again on the row to update, found by its key, because it may have been marked
 * meanwhile.
 */
const isOver = (row: "k" | "o"): string =>
  `${row}.implicit AND ${row}.call IS NULL AND ${row}.told_call IS NULL AND ${row}.response IS NOT NULL
     AND ${row}.updated_at < now() - interval '11 minutes'`;

/**
 * Deletes responses of calls without a key once no call can join them. One that was ready before it was
 * delivered may be requested minutes later.
 * A response delivered to an MCP client can be fetched again by its key, like any other, so it stays.
 */
export async function forgetDelivered(sql: Sql): Promise<void> {
  for (;;) {
    // SQL: updates in batches, which Prisma cannot do.
    const { rowCount } = await sql.query(
      `UPDATE idempotency_keys k SET response = NULL
         FROM (SELECT o.subject_id, o.route, o.key FROM idempotency_keys o
                WHERE ${isOver("o")}
                  AND NOT EXISTS (SELECT 1 FROM payments p WHERE p.agent_id = o.subject_id AND p.id = o.payment_id
                                   AND (p.outstanding OR p.settled_at > now() - interval '11 minutes'))
                LIMIT $1) AS over
        WHERE k.subject_id = over.subject_id AND k.route = over.route AND k.key = over.key AND ${isOver("k")}`,
      [FORGET_BATCH],
    );
    if ((rowCount ?? 0) < FORGET_BATCH) return;
  }
}
