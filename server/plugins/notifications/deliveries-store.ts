/** Stored webhook deliveries: claiming the next ones, and recording their outcomes. */
import { inTransaction, type Pool, type Sql } from "../../infra/db/pool.ts";
import { delayAfter, DISABLE, restAfter, type Outcome, type WebhookEvent } from "./message.ts";

/** Webhooks that accepted their last delivery, never had one, or failed their last one. */
export type Targets = "trusted" | "new" | "failing";

export interface ClaimRequest {
  /** Owners are served in turn, in the order of their ids. */
  afterOwner: string;
  targets: Targets;
  limit: number;
  perWebhook: number;
  perOwner: number;
  /** The webhooks and owners with deliveries in progress here, once per delivery. */
  busyWebhooks: readonly string[];
  busyOwners: readonly string[];
}

export interface Claimed {
  ownerId: string;
  deliveryId: string;
  webhookId: string;
  /** The number of this claim: a process that lost the claim writes nothing. */
  claims: bigint;
  attempts: number;
  url: string;
  /** Encrypted, the newest first. */
  secrets: Uint8Array[];
  event: WebhookEvent;
}

export interface ClaimedBatch {
  claimed: Claimed[];
  /** The owner served last; "" after the last owner. */
  nextAfter: string;
}

/** Longer than any attempt: after it, the process that claimed the delivery counts as dead. */
export const LEASE_SECONDS = 45;
/** The most owners visited in one statement. */
const OWNERS_AT_ONCE = 200;

/**
 * Visits the owners with waiting deliveries by a skip scan, and takes each one's due deliveries as far as there is
 * room: one index entry per owner, without reading the backlog of others.
 */
const CLAIM = `
  WITH RECURSIVE turn AS (
    (SELECT d.owner_id, 1 AS n FROM webhook_deliveries d
      WHERE d.status IN ('waiting', 'failed') AND d.owner_id > $1 ORDER BY d.owner_id LIMIT 1)
    UNION ALL
    SELECT (SELECT d.owner_id FROM webhook_deliveries d
             WHERE d.status IN ('waiting', 'failed') AND d.owner_id > t.owner_id ORDER BY d.owner_id LIMIT 1), t.n + 1
      FROM turn t WHERE t.owner_id IS NOT NULL AND t.n < $2),
  chosen AS MATERIALIZED (
    SELECT next.owner_id, next.id, next.webhook_id FROM turn t CROSS JOIN LATERAL (
      SELECT due.owner_id, due.id, w.id AS webhook_id
        FROM (SELECT h.id FROM webhooks h
               WHERE h.owner_id = t.owner_id AND h.status = 'active' AND h.retry_at <= clock_timestamp()
                 AND CASE WHEN h.failures > 0 THEN 'failing' WHEN h.delivered_at IS NULL THEN 'new' ELSE 'trusted' END = $3
               ORDER BY random()) AS w
       CROSS JOIN LATERAL (
        SELECT d.owner_id, d.id FROM webhook_deliveries d
         WHERE d.owner_id = t.owner_id AND d.webhook_id = w.id AND d.status IN ('waiting', 'failed')
           AND d.next_attempt_at <= clock_timestamp()
         ORDER BY d.next_attempt_at
         LIMIT greatest($5 - (SELECT count(*) FROM unnest($7::text[]) AS b (id) WHERE b.id = w.id), 0)
           FOR UPDATE SKIP LOCKED) AS due
       LIMIT greatest($6 - (SELECT count(*) FROM unnest($8::text[]) AS b (id) WHERE b.id = t.owner_id), 0)) AS next
     WHERE t.owner_id IS NOT NULL
     LIMIT $4),
  claimed AS (
    UPDATE webhook_deliveries d
       SET attempts = d.attempts + 1, claims = d.claims + 1,
           next_attempt_at = clock_timestamp() + make_interval(secs => $9)
      FROM chosen c
     WHERE d.owner_id = c.owner_id AND d.id = c.id
    RETURNING d.owner_id, d.id, d.webhook_id, d.claims, d.attempts, d.notification_id),
  visited AS (SELECT count(t.owner_id) AS owners, max(t.owner_id) AS last FROM turn t)
  SELECT v.owners, v.last, c.owner_id AS "ownerId", c.id AS "deliveryId", c.webhook_id AS "webhookId", c.claims, c.attempts,
         w.url, w.secret, CASE WHEN w.previous_secret_until > clock_timestamp() THEN w.previous_secret END AS "previousSecret",
         n.id AS "notificationId", n.type, n.data, n.created_at AS "createdAt"
    FROM visited v
    LEFT JOIN claimed c ON TRUE
    LEFT JOIN webhooks w ON w.id = c.webhook_id
    LEFT JOIN notifications n ON n.owner_id = c.owner_id AND n.id = c.notification_id`;

