/**
 * Calls without an Idempotency-Key (docs/decisions/0025). They get a generated key, and an identical call joins the
 * earlier one until that one's response was delivered: a retry after a lost response pays nothing more, and the
 * same call after a delivered response is a new purchase.
 *
 * A response is delivered when its last byte was written to an open connection and no cancellation followed. That
 * time is the column `told_at` of the call's key. It is written right after the response, so it can be lost with
 * the process, or come later than the next call: then that call replays, and never pays twice.
 */
import { randomUUID } from "node:crypto";
import type { FastifyReply, FastifyRequest } from "fastify";
import { Coalescer } from "../../core/shared-answers.ts";
import type { Sql } from "../../infra/db/pool.ts";
import type { Approvals } from "../approvals/approvals.ts";
import { hashBody, type IdempotencyRef, type JoiningCall } from "../guardrails/types.ts";
import type { PayingBody } from "./reserve.ts";

/**
 * A caller inside this process that calls our API on behalf of a client and forwards the response: the MCP
 * server.
 */
export interface Intermediary {
  /** The id that a cancellation names. */
  call: string;
  cameAtMs: number;
  isGone: () => boolean;
  isCanceled: () => boolean;
  /** Set by the inner call: its response is marked as delivered when the intermediary's own response is. */
  ref?: IdempotencyRef;
  /** Runs this when the intermediary's own response has been sent, or can no longer be sent. */
  whenSent(run: () => void): void;
}

/** Request header that names the intermediary, in a request of this process to itself. */
export const INTERMEDIARY = "purser-intermediary";

interface DeliveredCall {
  ref: IdempotencyRef;
  key: string;
  /** On the monotonic clock of this process. */
  atMs: number;
}

/** A response that this process delivered. Times are on its monotonic clock. */
interface OwnDelivery {
  atMs: number;
  /** Ends when the mark is stored, or could not be. */
  storing: Promise<void>;
  storedAtMs: number;
}

/**
 * The time between the last byte of a response and another process's mark for it. A client that pays the same
 * again needs longer than this to read the response and send a request.
 */
const TOLERANCE_MS = 20;
/** How long deliveries of this process are compared by its own clock. */
const REMEMBERED_MS = 60_000;
const GROUPS = { maxBatch: 64, maxInFlight: 2 };
const CLOCK_READINGS = 3;
/** Two readings this close were taken without a pause. */
const NO_PAUSE_MS = 0.1;

/**
 * When the request came. It takes two readings of the clock. If the process was paused between them, they are
 * read again: otherwise the request would seem to have come before the response to the call before it.
 */
export function arrivalMs(reply: Pick<FastifyReply, "elapsedTime">, nowMs: () => number): number {
  for (let left = CLOCK_READINGS; ; left -= 1) {
    const startedMs = nowMs();
    const { elapsedTime } = reply;
    if (nowMs() - startedMs < NO_PAUSE_MS || left === 1) return startedMs - elapsedTime;
  }
}

export class LostResponses {
  readonly #pool: Sql;
  readonly #approvals: Pick<Approvals, "keyFor">;
  readonly #warn: (error: unknown) => void;
  readonly #nowMs: () => number;
  /** What this process delivered, by key. */
  readonly #delivered = new Map<string, OwnDelivery>();
  readonly #marks: Coalescer<DeliveredCall, void>;
  /** Callers for which this process calls its own API, each under an unguessable name that is valid for one call. */
  readonly intermediaries = new Map<string, Intermediary>();

  constructor(deps: {
    pool: Sql;
    approvals: Pick<Approvals, "keyFor">;
    warn: (error: unknown) => void;
    /** The monotonic clock of this process. */
    nowMs: () => number;
  }) {
    this.#pool = deps.pool;
    this.#approvals = deps.approvals;
    this.#warn = deps.warn;
    this.#nowMs = deps.nowMs;
    this.#marks = new Coalescer((calls) => markDelivered(this.#pool, calls, this.#nowMs()), GROUPS);
  }

  /** The intermediary that sent this request of the process to itself, if one did. */
  intermediaryOf({ headers }: Pick<FastifyRequest, "headers">): Intermediary | undefined {
    return this.intermediaries.get(String(headers[INTERMEDIARY]));
  }

