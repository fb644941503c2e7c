/** Calls the guardrails' SQL functions. The decisions are made there, in prisma/functions. */
import type { Address } from "viem";
import { toJsonb } from "../../core/foreign-text.ts";
import { payeeKey } from "../../core/rules.ts";
import { Coalescer } from "../../core/shared-answers.ts";
import { bytea, violates, RESERVATION_GONE, sqlState, type Sql } from "../../infra/db/pool.ts";
import type { WalletFacts } from "./available.ts";
import {
  readFacts,
  remainingOf,
  RULES,
  type BudgetLimit,
  type Limits,
  type PayeeLimits,
  type RuleName,
  type Snapshot,
  type WindowLimits,
} from "./rules.ts";
import type { Release, ReserveRequest } from "./types.ts";

type ReservationOutcome =
  | "reserved"
  | "blocked"
  | "allowed"
  | "denied"
  | "replay"
  | "running"
  | "key_reused"
  | "canceled"
  | "unauthorized"
  | "moved"
  | "clock_apart"
  | "held"
  | "busy"
  | "balance_needed"
  | "not_found";

export interface ReservationRow {
  outcome: ReservationOutcome;
  code: string | null;
  paymentId: string | null;
  validBefore: bigint | null;
  /** The database time in microseconds at which the window was evaluated. */
  decidedAtMicros: bigint;
  snapshot: Snapshot | null;
  /** When the oldest payment leaves the window of the refusing limit, and when the amount fits every limit. */
  nextReleaseAt: Date | null;
  availableAt: Date | null;
  /** The same for each rolling limit on its own. */
  releases: Release[];
  statusCode: number | null;
  response: string | null;
}

const GROUPS = { maxBatch: 64, maxInFlight: 2 };

type ReleaseTimes = Pick<ReservationRow, "nextReleaseAt" | "availableAt" | "releases">;

interface RawRow extends Omit<ReservationRow, "snapshot" | keyof ReleaseTimes> {
  snapshot: StoredSnapshot | null;
}

/** As stored in the policy column: integers as strings, because JSON numbers would lose digits. */
export interface StoredSnapshot extends Record<string, unknown> {
  nextReleaseAt?: string | null;
  availableAt?: string | null;
}

/** Prepared once per connection: the most frequent statement of the service. */
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
  const row = await decide(sql, toJsonb(reserveParams(request)));
  if (!row) throw new Error("purser_reserve returned nothing");
  const snapshot = row.snapshot === null ? null : readFacts(row.snapshot);
  const refused = RULES.find(({ codes, rolling }) => rolling && includes(codes, row.code));
  const times = refused
    ? await readReleaseTimes(sql, request, row, refused.name)
    : opening(snapshot);
  return { ...row, ...times, snapshot };
}

/**
 * A call that contacts its target before it pays claims its key without the agent's row, perhaps after this
 * statement looked it up. Then nothing was written here, and a retry finds the owner of the key.
 */
async function decide(sql: Sql, request: string, looks = 5): Promise<RawRow | undefined> {
  try {
    return (await sql.query<RawRow>({ ...RESERVE, values: [request] })).rows[0];
  } catch (error) {
    if (looks === 1 || !violates(error, "idempotency_keys_pkey")) throw error;
    return decide(sql, request, looks - 1);
  }
}

const includes = (codes: readonly string[], code: string | null): boolean =>
  code !== null && codes.includes(code);

/** When a refusal ends by itself that is not by a rolling limit. */
const opening = (snapshot: Snapshot | null): ReleaseTimes => ({
  nextReleaseAt: null,
  availableAt: snapshot?.opensAt === undefined ? null : new Date(snapshot.opensAt),
  releases: [],
});

/**
 * Read only after a refusal by a rolling limit, when the agent's row is unlocked again; stored with the
 * refusal.
 */
async function readReleaseTimes(
  sql: Sql,
  request: Pick<ReserveRequest, "agentId" | "amountAtomic" | "to" | "site">,
  row: Pick<RawRow, "paymentId" | "decidedAtMicros">,
  rule: RuleName,
): Promise<ReleaseTimes> {
  const { rows } = await sql.query<Release & { next: Date | null; available: Date | null }>({
    name: "purser-release-times",
    text: `WITH times AS MATERIALIZED (
             SELECT * FROM purser_release_times($1, $2, $7, $3,
                                             'epoch'::timestamptz + $5 * interval '1 microsecond')),
           whole AS MATERIALIZED (
             SELECT max(t.next_release_at) FILTER (WHERE t.rule = $6) AS next,
                    CASE WHEN bool_and(t.available_at IS NOT NULL) THEN max(t.available_at) END AS available
               FROM times t),
           kept AS (
             UPDATE payments p
                SET policy = p.policy || jsonb_build_object('nextReleaseAt', w.next, 'availableAt', w.available)
               FROM whole w WHERE p.agent_id = $1 AND p.id = $4)
           SELECT t.rule, t.next_release_at AS "nextReleaseAt", t.available_at AS "availableAt",
                  w.next, w.available FROM times t, whole w`,
    values: [
      request.agentId,
      request.to?.toLowerCase(),
      String(request.amountAtomic),
      row.paymentId,
      String(row.decidedAtMicros),
      rule,
      request.site ?? null,
    ],
  });
  return {
    nextReleaseAt: rows[0]?.next ?? null,
    availableAt: rows[0]?.available ?? null,
    releases: rows.map(({ next: _next, available: _available, ...release }) => release),
  };
}

