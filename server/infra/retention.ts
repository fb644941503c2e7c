/**
 * What grows is forgotten in time: each rule deletes what nobody can need any more, a small batch at a time,
 * so that no lock is held for long. The ledger, the hashes of what was sent, and whatever was an alarm (corrections,
 * differences between ledger and chain) are kept for ever. So is the audit, which no rule could shorten: an entry that
 * went would break its owner's chain, and the database refuses to delete one (purser_audit_append_only).
 */
import fp from "fastify-plugin";
import type { Sql } from "./db/pool.ts";
import type { Retention } from "../config.ts";

const BATCH = 500;
const HOURS = 24;
/** Promised for 24 hours; a day more lets nobody be surprised by a boundary. */
const ANSWER_HOURS = 48;
const EVENT_HOURS = 48;
/** Longer than anything waits to be told, and long enough to have it sent again. */
const NOTIFICATION_DAYS = 30;
/** Twice the longest window a limit could have. */
const SUM_DAYS = 60;

interface Rule {
  what: string;
  hours: (days: Retention) => number;
  /** Takes the hours and the size of a batch. */
  sql: string;
}

/**
 * A batch by the places of its rows: found by an index, and deleted without a look at any other row. An
 * owner's key names a withdrawal of one of its agents, an agent's key its own payment.
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

/** Its hash, its fee and what it carried stay; the bytes can be of use only while a chain may lose them. */
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
 * A row answers repeats of its payment as such. Once the authorization has long run out, no repeat passes
 * the first check, with a row or without one. The totals of all time keep it.
 */
const STRANGERS = `
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

/** That it was made and revoked stays in its owner's audit. */
const MERCHANT_KEYS = `
  DELETE FROM merchant_keys WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM merchant_keys WHERE revoked_at < now() - make_interval(hours => $1)
     ORDER BY revoked_at LIMIT $2))`;

/** None that a window still has before it. */
const SUMS = `
  DELETE FROM payment_sums WHERE ctid = ANY (ARRAY(
    SELECT s.ctid FROM payment_sums s JOIN agents a ON a.id = s.agent_id
     WHERE s.to_at < now() - make_interval(hours => $1) AND s.to_at < a.window_tail_at
     ORDER BY s.to_at LIMIT $2))`;

/** Payers who are trusted in company again. */
const OFFENDERS = `
  DELETE FROM lane_offenders WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM lane_offenders WHERE until < now() - make_interval(hours => $1)
     ORDER BY until LIMIT $2))`;

/** Strangers' gas accounts, long full again. What they used stays in the share that paid for it. */
const GAS = `
  DELETE FROM gas_accounts WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM gas_accounts
     WHERE used_on < (now() - make_interval(hours => $1)) AT TIME ZONE 'UTC'
       AND (account LIKE 'cancels:%' OR (held <= 0 AND split_part(account, ':', 1) IN ('payer', 'payee')))
     ORDER BY used_on LIMIT $2))`;

/** What was signed is kept with the owner's orders. */
const APPROVALS = `
  DELETE FROM approvals WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM approvals
     WHERE state NOT IN ('open', 'granted') AND created_at < now() - make_interval(hours => $1)
     ORDER BY created_at LIMIT $2))`;

/** Longer than any call runs. */
const CANCELED = `
  DELETE FROM canceled_calls WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM canceled_calls WHERE created_at < now() - make_interval(hours => $1)
     ORDER BY created_at LIMIT $2))`;

/** With their deliveries; not what is still to be told. */
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

export const RULES: readonly Rule[] = [
  { what: "answers", hours: () => ANSWER_HOURS, sql: ANSWERS },
  { what: "canceled", hours: () => 1, sql: CANCELED },
  { what: "events", hours: () => EVENT_HOURS, sql: EVENTS },
  { what: "blocked", hours: ({ blockedDays }) => blockedDays * HOURS, sql: BLOCKED },
  { what: "approvals", hours: ({ blockedDays }) => blockedDays * HOURS, sql: APPROVALS },
  { what: "bytes", hours: ({ bytesDays }) => bytesDays * HOURS, sql: BYTES },
  { what: "strangers", hours: ({ facilitatedDays }) => facilitatedDays * HOURS, sql: STRANGERS },
  { what: "hours", hours: ({ statisticsDays }) => statisticsDays * HOURS, sql: HOURS_OF_REQUESTS },
  { what: "refusals", hours: ({ statisticsDays }) => statisticsDays * HOURS, sql: REFUSALS },
  { what: "keys", hours: ({ statisticsDays }) => statisticsDays * HOURS, sql: MERCHANT_KEYS },
  { what: "offenders", hours: () => HOURS, sql: OFFENDERS },
  { what: "gas", hours: ({ facilitatedDays }) => facilitatedDays * HOURS, sql: GAS },
  { what: "notifications", hours: () => NOTIFICATION_DAYS * HOURS, sql: NOTIFICATIONS },
  { what: "sums", hours: () => SUM_DAYS * HOURS, sql: SUMS },
];

/** Answers how many rows each rule took. */
export async function forgetOldRows(
  sql: Sql,
  days: Retention,
  batch = BATCH,
): Promise<Record<string, number>> {
  const forgotten: Record<string, number> = {};
  for (const rule of RULES) {
    let total = 0;
    for (;;) {
      // SQL: deletes by batches, for which Prisma has no LIMIT.
      const { rowCount } = await sql.query(rule.sql, [rule.hours(days), batch]);
      total += rowCount ?? 0;
      if ((rowCount ?? 0) < batch) break;
    }
    if (total > 0) forgotten[rule.what] = total;
  }
  return forgotten;
}

export default fp(
  async (app) => {
    app.jobs.addTask(
      "forget-old-rows",
      async () =>
        app.log.info(await forgetOldRows(app.pool, app.config.retention), "old rows deleted"),
      { cron: "17 * * * *", atStart: true },
    );
  },
  { name: "retention" },
);
