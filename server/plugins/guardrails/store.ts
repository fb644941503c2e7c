/** The guardrails' SQL functions, called. What they decide is written in prisma/functions. */
import { toJsonb } from "../../core/foreign-text.ts";
import { Coalescer } from "../../core/shared-answers.ts";
import { RESERVATION_GONE, sqlState, type Sql } from "../../infra/db/pool.ts";
import { remainingOf } from "./explain.ts";
import { readFacts } from "./rules/index.ts";
import type { Limits, ReserveRequest, Snapshot } from "./types.ts";

export type ReservationOutcome =
  | "reserved"
  | "blocked"
  | "allowed"
  | "denied"
  | "replay"
  | "running"
  | "key_reused"
  | "unauthorized"
  | "clock_apart"
  | "not_found";

export interface ReservationRow {
  outcome: ReservationOutcome;
  code: string | null;
  paymentId: string | null;
  validBefore: bigint | null;
  /** The database's now, in microseconds: what the window was judged at. */
  decidedAtMicros: bigint;
  snapshot: Snapshot | null;
  nextReleaseAt: Date | null;
  availableAt: Date | null;
  statusCode: number | null;
  response: unknown;
}

const GROUPS = { maxBatch: 64, maxInFlight: 2 };

interface ReleaseTimes {
  nextReleaseAt: Date | null;
  availableAt: Date | null;
}

interface RawRow extends Omit<ReservationRow, "snapshot" | keyof ReleaseTimes> {
  snapshot: StoredSnapshot | null;
}

/** As the policy column keeps it: integers as strings, since JSON numbers would lose digits. */
export interface StoredSnapshot {
  status: string;
  expired: boolean;
  refusal: string | null;
  requested: string;
  maxAmount: string | null;
  allowed: boolean;
  perPaymentLimit: string | null;
  limit: string;
  spent: string;
  reserved: string;
  balance: string;
  outstanding: string;
  nextReleaseAt?: string | null;
  availableAt?: string | null;
}

/** Prepared once per connection: the hottest statement of the service. */
const RESERVE = {
  name: "purser-reserve",
  text: `SELECT outcome, code, payment_id AS "paymentId", valid_before AS "validBefore", snapshot,
                (extract(epoch FROM decided_at) * 1000000)::bigint AS "decidedAtMicros",
                status_code AS "statusCode", response
           FROM purser_reserve($1)`,
};

export async function reserve(
  sql: Sql,
  request: ReserveRequest & { paymentId: string; dryRun: boolean },
): Promise<ReservationRow> {
  const { rows } = await sql.query<RawRow>({ ...RESERVE, values: [toJsonb(asked(request))] });
  const row = rows[0];
  if (!row) throw new Error("purser_reserve returned nothing");
  const snapshot = row.snapshot === null ? null : readSnapshot(row.snapshot);
  const times =
    row.code === "daily_limit_exceeded" ? await readReleaseTimes(sql, request, row) : NO_TIMES;
  return { ...row, ...times, snapshot };
}

const NO_TIMES: ReleaseTimes = { nextReleaseAt: null, availableAt: null };

/** Only who was refused by the limit asks, after the agent's row is free again; kept with the refusal. */
async function readReleaseTimes(
  sql: Sql,
  request: Pick<ReserveRequest, "agentId" | "amountAtomic">,
  row: Pick<RawRow, "paymentId" | "decidedAtMicros">,
): Promise<ReleaseTimes> {
  const { rows } = await sql.query<ReleaseTimes>({
    name: "purser-release-times",
    text: `WITH times AS (
             SELECT * FROM purser_release_times($1, $2, 'epoch'::timestamptz + $4 * interval '1 microsecond')),
           kept AS (
             UPDATE payments p
                SET policy = p.policy || jsonb_build_object('nextReleaseAt', t.next_release_at,
                                                            'availableAt', t.available_at)
               FROM times t WHERE p.agent_id = $1 AND p.id = $3)
           SELECT next_release_at AS "nextReleaseAt", available_at AS "availableAt" FROM times`,
    values: [
      request.agentId,
      String(request.amountAtomic),
      row.paymentId,
      String(row.decidedAtMicros),
    ],
  });
  return rows[0] ?? NO_TIMES;
}

/** The members purser_reserve reads; integers as strings, since JSON numbers would lose digits. */
function asked(request: ReserveRequest & { paymentId: string; dryRun: boolean }) {
  const { idempotency, balance } = request;
  return {
    agent_id: request.agentId,
    payment_id: request.paymentId,
    api_key_id: request.apiKeyId,
    kind: request.kind,
    chain_id: request.chainId,
    asset: request.asset.toLowerCase(),
    payee: request.to?.toLowerCase(),
    amount: request.amountAtomic,
    max_amount: request.maxAmountAtomic,
    refusal: request.refusal?.code,
    nonce: request.nonce,
    valid_seconds: request.validForSeconds,
    balance: balance.atomic,
    balance_block: balance.blockNumber,
    head_time: balance.timestampSeconds,
    gas_hold: request.gas?.hold,
    gas_floor: request.gas?.floorAtomic,
    request_id: request.requestId,
    memo: request.memo,
    url: request.url,
    listing_id: request.listingId,
    requirement: request.requirement,
    route: idempotency?.route,
    key: idempotency?.key,
    body_hash: idempotency && bytea(idempotency.bodyHash),
    dry_run: request.dryRun,
  };
}

/** As Postgres writes bytes in text. */
export const bytea = (bytes: Uint8Array): string => `\\x${Buffer.from(bytes).toString("hex")}`;