interface ClaimRow {
  owners: bigint;
  last: string | null;
  ownerId: string | null;
  deliveryId: string;
  webhookId: string;
  claims: bigint;
  attempts: number;
  url: string;
  secret: Uint8Array;
  previousSecret: Uint8Array | null;
  notificationId: string;
  type: string;
  data: unknown;
  createdAt: Date;
}

export async function claimDue(sql: Sql, request: ClaimRequest): Promise<ClaimedBatch> {
  const { afterOwner, targets, limit, perWebhook, perOwner } = request;
  // SQL: a skip scan, locks with SKIP LOCKED, and the claim, in one statement.
  const { rows } = await sql.query<ClaimRow>(CLAIM, [
    afterOwner,
    OWNERS_AT_ONCE,
    targets,
    limit,
    perWebhook,
    perOwner,
    request.busyWebhooks,
    request.busyOwners,
    LEASE_SECONDS,
  ]);
  const claimed = rows.flatMap((row) => (row.ownerId === null ? [] : [toClaimed(row)]));
  const [{ owners, last } = { owners: 0n, last: null }] = rows;
  // No place is left: the next round starts after the owner served last.
  if (claimed.length >= limit)
    return {
      claimed,
      nextAfter:
        claimed
          .map(({ ownerId }) => ownerId)
          .sort()
          .at(-1) ?? "",
    };
  return { claimed, nextAfter: Number(owners) < OWNERS_AT_ONCE ? "" : (last ?? "") };
}

function toClaimed(row: ClaimRow): Claimed {
  const { ownerId, deliveryId, webhookId, claims, attempts, url, secret, previousSecret } = row;
  return {
    ownerId: ownerId ?? "",
    deliveryId,
    webhookId,
    claims,
    attempts,
    url,
    secrets: previousSecret === null ? [secret] : [secret, previousSecret],
    event: { id: row.notificationId, type: row.type, data: row.data, createdAt: row.createdAt },
  };
}

/**
 * Whether any delivery is due. The newest first, because those are not the backlog of a resting target. Only a limited
 * number is read; deliveries behind them wait for the next minute's round.
 */
export async function isAnyDue(sql: Sql): Promise<boolean> {
  // SQL: the database's clock; read twice a second by each replica.
  const { rows } = await sql.query<{ due: boolean }>(
    `SELECT EXISTS (
       SELECT 1 FROM (SELECT d.webhook_id FROM webhook_deliveries d
                       WHERE d.status IN ('waiting', 'failed') AND d.next_attempt_at <= clock_timestamp()
                       ORDER BY d.next_attempt_at DESC LIMIT 200) AS newest
         JOIN webhooks w ON w.id = newest.webhook_id AND w.status = 'active' AND w.retry_at <= clock_timestamp()) AS due`,
  );
  return rows[0]?.due ?? false;
}

