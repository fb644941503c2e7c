/**
 * What is deleted, and when: one table for all modules. The ledger, the hashes of what was sent, and all alarms
 * (corrections, differences between ledger and chain) are kept forever. So is the audit: a deleted entry would break its
 * owner's hash chain, and the database refuses to delete one (purser_audit_append_only).
 */
import type { FastifyInstance } from "fastify";
import fp from "fastify-plugin";
import type { Retention } from "../config.ts";
import { IS_PAYMENT } from "./db/payments-only.ts";
import { createPool, surviveLostConnections, TIMEOUTS, type Pool, type Sql } from "./db/pool.ts";
import {
  countOutsideRanges,
  EVENT_HOURS,
  keepEventPartitions,
  partitionsInUse,
} from "./event-partitions.ts";
import { registerGauges } from "./telemetry.ts";

/** In small batches, so that no lock is held for long. */
const BATCH = 500;
const DAY = 24;
/** One more day than documented for answers avoids surprises at the boundary. */
const ANSWER_HOURS = 48;

interface Rule {
  what: string;
  hours: number;
  /** Its parameters are the hours and the batch size. */
  sql: string;
}

/**
 * Deletes rows by the age of `at`, and only those that match `only`. Large tables have an index on `at`. The rows that
 * were found are deleted by ctid, without another search; one that changes at that very moment may be deleted as well.
 */
const rowsOf = (table: string, at: string, only = "true"): string => `
  DELETE FROM ${table} WHERE ctid = ANY (ARRAY(
    SELECT r.ctid FROM ${table} r
     WHERE ${at} < now() - make_interval(hours => $1) AND (${only})
     ORDER BY ${at} LIMIT $2))`;

/** An owner's key may belong to a withdrawal of one of its agents, an agent's key to its own payment. */
const OF_NO_OPEN_PAYMENT = `NOT EXISTS (
  SELECT 1 FROM payments p
   WHERE p.id = r.payment_id AND p.outstanding AND p.agent_id IN (
     SELECT a.id FROM agents a WHERE a.id = r.subject_id OR a.owner_id = r.subject_id))`;