export function readSnapshot(stored: StoredSnapshot): Snapshot {
  return readFacts(stored);
}

/** Releases a reservation that nobody signed; false when it is signed or settled by now. */
export async function voidUnsigned(
  sql: Sql,
  args: { agentId: string; paymentId: string; code: string; detail: string },
): Promise<boolean> {
  const { rows } = await sql.query<{ voided: boolean }>(
    "SELECT purser_void_unsigned($1, $2, $3, $4) AS voided",
    [args.agentId, args.paymentId, args.code, args.detail],
  );
  return rows[0]?.voided ?? false;
}

/** The refusal of the trigger that submits a payment when its settlement is inserted. */
export function isReservationGone(error: unknown): boolean {
  return sqlState(error) === RESERVATION_GONE;
}

/**
 * The wait for its outcome ended without one. The engine makes it settled or voided, with proof. Payments
 * whose waits end together are marked together; one that somebody holds is marked by itself, so that a
 * group never waits for one row while it holds another.
 */
export function markUnknownInGroups(
  sql: Sql,
): (args: { agentId: string; paymentId: string }) => Promise<void> {
  const groups = new Coalescer<{ agentId: string; paymentId: string }, boolean>(async (keys) => {
    const { rows } = await sql.query<{ id: string }>({
      name: "payments-unknown",
      text: `UPDATE payments p SET status = 'unknown', updated_at = clock_timestamp()
               FROM (SELECT o.agent_id, o.id FROM payments o
                       JOIN unnest($1::text[], $2::text[]) AS w (agent_id, id) USING (agent_id, id)
                      WHERE o.status = 'submitted' FOR UPDATE OF o SKIP LOCKED) AS free
              WHERE p.agent_id = free.agent_id AND p.id = free.id RETURNING p.id`,
      values: [keys.map(({ agentId }) => agentId), keys.map(({ paymentId }) => paymentId)],
    });
    const marked = new Set(rows.map(({ id }) => id));
    return keys.map(({ paymentId }) => marked.has(paymentId));
  }, GROUPS);
  return async (args) => {
    if (!(await groups.ask(args))) await markUnknown(sql, args);
  };
}

export async function markUnknown(
  sql: Sql,
  args: { agentId: string; paymentId: string },
): Promise<void> {
  await sql.query({
    name: "payment-unknown",
    text: `UPDATE payments SET status = 'unknown', updated_at = clock_timestamp()
            WHERE agent_id = $1 AND id = $2 AND status = 'submitted'`,
    values: [args.agentId, args.paymentId],
  });
}

/** Reservations whose process did not sign in time. */
export async function staleReservations(
  sql: Sql,
  args: { olderThanSeconds: number; limit: number },
): Promise<{ agentId: string; paymentId: string }[]> {
  const { rows } = await sql.query<{ agentId: string; paymentId: string }>(
    `SELECT agent_id AS "agentId", id AS "paymentId" FROM payments
      WHERE status = 'reserved' AND created_at < clock_timestamp() - make_interval(secs => $1)
      ORDER BY created_at LIMIT $2`,
    [args.olderThanSeconds, args.limit],
  );
  return rows;
}

interface Row {
  id: string;
  limitAtomic: bigint;
  windowSum: bigint;
  reservedAtomic: bigint;
  nextReleaseAt: Date | null;
}

/** The rolling window of many agents in one query, as of now; reads only, the tail stays where it is. */
export async function readLimits(
  sql: Sql,
  agentIds: readonly string[],
): Promise<Map<string, Limits>> {
  const { rows } = await sql.query<Row>(
    `SELECT a.id, a.daily_limit AS "limitAtomic", outstanding.total AS "reservedAtomic",
            a.window_sum - purser_counted_sum(a.id, a.window_tail_at, w.edge) AS "windowSum",
            oldest.release_at AS "nextReleaseAt"
       FROM agents a
      CROSS JOIN LATERAL (SELECT GREATEST(clock_timestamp(), a.window_tail_at + interval '24 hours')
                                 - interval '24 hours' AS edge) w
      CROSS JOIN LATERAL (
        SELECT COALESCE(sum(p.amount) FILTER (WHERE p.counted AND p.created_at > w.edge), 0) AS total
          FROM payments p WHERE p.agent_id = a.id AND p.outstanding) outstanding
       LEFT JOIN LATERAL (
        SELECT purser_leaves_window_at(p.created_at) AS release_at FROM payments p
         WHERE p.agent_id = a.id AND p.created_at > w.edge AND p.counted
         ORDER BY p.created_at, p.id LIMIT 1) oldest ON true
      WHERE a.id = ANY($1::text[])`,
    [agentIds],
  );
  return new Map(
    rows.map((row) => [
      row.id,
      {
        limitAtomic: row.limitAtomic,
        spentAtomic: row.windowSum - row.reservedAtomic,
        reservedAtomic: row.reservedAtomic,
        remainingAtomic: remainingOf(row.limitAtomic, row.windowSum),
        nextReleaseAt: row.nextReleaseAt,
      },
    ]),
  );
}

/** What a wallet has promised and its balance at that block does not show yet, in atomic units. */
export async function readOutstanding(
  sql: Sql,
  args: { agentId: string; chainId: number; balanceBlock: bigint },
): Promise<bigint> {
  const { rows } = await sql.query<{ total: bigint }>(
    "SELECT purser_outstanding($1, $2, $3) AS total",
    [args.agentId, String(args.chainId), String(args.balanceBlock)],
  );
  return rows[0]?.total ?? 0n;
}