/** The JSON that purser_reserve reads; integers as strings, because JSON numbers would lose digits. */
function reserveParams(request: ReserveRequest & { paymentId: string; dryRun: boolean }) {
  const { idempotency, balance } = request;
  return {
    agent_id: request.agentId,
    payment_id: request.paymentId,
    api_key_id: request.apiKeyId,
    kind: request.kind,
    chain_id: request.chainId,
    asset: request.asset.toLowerCase(),
    payee: request.to?.toLowerCase(),
    site: request.site,
    amount: request.amountAtomic,
    max_amount: request.maxAmountAtomic,
    refusal: request.refusal?.code,
    nonce: request.nonce,
    prescribed: request.prescribed,
    is_maximum: request.isMaximum,
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
    joins: idempotency?.joins && true,
    heard: idempotency?.joins?.deliveredKey,
    call: idempotency?.call,
    dry_run: request.dryRun,
    task: request.task,
    ...channelParams(request),
  };
}

const channelParams = ({ channel, chainId, asset, to }: ReserveRequest) =>
  channel && {
    channel: {
      id: channel.id,
      salt: channel.salt,
      signer: channel.signer,
      chain_id: chainId,
      asset: asset.toLowerCase(),
      receiver: to?.toLowerCase(),
      receiver_authorizer: channel.receiverAuthorizer,
      withdraw_delay: channel.withdrawDelay,
      min_deposit: channel.minDepositAtomic,
    },
    deposit_id: channel.depositId,
    busy_seconds: channel.busySeconds,
  };

/** Releases an unsigned reservation; false if it is signed or settled by now. */
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

/** The error of the trigger that submits a payment when its settlement is inserted. */
export function isReservationGone(error: unknown): boolean {
  return sqlState(error) === RESERVATION_GONE;
}

/**
 * Marks a payment unknown when the wait for its outcome timed out. The engine later makes it settled or voided,
 * with proof.
 * Payments whose waits end at the same time are marked together. A payment whose row is locked is marked alone,
 * so that a group never waits for one row while it holds another.
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
    if (!(await groups.fetch(args))) await markUnknown(sql, args);
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
      WHERE outstanding AND status = 'reserved' AND created_at < clock_timestamp() - make_interval(secs => $1)
      ORDER BY created_at LIMIT $2`,
    [args.olderThanSeconds, args.limit],
  );
  return rows;
}

interface WindowRow {
  agentId: string;
  rule: RuleName;
  payee: string;
  site: string;
  limit: bigint;
  used: bigint;
  reserved: bigint;
  nextReleaseAt: Date | null;
}

/**
 * The rolling windows of many agents in one query, as of now, with `payees` also those of single payees. Reads
 * only: the stored window sums are not moved forward.
 */
export async function readLimits(
  sql: Sql,
  agentIds: readonly string[],
  { payees = false }: { payees?: boolean } = {},
): Promise<Map<string, Limits>> {
  const [{ rows }, budgets] = await Promise.all([
    sql.query<WindowRow>(
      `SELECT a.id AS "agentId", w.rule, w.payee, w.site, w.most AS "limit", now_is.used, outstanding.used AS reserved,
            purser_leaves_window_at(
              purser_sum_reached_at(a.id, w.payee, 'payments', edge.at, 1), w.hours) AS "nextReleaseAt"
       FROM agents a
      CROSS JOIN LATERAL (
        SELECT GREATEST(clock_timestamp(), a.window_tail_at + interval '24 hours') AS at) clock
      CROSS JOIN LATERAL (SELECT l.* FROM purser_limits(a) l WHERE $2 OR l.payee = '') w
      CROSS JOIN LATERAL (SELECT clock.at - w.hours * interval '1 hour' AS at) edge
      CROSS JOIN LATERAL (
        SELECT a.window_sum - c.amount AS used FROM purser_counted_sum(a.id, '', a.window_tail_at, edge.at) c
         WHERE w.rule = 'daily_limit'
        UNION ALL
        SELECT CASE w.measure WHEN 'payments' THEN k.payments ELSE k.amount END
          FROM purser_window(a.id, w.payee, w.hours, clock.at) k
         WHERE w.rule <> 'daily_limit') now_is
      CROSS JOIN LATERAL (
        SELECT COALESCE(sum(CASE w.measure WHEN 'payments' THEN 1 ELSE p.amount END), 0) AS used
          FROM payments p WHERE p.agent_id = a.id AND p.outstanding AND p.counted AND p.created_at > edge.at
           AND (w.payee = '' OR p.counterparty = w.payee)) outstanding
      WHERE a.id = ANY($1::text[])`,
      [agentIds, payees],
    ),
    readBudgetsOf(sql, agentIds),
  ]);
  return new Map(
    agentIds.flatMap((id) =>
      limitsOf(
        rows.filter((row) => row.agentId === id),
        id,
        budgets.get(id),
      ),
    ),
  );
}

