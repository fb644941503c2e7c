/**
 * Deletes old rows in small batches, so that no lock is held for long. The ledger, the hashes of what was sent, and all
 * alarms (corrections, differences between ledger and chain) are kept forever. So is the audit: a deleted entry would
 * break its owner's hash chain, and the database refuses to delete one (purser_audit_append_only).
 */
import fp from "fastify-plugin";
import type { Sql } from "./db/pool.ts";
import type { Retention } from "../config.ts";

const BATCH = 500;
const HOURS = 24;
/** Documented as 24 hours; one more day avoids surprises at the boundary. */
const ANSWER_HOURS = 48;
const EVENT_HOURS = 48;
/** Longer than any delivery waits, and long enough to send a notification again. */
const NOTIFICATION_DAYS = 30;
/** Twice the longest window that a limit can have. */
const SUM_DAYS = 60;

interface Rule {
  what: string;
  hours: (days: Retention) => number;
  /** Its parameters are the hours and the batch size. */
  sql: string;
}

/**
 * Idempotency answers. Rows are found by an index and deleted by ctid, without reading other rows. Answers of
 * outstanding payments are kept: an owner's key may belong to a withdrawal of one of its agents, an agent's key to its
 * own payment.
 */
const ANSWERS = `
  DELETE FROM idempotency_keys WHERE ctid = ANY (ARRAY(
    SELECT k.ctid FROM idempotency_keys k
     WHERE k.created_at < now() - make_interval(hours => $1) AND NOT EXISTS (
       SELECT 1 FROM payments p
        WHERE p.id = k.payment_id AND p.outstanding AND p.agent_id IN (
          SELECT a.id FROM agents a WHERE a.id = k.subject_id OR a.owner_id = k.subject_id))
     ORDER BY k.created_at LIMIT $2))`;

const EVENTS = `
  DELETE FROM events WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM events WHERE created_at < now() - make_interval(hours => $1)
     ORDER BY created_at LIMIT $2))`;

const BLOCKED = `
  DELETE FROM payments WHERE status = 'blocked' AND ctid = ANY (ARRAY(
    SELECT ctid FROM payments
     WHERE status = 'blocked' AND created_at < now() - make_interval(hours => $1)
     ORDER BY created_at LIMIT $2))`;

/**
 * Signed bytes and calldata are needed only while the chain may still drop the transaction. Its hash, its fee and its
 * payments are kept.
 */
const BYTES = `
  WITH old AS (
    SELECT chain_id, lane_address, nonce FROM relayer_transactions
     WHERE status <> 'pending' AND calldata <> '' AND finalized_at < now() - make_interval(hours => $1)
     ORDER BY finalized_at LIMIT $2),
  attempts AS (
    UPDATE relayer_attempts a SET raw = '' FROM old
     WHERE a.chain_id = old.chain_id AND a.lane_address = old.lane_address AND a.nonce = old.nonce)
  UPDATE relayer_transactions t SET calldata = '' FROM old
   WHERE t.chain_id = old.chain_id AND t.lane_address = old.lane_address AND t.nonce = old.nonce`;

/**
 * Settlements of other programs' payments (facilitator). The row lets a repeated settlement be recognized. Once the
 * authorization has long expired, the first check refuses every repeat anyway. The all-time totals are kept.
 */
const FACILITATED = `
  WITH gone AS (
    DELETE FROM settlements WHERE kind = 'facilitated' AND ctid = ANY (ARRAY(
      SELECT ctid FROM settlements
       WHERE kind = 'facilitated' AND status IN ('settled', 'failed', 'expired')
         AND created_at < now() - make_interval(hours => $1)
         AND valid_before < extract(epoch FROM now() - interval '1 day')
       ORDER BY created_at LIMIT $2))
    RETURNING from_address, chain_id, asset, nonce, status, value),
  carried AS (
    DELETE FROM settlement_transactions i USING gone
     WHERE i.from_address = gone.from_address AND i.chain_id = gone.chain_id AND i.asset = gone.asset
       AND i.nonce = gone.nonce),
  kept AS (
    INSERT INTO facilitator_past AS past (chain_id, settled, volume)
    SELECT chain_id, count(*), sum(value) FROM gone WHERE status = 'settled' GROUP BY chain_id
    ON CONFLICT (chain_id) DO UPDATE
       SET settled = past.settled + EXCLUDED.settled, volume = past.volume + EXCLUDED.volume)
  SELECT 1 FROM gone`;

const HOURS_OF_REQUESTS = `
  DELETE FROM facilitator_hours WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM facilitator_hours WHERE hour < now() - make_interval(hours => $1)
     ORDER BY hour LIMIT $2))`;

const REFUSALS = `
  DELETE FROM merchant_refusals WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM merchant_refusals WHERE hour < now() - make_interval(hours => $1)
     ORDER BY hour LIMIT $2))`;

/** Their creation and revocation stay in the owner's audit. */
const MERCHANT_KEYS = `
  DELETE FROM merchant_keys WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM merchant_keys WHERE revoked_at < now() - make_interval(hours => $1)
     ORDER BY revoked_at LIMIT $2))`;