/** The hash, the fee and the payments of the transaction are kept. */
const SIGNED_BYTES = `
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
 * The all-time totals are kept. A claim, settle or refund of channels never expires: the contract's state refuses or
 * answers every repeat.
 */
const FACILITATED = `
  WITH gone AS (
    DELETE FROM settlements WHERE kind = 'facilitated' AND ctid = ANY (ARRAY(
      SELECT ctid FROM settlements
       WHERE kind = 'facilitated' AND status IN ('settled', 'failed', 'expired')
         AND created_at < now() - make_interval(hours => $1)
         AND (valid_before < extract(epoch FROM now() - interval '1 day') OR NOT ${IS_PAYMENT})
       ORDER BY created_at LIMIT $2))
    RETURNING from_address, chain_id, asset, nonce, id, status, value, terms),
  receipts AS (
    DELETE FROM merchant_receipts r USING gone WHERE r.settlement_id = gone.id),
  carried AS (
    DELETE FROM settlement_transactions i USING gone
     WHERE i.from_address = gone.from_address AND i.chain_id = gone.chain_id AND i.asset = gone.asset
       AND i.nonce = gone.nonce),
  kept AS (
    INSERT INTO facilitator_past AS past (chain_id, settled, volume)
    SELECT chain_id, count(*), sum(value) FROM gone WHERE status = 'settled' AND ${IS_PAYMENT} GROUP BY chain_id
    ON CONFLICT (chain_id) DO UPDATE
       SET settled = past.settled + EXCLUDED.settled, volume = past.volume + EXCLUDED.volume)
  SELECT 1 FROM gone`;

/** `used_on` is a date in UTC. */
const GAS_ACCOUNTS = `
  DELETE FROM gas_accounts WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM gas_accounts
     WHERE used_on < (now() - make_interval(hours => $1)) AT TIME ZONE 'UTC'
       AND (account LIKE 'cancels:%' OR (held <= 0 AND split_part(account, ':', 1) IN ('payer', 'payee')))
     ORDER BY used_on LIMIT $2))`;

/** The last payment of each payee stays: of one that is paid in other cells nothing else shows that it is a merchant. */
const NOTIFICATIONS = `
  WITH gone AS (
    DELETE FROM notifications WHERE ctid = ANY (ARRAY(
      SELECT n.ctid FROM notifications n
       WHERE n.created_at < now() - make_interval(hours => $1) AND NOT EXISTS (
         SELECT 1 FROM webhook_deliveries d
          WHERE d.owner_id = n.owner_id AND d.notification_id = n.id AND d.status IN ('waiting', 'failed'))
         AND (n.type <> 'settlement.settled' OR EXISTS (
           SELECT 1 FROM notifications later
            WHERE later.owner_id = n.owner_id AND later.type = n.type
              AND (later.created_at, later.id) > (n.created_at, n.id)))
       ORDER BY n.created_at LIMIT $2))
    RETURNING owner_id, id),
  notified AS (
    DELETE FROM webhook_deliveries d USING gone
     WHERE d.owner_id = gone.owner_id AND d.notification_id = gone.id)
  SELECT 1 FROM gone`;

const rulesFor = (days: Retention): readonly Rule[] => [
  // Payments. The answer to an open payment's key is kept, so that a repeat cannot pay twice.
  {
    what: "answers",
    hours: ANSWER_HOURS,
    sql: rowsOf("idempotency_keys", "created_at", OF_NO_OPEN_PAYMENT),
  },
  // Kept longer than any call runs.
  { what: "canceled", hours: 1, sql: rowsOf("canceled_calls", "created_at") },
  {
    what: "blocked",
    hours: days.blockedDays * DAY,
    sql: rowsOf("payments", "created_at", "denial_code IS NOT NULL AND status = 'blocked'"),
  },
  // The signed approvals stay with the owner's orders.
  {
    what: "approvals",
    hours: days.blockedDays * DAY,
    sql: rowsOf("approvals", "created_at", "state NOT IN ('open', 'granted')"),
  },
  // Only sums that the agent's spending window has already passed. Twice the longest window that a limit can have.
  {
    what: "sums",
    hours: 60 * DAY,
    sql: rowsOf(
      "payment_sums",
      "to_at",
      "(EXISTS (SELECT 1 FROM agents a WHERE a.id = r.agent_id AND r.to_at < a.window_tail_at) OR EXISTS (SELECT 1 FROM budgets b WHERE b.id = r.agent_id))",
    ),
  },
  // Tasks that never paid. Those that did are kept as long as their payments.
  { what: "unusedTasks", hours: 3 * DAY, sql: rowsOf("tasks", "ended_at", "used_at IS NULL") },
  // Later than the sums of the same time.
  { what: "budgetPayments", hours: 62 * DAY, sql: rowsOf("budget_payments", "at") },

  // Settlement. Signed bytes are needed only while the chain may still drop the transaction.
  { what: "bytes", hours: days.bytesDays * DAY, sql: SIGNED_BYTES },
  // Settlements of other programs' payments. The row lets a repeated settlement be recognized; once the authorization
  // has long expired, the first check refuses every repeat anyway.
  { what: "thirdParties", hours: days.facilitatedDays * DAY, sql: FACILITATED },
  // Payers whose payments may be batched again.
  { what: "offenders", hours: DAY, sql: rowsOf("lane_offenders", "until") },
  // Gas accounts of third parties, whose budget is full again. Their use stays counted in the share that paid for it.
  { what: "gas", hours: days.facilitatedDays * DAY, sql: GAS_ACCOUNTS },

  // Sellers.
  { what: "hours", hours: days.statisticsDays * DAY, sql: rowsOf("facilitator_hours", "hour") },
  { what: "refusals", hours: days.statisticsDays * DAY, sql: rowsOf("merchant_refusals", "hour") },
  {
    what: "refusals",
    hours: days.statisticsDays * DAY,
    sql: rowsOf("merchant_product_refusals", "day"),
  },
  // Their creation and revocation stay in the owner's audit.
  { what: "keys", hours: days.statisticsDays * DAY, sql: rowsOf("merchant_keys", "revoked_at") },
  // Of devices that could not be reached within a day.
  { what: "pushes", hours: DAY, sql: rowsOf("push_waiting", "due_at") },
  { what: "paywallNotes", hours: 0, sql: rowsOf("paywall_notes", "until") },
  // Nominations count for a day; after that a refused URL may be announced again.
  {
    what: "nominations",
    hours: DAY,
    sql: rowsOf("nominations", "created_at", "status <> 'waiting'"),
  },
  { what: "nominations", hours: 3 * DAY, sql: rowsOf("nominations", "created_at") },

  // Fetches, for longer than bills are disputed. Cached answers, for the longest `maxAge`.
  { what: "fetches", hours: 90 * DAY, sql: rowsOf("fetches", "created_at") },
  { what: "cachedAnswers", hours: DAY, sql: rowsOf("cached_answers", "created_at") },

  // Notifications, with their deliveries, but not while a delivery is still due. Longer than any delivery waits, and long
  // enough to send a notification again.
  { what: "notifications", hours: 30 * DAY, sql: NOTIFICATIONS },
  { what: "mails", hours: 30 * DAY, sql: rowsOf("mails", "created_at") },
  { what: "mailTokens", hours: 0, sql: rowsOf("mail_tokens", "expires_at") },
  { what: "waitingForMail", hours: 8 * DAY, sql: rowsOf("mail_waiting", "created_at") },

  // What other cells read. A cell that was taken out of the list does not ask any more.
  { what: "cells", hours: DAY, sql: rowsOf("cell_news", "greatest(next_read_at, read_at)") },
  {
    what: "notices",
    hours: 1,
    sql: rowsOf("cell_notices", "created_at", "r.tx < ALL (SELECT their_tx FROM cell_news)"),
  },
  { what: "notices", hours: 3 * DAY, sql: rowsOf("cell_notices", "created_at") },

  // Owners. Orders that were prepared and not signed in time; signed ones are evidence and are kept.
  {
    what: "preparedOrders",
    hours: 1,
    sql: rowsOf("owner_orders", "to_timestamp(deadline)", "used_at IS NULL"),
  },
  { what: "waitingOrders", hours: 1, sql: rowsOf("waiting_orders", "expires_at") },
  { what: "nonces", hours: 1, sql: rowsOf("auth_nonces", "expires_at") },
  // A week for the owner's list of sessions.
  { what: "sessions", hours: 7 * DAY, sql: rowsOf("sessions", "least(expires_at, revoked_at)") },
  // Processes that ended without a word.
  { what: "processes", hours: 1, sql: rowsOf("processes", "seen_at") },
  // Without a row a bucket counts as full.
  { what: "rateBuckets", hours: 0, sql: rowsOf("rate_buckets", "kept_until") },

  // Programs that connect over OAuth: those that nobody has connected for a week, and those unused for long.
  {
    what: "programs",
    hours: 7 * DAY,
    sql: rowsOf("oauth_clients", "created_at", "used_at IS NULL"),
  },
  { what: "programs", hours: 400 * DAY, sql: rowsOf("oauth_clients", "used_at") },
  { what: "oauthRequests", hours: DAY, sql: rowsOf("oauth_requests", "created_at") },
  // Used refresh tokens are kept until their expiry: if one is used again, it was stolen.
  { what: "oauthTokens", hours: 0, sql: rowsOf("oauth_tokens", "expires_at") },
];

/** Returns how many rows were deleted of each kind. */
export async function deleteOldRows(
  sql: Sql,
  days: Retention,
  batch = BATCH,
): Promise<Record<string, number>> {
  const deleted: Record<string, number> = {};
  const failures: unknown[] = [];
  // A place in a partitioned table names a row of every partition, so each one is a table of its own here.
  const events = (await partitionsInUse(sql)).map((table) => ({
    what: "events",
    hours: EVENT_HOURS,
    sql: rowsOf(table, "created_at"),
  }));
  for (const { what, hours, sql: text } of [...rulesFor(days), ...events])
    try {
      for (let count = batch; count === batch;) {
        // SQL: deletes in batches by index, which Prisma cannot express.
        count = (await sql.query(text, [hours, batch])).rowCount ?? 0;
        if (count > 0) deleted[what] = (deleted[what] ?? 0) + count;
      }
    } catch (error) {
      // The other tables are cleaned nevertheless.
      failures.push(error);
    }
  if (failures.length > 0)
    throw new AggregateError(failures, `old rows were not deleted: ${failures.join("; ")}`);
  return deleted;
}

/** Tasks of releases before the table. A run that was planned before the upgrade would wait in the queue for ever. */
const FORMER_TASKS = [
  "forget-fetches",
  "forget-oauth",
  "forget-paywall-notes",
  "forget-prepared-orders",
  "forget-rate-buckets",
  "forget-sign-ins",
];

/** A pool without time limits: checking a constraint reads all rows of a table. */
async function withPatience<T>(
  { config, log }: FastifyInstance,
  work: (pool: Pool) => Promise<T>,
): Promise<T> {
  const pool = createPool(config.databaseUrl ?? "", {
    maxConnections: 1,
    timeouts: TIMEOUTS.none,
    applicationName: "purser partitions",
  });
  surviveLostConnections(pool, (err) => log.warn({ err }, "database connection lost"));
  try {
    return await work(pool);
  } finally {
    await pool.end();
  }
}

export default fp(
  async (app) => {
    app.jobs.addTask(
      "forget-old-rows",
      async () =>
        app.log.info(await deleteOldRows(app.pool, app.config.retention), "old rows deleted"),
      { cron: "17 * * * *", atStart: true },
    );
    app.jobs.addTask(
      "keep-event-partitions",
      async () => {
        const changed = await withPatience(app, (pool) => keepEventPartitions(pool));
        if (changed.made.length + changed.dropped.length > 0)
          app.log.info(changed, "partitions of events");
      },
      { cron: "47 * * * *", atStart: true },
    );
    registerGauges(app.metrics, {
      labelNames: [],
      rows: async () => [{ labels: {}, count: await countOutsideRanges(app.pool) }],
      gauges: {
        purser_events_outside_partitions: [
          "Live events in no range of transactions, up to a thousand: the job that makes the ranges did not run",
          ({ count }) => count,
        ],
      },
    });
    for (const task of FORMER_TASKS) app.jobs.addTask(task, async () => undefined);
  },
  { name: "retention" },
);