/** How many deliveries wait, and for how many seconds the oldest has been due. */
export async function readBacklog(sql: Sql): Promise<{ waiting: number; oldestSeconds: number }> {
  // SQL: an age by the database's clock.
  const { rows } = await sql.query<{ waiting: bigint; oldest: number }>(
    `SELECT count(*) AS waiting,
            coalesce(extract(epoch FROM clock_timestamp() - min(d.created_at)), 0)::float AS oldest
       FROM webhook_deliveries d JOIN webhooks w ON w.id = d.webhook_id AND w.status = 'active'
      WHERE d.status IN ('waiting', 'failed')`,
  );
  return { waiting: Number(rows[0]?.waiting ?? 0), oldestSeconds: rows[0]?.oldest ?? 0 };
}

/** Records the outcome of an attempt, unless another process has claimed the delivery meanwhile. */
export async function finishAttempt(
  pool: Pool,
  claimed: Claimed,
  outcome: Outcome,
): Promise<"delivered" | "failed" | "given_up"> {
  return outcome.kind === "delivered"
    ? writeDelivered(pool, claimed, outcome.status)
    : inTransaction(pool, (sql) => writeFailed(sql, claimed, outcome));
}

const OF_CLAIM = "owner_id = $1 AND id = $2 AND claims = $3 AND status IN ('waiting', 'failed')";
const keyOf = ({ ownerId, deliveryId, claims }: Claimed) => [ownerId, deliveryId, claims];

async function writeDelivered(sql: Sql, claimed: Claimed, status: number): Promise<"delivered"> {
  // SQL: two tables at once; the webhook's row only if it changes.
  await sql.query(
    `WITH done AS (
       UPDATE webhook_deliveries
          SET status = 'delivered', last_status = $4, last_error = NULL, delivered_at = clock_timestamp()
        WHERE ${OF_CLAIM})
     UPDATE webhooks
        SET failures = 0, failing_since = NULL, retry_at = '-infinity', delivered_at = clock_timestamp()
      WHERE id = $5 AND url = $6 AND (failures > 0 OR delivered_at IS NULL OR delivered_at < now() - interval '1 minute')`,
    [...keyOf(claimed), status, claimed.webhookId, claimed.url],
  );
  return "delivered";
}

async function writeFailed(
  sql: Sql,
  claimed: Claimed,
  { status, error, isGone }: Outcome & { kind: "failed" },
): Promise<"failed" | "given_up"> {
  const delaySeconds = isGone ? undefined : delayAfter(claimed.attempts);
  // SQL: a lock. The webhook first, because disabling it locks all its deliveries.
  await sql.query("SELECT 1 FROM webhooks WHERE id = $1 FOR NO KEY UPDATE", [claimed.webhookId]);
  // SQL: by the claim, and by the database's clock.
  const { rowCount } = await sql.query(
    `UPDATE webhook_deliveries
        SET status = CASE WHEN $6::float IS NULL THEN 'given_up' ELSE 'failed' END, last_status = $4,
            last_error = left($5, 500),
            next_attempt_at = clock_timestamp() + make_interval(secs => coalesce($6::float, 0))
      WHERE ${OF_CLAIM}`,
    [...keyOf(claimed), status, error, delaySeconds ?? null],
  );
  // SQL: increments in place, because several attempts may fail at once.
  const { rows } = await sql.query<{ failures: number; isDead: boolean }>(
    `UPDATE webhooks
        SET failures = failures + 1, failing_since = coalesce(failing_since, clock_timestamp())
      WHERE id = $1 AND url = $2 AND status = 'active'
      RETURNING failures,
                failures >= $3 AND failing_since <= clock_timestamp() - make_interval(hours => $4) AS "isDead"`,
    [claimed.webhookId, claimed.url, DISABLE.failures, DISABLE.hours],
  );
  const [row] = rows;
  if (row && (row.isDead || isGone))
    await disable(
      sql,
      claimed,
      isGone ? "The server returned 410 Gone" : `Deliveries failed for a day: ${error}`,
    );
  else if (row)
    // SQL: the database's clock.
    await sql.query(
      "UPDATE webhooks SET retry_at = clock_timestamp() + make_interval(secs => $2) WHERE id = $1",
      [claimed.webhookId, restAfter(row.failures)],
    );
  return rowCount === 1 && delaySeconds !== undefined ? "failed" : "given_up";
}