/** Only sums that the agent's spending window has already passed. */
const SUMS = `
  DELETE FROM payment_sums WHERE ctid = ANY (ARRAY(
    SELECT s.ctid FROM payment_sums s JOIN agents a ON a.id = s.agent_id
     WHERE s.to_at < now() - make_interval(hours => $1) AND s.to_at < a.window_tail_at
     ORDER BY s.to_at LIMIT $2))`;

/** Payers whose payments may be batched again. */
const OFFENDERS = `
  DELETE FROM lane_offenders WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM lane_offenders WHERE until < now() - make_interval(hours => $1)
     ORDER BY until LIMIT $2))`;

/** Gas accounts of third parties, whose budget is full again. Their use stays counted in the share that paid for it. */
const GAS = `
  DELETE FROM gas_accounts WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM gas_accounts
     WHERE used_on < (now() - make_interval(hours => $1)) AT TIME ZONE 'UTC'
       AND (account LIKE 'cancels:%' OR (held <= 0 AND split_part(account, ':', 1) IN ('payer', 'payee')))
     ORDER BY used_on LIMIT $2))`;

/** The signed approvals stay with the owner's orders. */
const APPROVALS = `
  DELETE FROM approvals WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM approvals
     WHERE state NOT IN ('open', 'granted') AND created_at < now() - make_interval(hours => $1)
     ORDER BY created_at LIMIT $2))`;

/** Kept longer than any call runs. */
const CANCELED = `
  DELETE FROM canceled_calls WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM canceled_calls WHERE created_at < now() - make_interval(hours => $1)
     ORDER BY created_at LIMIT $2))`;

/** With their deliveries, but not while a delivery is still due. */
const NOTIFICATIONS = `
  WITH gone AS (
    DELETE FROM notifications WHERE ctid = ANY (ARRAY(
      SELECT n.ctid FROM notifications n
       WHERE n.created_at < now() - make_interval(hours => $1) AND NOT EXISTS (
         SELECT 1 FROM webhook_deliveries d
          WHERE d.owner_id = n.owner_id AND d.notification_id = n.id AND d.status IN ('waiting', 'failed'))
       ORDER BY n.created_at LIMIT $2))
    RETURNING owner_id, id),
  told AS (
    DELETE FROM webhook_deliveries d USING gone
     WHERE d.owner_id = gone.owner_id AND d.notification_id = gone.id)
  SELECT 1 FROM gone`;

export const RETENTION_RULES: readonly Rule[] = [
  { what: "answers", hours: () => ANSWER_HOURS, sql: ANSWERS },
  { what: "canceled", hours: () => 1, sql: CANCELED },
  { what: "events", hours: () => EVENT_HOURS, sql: EVENTS },
  { what: "blocked", hours: ({ blockedDays }) => blockedDays * HOURS, sql: BLOCKED },
  { what: "approvals", hours: ({ blockedDays }) => blockedDays * HOURS, sql: APPROVALS },
  { what: "bytes", hours: ({ bytesDays }) => bytesDays * HOURS, sql: BYTES },
  { what: "strangers", hours: ({ facilitatedDays }) => facilitatedDays * HOURS, sql: FACILITATED },
  { what: "hours", hours: ({ statisticsDays }) => statisticsDays * HOURS, sql: HOURS_OF_REQUESTS },
  { what: "refusals", hours: ({ statisticsDays }) => statisticsDays * HOURS, sql: REFUSALS },
  { what: "keys", hours: ({ statisticsDays }) => statisticsDays * HOURS, sql: MERCHANT_KEYS },
  { what: "offenders", hours: () => HOURS, sql: OFFENDERS },
  { what: "gas", hours: ({ facilitatedDays }) => facilitatedDays * HOURS, sql: GAS },
  { what: "notifications", hours: () => NOTIFICATION_DAYS * HOURS, sql: NOTIFICATIONS },
  { what: "sums", hours: () => SUM_DAYS * HOURS, sql: SUMS },
];

/** Returns how many rows each rule deleted. */
export async function deleteOldRows(
  sql: Sql,
  days: Retention,
  batch = BATCH,
): Promise<Record<string, number>> {
  const deleted: Record<string, number> = {};
  for (const rule of RETENTION_RULES) {
    let total = 0;
    for (;;) {
      // SQL: deletes in batches, for which Prisma has no LIMIT.
      const { rowCount } = await sql.query(rule.sql, [rule.hours(days), batch]);
      total += rowCount ?? 0;
      if ((rowCount ?? 0) < batch) break;
    }
    if (total > 0) deleted[rule.what] = total;
  }
  return deleted;
}

export default fp(
  async (app) => {
    app.jobs.addTask(
      "forget-old-rows",
      async () =>
        app.log.info(await deleteOldRows(app.pool, app.config.retention), "old rows deleted"),
      { cron: "17 * * * *", atStart: true },
    );
  },
  { name: "retention" },
);