interface BudgetRow extends Pick<BudgetLimit, "id" | "name" | "hours" | "availableAt"> {
  limit: bigint;
  used: bigint;
}

/** The limits of budgets and how much is used, as of now. */
export async function readBudgetLimits(
  sql: Sql,
  budgetIds: readonly string[],
): Promise<BudgetLimit[]> {
  const { rows } = await sql.query<BudgetRow>(
    `SELECT l.budget_id AS id, l.name, l.hours, l.most AS "limit", l.used,
            CASE WHEN l.used >= l.most AND l.most > 0
              THEN purser_budget_fits_at(l.budget_id, l.hours, l.now_at, l.used - l.most + 1) END AS "availableAt"
       FROM purser_budget_limits($1::text[], clock_timestamp()) l`,
    [budgetIds],
  );
  return rows.map(({ limit, used, ...row }) => ({ ...row, limitAtomic: limit, usedAtomic: used }));
}

/** Each budget is read once, however many of the agents are in it. */
async function readBudgetsOf(
  sql: Sql,
  agentIds: readonly string[],
): Promise<Map<string, BudgetLimit[]>> {
  const { rows } = await sql.query<{ id: string; budgetIds: string[] }>(
    `SELECT a.id, a.budget_ids AS "budgetIds" FROM agents a
      WHERE a.id = ANY($1::text[]) AND cardinality(a.budget_ids) > 0`,
    [agentIds],
  );
  if (rows.length === 0) return new Map();
  const limits = await readBudgetLimits(sql, [...new Set(rows.flatMap((row) => row.budgetIds))]);
  return new Map(
    rows.map(({ id, budgetIds }) => [id, limits.filter((limit) => budgetIds.includes(limit.id))]),
  );
}

function limitsOf(
  rows: readonly WindowRow[],
  agentId: string,
  budgets: readonly BudgetLimit[] | undefined,
): [string, Limits][] {
  const window = (rule: RuleName): WindowLimits | null => {
    const row = rows.find((one) => one.rule === rule);
    return row ? numbersOf(row) : null;
  };
  const daily = window("daily_limit");
  if (!daily) return [];
  const payees: PayeeLimits = new Map(
    rows.flatMap((row) =>
      row.payee === "" ? [] : [[payeeKey({ address: row.payee, site: row.site }), numbersOf(row)]],
    ),
  );
  const others = {
    weekly: window("weekly_limit"),
    monthly: window("monthly_limit"),
    hourly: window("payments_per_hour"),
  };
  return [[agentId, { ...daily, ...others, ...(budgets && { budgets }), payees }]];
}

const numbersOf = ({ limit, used, reserved, nextReleaseAt }: WindowRow): WindowLimits => ({
  limitAtomic: limit,
  spentAtomic: used - reserved,
  reservedAtomic: reserved,
  remainingAtomic: remainingOf(limit, used),
  nextReleaseAt,
});

/**
 * The amount in atomic units that a wallet has reserved or sent and that its balance at that block does not
 * show yet.
 */
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

/** For the facts of the balance, floor and gas rules. */
export interface WalletQuery {
  agentId: string;
  chainId: number;
  asset: Address;
  balance: { atomic: bigint; blockNumber: bigint };
  gasHold: bigint;
}

/** The wallets' facts by agent, as a decision would see them now. */
export async function readWallets(
  sql: Sql,
  queries: readonly WalletQuery[],
  floorAtomic: bigint,
): Promise<Map<string, WalletFacts>> {
  const { rows } = await sql.query<{
    agentId: string;
    balance: bigint;
    outstanding: bigint;
    gas: object;
    isBehind: boolean;
  }>(
    `SELECT a.id AS "agentId", w.balance, purser_outstanding(a.id, w.chain_id, w.block) AS outstanding,
            purser_gas_reserve(w.chain_id, 'agents', 'owner:' || a.owner_id, w.gas_hold, $7, $7, TRUE) AS gas,
            EXISTS (SELECT 1 FROM ledger_cursors c WHERE c.chain_id = w.chain_id AND c.asset = w.asset
                      AND c.hold_until_block IS NOT NULL) AS "isBehind"
       FROM unnest($1::text[], $2::bigint[], $3::text[], $4::numeric[], $5::bigint[], $6::numeric[])
              AS w (id, chain_id, asset, balance, block, gas_hold)
       JOIN agents a ON a.id = w.id`,
    [
      queries.map(({ agentId }) => agentId),
      queries.map(({ chainId }) => chainId),
      queries.map(({ asset }) => asset.toLowerCase()),
      queries.map(({ balance }) => String(balance.atomic)),
      queries.map(({ balance }) => String(balance.blockNumber)),
      queries.map(({ gasHold }) => String(gasHold)),
      String(floorAtomic),
    ],
  );
  return new Map(
    rows.map(({ agentId, gas, ...wallet }) => {
      const { floor, gasShort } = readFacts(gas);
      return [agentId, { ...wallet, floor, gasShort }];
    }),
  );
}