/** Its owner is notified through the other channels. */
async function disable(sql: Sql, { webhookId, ownerId }: Claimed, reason: string): Promise<void> {
  // SQL: the webhook's status, its open deliveries and the notification in one transaction.
  await sql.query(
    `UPDATE webhooks SET status = 'disabled', disabled_reason = left($2, 300) WHERE id = $1`,
    [webhookId, reason],
  );
  // SQL: in that transaction.
  await sql.query(
    `UPDATE webhook_deliveries SET status = 'given_up', last_error = coalesce(last_error, 'The webhook was disabled')
      WHERE owner_id = $1 AND webhook_id = $2 AND status IN ('waiting', 'failed')`,
    [ownerId, webhookId],
  );
  // SQL: a function, and the audit entry of an action without an actor.
  await sql.query(
    `WITH noted AS (
       INSERT INTO audit_notes (owner_id, actor, action, after)
       VALUES ($1, '0x0000000000000000000000000000000000000000', 'webhook.disabled',
         jsonb_build_object('webhookId', $2::text, 'reason', $3::text)))
     SELECT purser_notify($1, 'webhook.disabled', NULL, $2,
       jsonb_build_object('webhookId', $2::text, 'reason', $3::text,
         'thirdParty', (SELECT jsonb_build_object('url', w.url, 'description', w.description) FROM webhooks w WHERE w.id = $2)))`,
    [ownerId, webhookId, reason],
  );
}

const SWEEP = 500;
/** The time limit of one run: the queue has other work, and the next run continues. */
const SWEEP_DELETED_MS = 10_000;

/** Deletes removed webhooks with their deliveries in batches, so that no lock is held for long. */
export async function sweepDeleted(
  sql: Sql,
  endMs = performance.now() + SWEEP_DELETED_MS,
): Promise<void> {
  // SQL: a partial index with only these webhooks.
  const { rows } = await sql.query<{ id: string }>(
    "SELECT id FROM webhooks WHERE status = 'deleted' ORDER BY id LIMIT 1000",
  );
  for (const { id } of rows) {
    for (let count: number | null = SWEEP; count === SWEEP;) {
      if (performance.now() > endMs) return;
      // SQL: a batch; rows that another run has locked are left to it.
      ({ rowCount: count } = await sql.query(
        `DELETE FROM webhook_deliveries WHERE ctid = ANY (ARRAY(
           SELECT ctid FROM webhook_deliveries WHERE webhook_id = $1 LIMIT $2 FOR UPDATE SKIP LOCKED))`,
        [id, SWEEP],
      ));
    }
    // SQL: only if it has no deliveries: a concurrent notification, or another run, may still have some.
    await sql.query(
      `DELETE FROM webhooks w WHERE w.id = $1
          AND NOT EXISTS (SELECT 1 FROM webhook_deliveries d WHERE d.webhook_id = w.id)`,
      [id],
    );
  }
}

/**
 * Gives up deliveries that could not be sent within a day (the target rested, or was paused), and deletes old secrets.
 */
export async function sweep(sql: Sql): Promise<void> {
  for (let count: number | null = SWEEP; count === SWEEP;)
    // SQL: a batch, by the database's clock. One more hour, because an attempt may be in progress.
    ({ rowCount: count } = await sql.query(
      `UPDATE webhook_deliveries SET status = 'given_up', last_error = coalesce(last_error, 'It could not be sent in time')
        WHERE ctid = ANY (ARRAY(
          SELECT ctid FROM webhook_deliveries
           WHERE status IN ('waiting', 'failed') AND next_attempt_at < now() AND give_up_at < now() - interval '1 hour'
           ORDER BY next_attempt_at LIMIT $1))`,
      [SWEEP],
    ));
  // SQL: the database's clock.
  await sql.query(
    `UPDATE webhooks SET previous_secret = NULL, previous_secret_until = NULL
      WHERE previous_secret_until < now() - interval '1 minute'`,
  );
}