  /** The generated key of an agent's call that may pay, and came without a key of its own. */
  async refFor(args: {
    subjectId: string;
    route: string;
    body: PayingBody;
    reply: FastifyReply;
  }): Promise<IdempotencyRef | undefined> {
    const { subjectId, route, reply } = args;
    const { requestApproval, reason: _reason, dryRun, ...body } = args.body;
    if (dryRun === true) return undefined;
    const between = this.intermediaryOf(reply.request);
    const bodyHash = hashBody(route, body);
    const approval = requestApproval && (await this.#approvals.keyFor(subjectId, bodyHash));
    const key = approval ? approval.key : generatedKey();
    const ref: IdempotencyRef = { subjectId, route, bodyHash, key, ...endedBy(between, reply) };
    const joins = { cameAtMs: between?.cameAtMs ?? arrivalMs(reply, this.#nowMs) };
    if (approval && approval.isKnown) {
      // Unless the call was paid without the approval before, and that response was not delivered.
      if ((await this.earlierCall(ref, joins)) === undefined) return ref;
      // The approval's key is only for the approved payment.
      ref.key = generatedKey();
    }
    ref.joins = joins;
    if (between) between.ref = ref;
    // "finish": the whole response was written to the connection. It does not fire if the connection broke
    // before.
    else reply.raw.once("finish", () => this.noteDelivered(ref));
    return ref;
  }

  /** The key of the earlier call to join: its response was not delivered before this call came. */
  async earlierCall(ref: IdempotencyRef, joins: JoiningCall): Promise<string | undefined> {
    const startedMs = this.#nowMs();
    const row = await findEarlier(this.#pool, ref);
    if (!row) return undefined;
    const { key, deliveredAgoMs } = row;
    const own = this.#delivered.get(key);
    if (deliveredAgoMs === null) {
      if (own === undefined || own.storedAtMs < startedMs) return key;
      // This process was storing the mark while the row was read.
      await own.storing;
      return this.earlierCall(ref, joins);
    }
    // Delivered by another process: at this time at the latest, however long the database took.
    const deliveredAtMs = own?.atMs ?? this.#nowMs() - deliveredAgoMs - TOLERANCE_MS;
    // After a pause of this process it is not known when the call came. If its client has left, it may have repeated the
    // call elsewhere, so this one must not pay.
    if (deliveredAtMs > joins.cameAtMs || ref.isGone?.() === true) return key;
    joins.deliveredKey = key;
    return undefined;
  }

  /** The whole response of this call has been sent. */
  noteDelivered(ref: IdempotencyRef): void {
    const key = ref.joins?.answeredBy;
    if (key === undefined) return;
    const atMs = this.#nowMs();
    const own: OwnDelivery = { atMs, storedAtMs: Infinity, storing: Promise.resolve() };
    own.storing = this.#mark({ ref, key, atMs })
      .catch(this.#warn)
      .finally(() => (own.storedAtMs = this.#nowMs()));
    this.#delivered.set(key, own);
    for (const [old, delivered] of this.#delivered) {
      if (atMs - delivered.atMs < REMEMBERED_MS) break;
      this.#delivered.delete(old);
    }
  }

  /** Waits for marks that are being stored, before the connections close. */
  async end(): Promise<void> {
    await Promise.all([...this.#delivered.values()].map(({ storing }) => storing));
  }

  async #mark(delivered: DeliveredCall): Promise<void> {
    const { ref, key, atMs } = delivered;
    if (ref.call === undefined) return this.#marks.fetch(delivered);
    // SQL: serialized with a cancellation that arrives at the same moment.
    await this.#pool.query("SELECT purser_call_told($1, $2, $3, $4, $5)", [
      ref.subjectId,
      ref.route,
      key,
      ref.call,
      this.#nowMs() - atMs,
    ]);
  }
}

/** The key of a call that came without one. */
const generatedKey = (): string => `auto-${randomUUID()}`;

/** What ends the call before it has reserved or signed. */
export const endedBy = (
  between: Intermediary | undefined,
  reply: FastifyReply,
): Pick<IdempotencyRef, "call" | "isCanceled" | "isGone"> =>
  between
    ? { call: between.call, isCanceled: between.isCanceled, isGone: between.isGone }
    : { isGone: () => reply.raw.destroyed };

interface EarlierCall {
  key: string;
  /** How long ago its response was delivered; null: not yet, as far as is stored. */
  deliveredAgoMs: number | null;
}

async function findEarlier(sql: Sql, ref: IdempotencyRef): Promise<EarlierCall | undefined> {
  // SQL: the first query of every call that pays without a key; prepared.
  const { rows } = await sql.query<EarlierCall>({
    name: "joinable-call",
    text: `SELECT j.key, (extract(epoch FROM statement_timestamp() - j.told_at) * 1000)::float8 AS "deliveredAgoMs"
             FROM purser_joinable($1, $2, $3) j`,
    values: [ref.subjectId, ref.route, Buffer.from(ref.bodyHash)],
  });
  return rows[0];
}

/** A row that is locked is being marked already and is skipped. */
async function markDelivered(
  sql: Sql,
  delivered: readonly DeliveredCall[],
  nowMs: number,
): Promise<void[]> {
  // SQL: with every response to a call without a key, in groups when several are delivered at once.
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
      delivered.map(({ atMs }) => nowMs - atMs),
    ],
  });
  return delivered.map(() => undefined);
}

/** Stops the call unless it is signed, in whichever process it runs, and removes its delivery mark. */
export async function cancelCall(sql: Sql, agentId: string, call: string): Promise<void> {
  // SQL: one function under the agent's lock.
  await sql.query("SELECT purser_cancel_call($1, $2)", [agentId, call]);
}

/** The total size of an agent's stored responses that are kept only so that an identical call can join them. */
export const UNDELIVERED_BYTES = `
  SELECT COALESCE(sum(pg_column_size(response)), 0)::float8 AS bytes,
         GREATEST(60, COALESCE(ceil(660 - extract(epoch FROM now() - min(updated_at))), 0))::int AS "releaseInSeconds"
    FROM idempotency_keys
   WHERE subject_id = $1 AND implicit AND call IS NULL AND told_call IS NULL AND response IS NOT NULL`;

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
