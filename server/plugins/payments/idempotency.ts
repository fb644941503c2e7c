/**
 * Idempotency of requests that move money: what an earlier request with the same key did, and the response that
 * is stored and replayed. Calls without a key get a generated one (lost-responses.ts).
 */
import { type ExactJson, parseExact, parseMembers, stringifyExact } from "../../core/exact-json.ts";
import { ApiError, type ErrorCode } from "../../errors.ts";
import type { Sql } from "../../infra/db/pool.ts";
import type { IdempotencyRef, JoiningCall, KeyInUse } from "../guardrails/types.ts";
import type { PaymentRow } from "./store.ts";

interface CallsDeps {
  keys: Pick<KeyStore, keyof KeyStore>;
  payments: {
    find(key: PaymentKey): Promise<PaymentRow | undefined>;
    markUnknown(key: PaymentKey): Promise<void>;
    voidUnsigned(args: PaymentKey & { code: string; detail: string }): Promise<boolean>;
  };
  /** The key of the earlier call that a call without a key joins (lost-responses.ts). */
  earlierCall(ref: IdempotencyRef, joins: JoiningCall): Promise<string | undefined>;
  sleep(ms: number): Promise<void>;
}

/** The response for the caller. A replayed one has the header `Idempotent-Replayed: true`. */
export interface Answer {
  statusCode: number;
  body: Record<string, unknown>;
  /** The stored body, replayed byte for byte. Undefined: the body is serialized. */
  text?: string;
  replayed: boolean;
  /** Replayed to a call without a key, which does not expect it, so the body reports it too. */
  joined?: true;
}

/** Added to the response of a call that joined an earlier one. Worded for language models. */
export const JOINED = {
  replayed: true,
  next: "This is the response to your earlier identical call, which did not reach you. Nothing was paid now. To buy it again, repeat the call with a new Idempotency-Key.",
};

export interface PaymentKey {
  agentId: string;
  paymentId: string;
}

/**
 * The end of a payment. "unknown" is not final and not stored: the same key returns the outcome once the chain
 * has proved it.
 */
export type PaymentResult =
  | { kind: "done"; body: Record<string, unknown> }
  | { kind: "failed" | "unknown"; error: ApiError };

/** Why nothing was reserved. */
export type NotReserved =
  | { kind: "denied"; error: ApiError }
  /**
   * Denied, and the owner was asked for approval. This response is not stored, because the same call may pay
   * once it is approved.
   */
  | { kind: "approval_requested"; body: Record<string, unknown> }
  | KeyInUse;

/** An error as stored with the key. The request id is not stored, because each request has its own. */
interface StoredError {
  code: ErrorCode;
  detail: string;
  extra: Record<string, unknown>;
}

/** What is stored of a free response: enough to recognize it, and too little to fill the disk. */
export interface FreeResponse {
  status: number;
  bytes: number;
  sha256: string;
}

/** How a request begins: as new, or with what an earlier request of its key has done. */
export type Begun =
  | { kind: "new"; call: Call }
  /** The stored response. */
  | { kind: "answered"; answer: Answer }
  /** The earlier request cost nothing, and only a digest of its response is stored. */
  | { kind: "free"; freeResponse: FreeResponse }
  /**
   * The earlier request signed this payment and has ended without an answer: only the outcome is missing.
   * `storedNote`: what it had stored with the key.
   */
  | { kind: "signed"; call: Call; payment: PaymentRow; storedNote: unknown };

export interface CallLimits {
  agentId: string;
  /** A request that made a payment this long ago, and has not ended, has lost its process. */
  longestMs: number;
  /**
   * Set when a target may act on the request before anything is reserved, so that it is sent once: a request that
   * claimed its key this long ago has lost its process.
   */
  longestClaimMs?: number;
}

/** What the rows of a key and of its payment show. */
type State =
  | { kind: "none" }
  | { kind: "running"; paymentId: string | null }
  | { kind: "free"; freeResponse: FreeResponse }
  | { kind: "answered"; statusCode: number; text: string | null; paymentId: string | null }
  | { kind: "signed"; payment: PaymentRow; storedNote: unknown };

/** How often a call checks whether the one it joined has ended; the delay grows. */
const FIRST_LOOK_MS = 60;
const LAST_LOOK_MS = 1_000;
const REPLAYED = { "idempotent-replayed": "true" };

export const NOT_SIGNED = {
  code: "not_signed",
  detail: "The process stopped before it signed the payment.",
};

/** Requests that move money, found again by their keys. */
export class Calls {
  readonly #deps: CallsDeps;

  constructor(deps: CallsDeps) {
    this.#deps = deps;
  }

  /** Finds what an earlier request of this key did. Reads nothing else, so it works while the chain does not. */
  async begin(ref: IdempotencyRef | undefined, limits: CallLimits): Promise<Begun> {
    if (ref === undefined) return this.#new(ref);
    if (ref.joins) return this.#joinEarlier(ref, ref.joins, limits);
    const state = await this.#stateOf(ref, limits);
    switch (state.kind) {
      case "none":
        return this.#new(ref);
      case "running":
        throw inProgress(state.paymentId);
      case "answered":
        return { kind: "answered", answer: replay(state) };
      case "free":
        return state;
      default:
        return { ...state, call: this.#call(ref, { isReplay: true }) };
    }
  }

  /**
   * For a call without a key: waits for the end of an earlier identical call whose response was not delivered.
   * If that one moved nothing, this call pays itself.
   */
  async #joinEarlier(ref: IdempotencyRef, joins: JoiningCall, limits: CallLimits): Promise<Begun> {
    const key = await this.#deps.earlierCall(ref, joins);
    if (key === undefined) return this.#new(ref);
    const held: IdempotencyRef = { ...ref, key };
    for (let pauseMs = FIRST_LOOK_MS; ; pauseMs = Math.min(pauseMs * 1.5, LAST_LOOK_MS)) {
      const state = await this.#stateOf(held, limits);
      if (state.kind === "none" || state.kind === "free") return this.#new(ref);
      if (state.kind === "answered") {
        joins.answeredBy = key;
        return { kind: "answered", answer: joined(state) };
      }
      if (state.kind === "signed")
        return { ...state, call: this.#call(held, { isReplay: true, isJoined: true }) };
      if (ref.isGone?.() === true) throw inProgress(state.paymentId);
      await this.#deps.sleep(pauseMs);
    }
  }

  /** The state of the payment decides what became of a key without a response; there is never a second payment. */
  async #stateOf(ref: IdempotencyRef, limits: CallLimits): Promise<State> {
    const { keys, payments } = this.#deps;
    const row = await keys.find(ref);
    if (!row) return { kind: "none" };
    if (!row.isSameBody) throw keyReused();
    const { paymentId, statusCode } = row;
    const key = paymentId === null ? undefined : { agentId: limits.agentId, paymentId };
    const payment =
      key && (statusCode === null || ref.joins) ? await payments.find(key) : undefined;
    // A call that joins an earlier one does not return its failure: if nothing moved, it pays itself.
    if (ref.joins && payment?.status === "voided") return { kind: "none" };
    if (statusCode !== null) {
      const text = await this.#responseOf(ref, row);
      const freeResponse = freeResponseIn(text);
      if (freeResponse) return { kind: "free", freeResponse };
      return { kind: "answered", statusCode, text, paymentId };
    }
    if (key === undefined) {
      if (limits.longestClaimMs === undefined) {
        // Nothing was to be paid, and the process died before it stored the response.
        await keys.release(ref);
        return { kind: "none" };
      }
      if (row.ageSeconds * 1000 > limits.longestClaimMs) throw answerLost();
      return { kind: "running", paymentId };
    }
    if (!payment || !hasEnded(payment, limits.longestMs)) return { kind: "running", paymentId };
    // Released by another request after this one read the key.
    if (payment.status === "voided" && payment.failureCode === NOT_SIGNED.code)
      return { kind: "none" };
    if (payment.status === "reserved")
      // False: another request released it, or it was signed after all. The next look shows which.
      return (await payments.voidUnsigned({ ...key, ...NOT_SIGNED }))
        ? { kind: "none" }
        : { kind: "running", paymentId };
    const note = await this.#responseOf(ref, row);
    return { kind: "signed", payment, storedNote: note === null ? undefined : parseExact(note) };
  }

  /** The stored response of a call. A long one is read once there is memory for it. */
  async #responseOf(ref: IdempotencyRef, row: IdempotencyRow): Promise<string | null> {
    if (!row.isLong) return row.response;
    // It may have been paid, so the client must repeat the same call and not make a new one.
    await ref.room?.().catch((cause: unknown) => {
      throw inProgress(row.paymentId, cause);
    });
    return this.#deps.keys.readResponse(ref);
  }

  #new(ref: IdempotencyRef | undefined): Begun {
    const call = this.#call(ref);
    if (call.isCanceled) throw canceled();
    return { kind: "new", call };
  }

  #call(ref: IdempotencyRef | undefined, how: { isReplay?: true; isJoined?: true } = {}): Call {
    return new Call(this.#deps, ref, how);
  }
}

/**
 * Whether the request that made this payment has ended without storing a response. For a fetch, `delivered` is
 * written after the response is stored, or after the outcome "unknown"; otherwise only the time can show it.
 */
export function hasEnded(
  {
    kind,
    status,
    delivered,
    ageSeconds,
  }: Pick<PaymentRow, "kind" | "status" | "delivered" | "ageSeconds">,
  longestMs: number,
): boolean {
  const isOpen =
    kind === "x402" ? delivered === null : status === "reserved" || status === "submitted";
  return !isOpen || ageSeconds * 1000 > longestMs;
}

/** One request that may move money, and the row of its key. */
export class Call {
  readonly #deps: Pick<CallsDeps, "keys" | "payments">;
  /** The key under which the response is stored: of the earlier call, if this one joined it. */
  readonly ref: IdempotencyRef | undefined;
  readonly #isReplay: boolean;
  readonly #isJoined: boolean;
  /** The key that this request has claimed and still holds. */
  #claimed: IdempotencyRef | undefined;

  constructor(
    deps: Pick<CallsDeps, "keys" | "payments">,
    ref: IdempotencyRef | undefined,
    { isReplay = false, isJoined = false }: { isReplay?: boolean; isJoined?: boolean },
  ) {
    this.#deps = deps;
    this.ref = ref;
    this.#isReplay = isReplay;
    this.#isJoined = isJoined;
  }

  /** The client no longer waits, as far as this process knows. */
  get isCanceled(): boolean {
    return this.ref?.isCanceled?.() === true;
  }

  /** Claims the key before a target is contacted that may act on the request, so that it is sent once. */
  async claim(): Promise<void> {
    // Generated keys are not claimed: an identical call joins this one only after it has reserved.
    if (this.ref === undefined || this.ref.joins) return;
    if (!(await this.#deps.keys.insert(this.ref))) throw inProgress(null);
    this.#claimed = this.ref;
  }

  /** Nothing was sent that a target acted on. Reserving claims the key again, in its own transaction. */
  async unclaim(): Promise<void> {
    const claimed = this.#claimed;
    if (!claimed) return;
    this.#claimed = undefined;
    await this.#deps.keys.release(claimed);
  }

  /** The request failed while it held the key. `mayHaveActed`: the target may have received it, so it is not sent again. */
  async failClaimed(error: unknown, mayHaveActed: (error: ApiError) => boolean): Promise<void> {
    // After an unexpected error it is unknown how far the request came: the key stays claimed, and is treated
    // as lost after a while.
    if (!this.#claimed || !(error instanceof ApiError)) return;
    if (!mayHaveActed(error)) return this.unclaim();
    // A stored response must not ask for a retry, which would return the same response.
    const final = error.status === 429 ? answerLost() : error;
    await this.#complete({ ref: this.#claimed, ...storedError(final) });
  }

  /** Stores what a request knows before its result, for a request that has to finish it. */
  async note(storedNote: Record<string, unknown>): Promise<void> {
    if (this.ref !== undefined) await this.#deps.keys.note(this.ref, stringifyExact(storedNote));
  }

  /** Nothing was paid. `freeResponse`: the digest that is stored instead of the response. */
  async finishFree(body: Record<string, unknown>, freeResponse?: FreeResponse): Promise<Answer> {
    const answer = { statusCode: 200, body, replayed: false };
    const { ref } = this;
    // A call without a key can be repeated, so nothing is stored.
    if (ref === undefined || ref.joins) return answer;
    const response = stringifyExact(freeResponse ? { freeAnswer: freeResponse } : body);
    const stored = { statusCode: 200, response };
    // If another request has claimed the key by now, it keeps it.
    await (this.#claimed
      ? this.#deps.keys.complete(ref, stored)
      : this.#deps.keys.insert(ref, stored));
    return answer;
  }

  /** Why nothing was reserved, as the answer or an error. Undefined: an identical call reserved first; join it. */
  notReserved(reserved: NotReserved): Answer | undefined {
    switch (reserved.kind) {
      case "approval_requested":
        return { statusCode: 202, body: reserved.body, replayed: false };
      case "denied":
        throw reserved.error;
      case "canceled":
        throw canceled();
      case "in_progress":
        if (this.ref?.joins) return undefined;
        throw inProgress(reserved.paymentId);
      case "replay":
        if (this.ref?.joins) return undefined;
        return replay({ ...reserved, text: reserved.response });
      default:
        throw keyReused();
    }
  }

  /** A call that joined an earlier one pays itself if that one failed without moving anything. */
  async mustPayItself(key: PaymentKey, result: PaymentResult): Promise<boolean> {
    if (!this.#isJoined || result.kind !== "failed") return false;
    return (await this.#deps.payments.find(key))?.status === "voided";
  }

  /**
   * Stores the result with the key. `isInLedger`: the payment's row is enough to answer again, so no response
   * is stored for a call without a key. `store`: stores the response together with something else.
   */
  async keep(
    key: PaymentKey,
    result: PaymentResult,
    { isInLedger = false, store = (_kept, stored) => this.#complete(stored) }: HowToKeep = {},
  ): Promise<KeptResult> {
    const ref = this.ref?.joins && isInLedger && !this.#isJoined ? undefined : this.ref;
    if (result.kind === "unknown") await this.#deps.payments.markUnknown(key);
    const { kept, stored } = this.#form(result, ref);
    await store(kept, stored);
    return kept;
  }

  #form(
    result: PaymentResult,
    ref: IdempotencyRef | undefined,
  ): { kept: KeptResult; stored: StoredResponse | undefined } {
    if (result.kind !== "done") {
      const stored =
        ref && result.kind === "failed" ? { ref, ...storedError(result.error) } : undefined;
      return { kept: result, stored };
    }
    const answer = { statusCode: 200, body: result.body, replayed: this.#isReplay };
    if (!ref) return { kept: { kind: "done", answer }, stored: undefined };
    const response = stringifyExact(result.body);
    const kept: KeptResult = { kind: "done", answer: { ...answer, text: response } };
    return { kept, stored: { ref, statusCode: 200, response } };
  }

  async #complete(stored: StoredResponse | undefined): Promise<void> {
    if (stored) await this.#deps.keys.complete(stored.ref, stored);
  }

  /** The kept result, as the answer or an error. From here on it counts as delivered once it is sent. */
  answer(kept: KeptResult): Answer {
    if (kept.kind !== "unknown" && this.ref?.joins) this.ref.joins.answeredBy = this.ref.key;
    if (kept.kind !== "done") throw this.#isJoined ? joinedError(kept.error) : kept.error;
    return this.#isJoined ? { ...kept.answer, joined: true } : kept.answer;
  }
}

function storedError({ code, message: detail, extra, status }: ApiError) {
  const response: StoredError = { code, detail, extra };
  return { statusCode: status, response: stringifyExact(response) };
}

/** A final response as it is stored with its key. */
export interface StoredResponse {
  ref: IdempotencyRef;
  statusCode: number;
  /** The exact JSON text. */
  response: string;
}

interface HowToKeep {
  isInLedger?: boolean;
  store?: (kept: KeptResult, stored: StoredResponse | undefined) => Promise<void>;
}

export type KeptResult =
  | { kind: "done"; answer: Answer }
  | { kind: "failed" | "unknown"; error: ApiError };

type Replayable = Pick<Extract<State, { kind: "answered" }>, "statusCode" | "text" | "paymentId">;

/** Replays a stored response; a stored error is thrown again. */
function replay({ statusCode, text, paymentId }: Replayable): Answer {
  if (text === null) throw answerForgotten(paymentId);
  // A request for a free resource has claimed the key meanwhile.
  const freeResponse = freeResponseIn(text);
  if (freeResponse) throw notKept(freeResponse);
  const body = parseMembers(text);
  if (statusCode >= 400) {
    const { code, detail, extra } = body as unknown as Omit<StoredError, "extra"> & {
      extra: ExactJson;
    };
    throw new ApiError(code, { detail, extra: parseMembers(extra.text), headers: REPLAYED });
  }
  return { statusCode, body, text, replayed: true };
}

function joined(stored: Replayable): Answer {
  try {
    return { ...replay(stored), joined: true };
  } catch (error) {
    throw joinedError(error);
  }
}

/** A stored free response is short and begins with this member. */
const freeResponseIn = (response: string | null): FreeResponse | undefined =>
  response?.startsWith('{"freeAnswer":') === true
    ? (JSON.parse(response) as { freeAnswer: FreeResponse }).freeAnswer
    : undefined;

export const notKept = (freeResponse: FreeResponse, detail?: string): ApiError =>
  new ApiError("answer_not_kept", {
    detail,
    extra: { freeAnswer: freeResponse, paid: false },
  });

/** The request may have had an effect, and its response was lost with the process. */
const answerLost = (): ApiError =>
  new ApiError("answer_not_kept", {
    detail:
      "The request with this key may have reached the target, but its response was lost. It is not sent again. Nothing was paid. Use a new key to send it again.",
    extra: { paid: false },
  });

/** For a call without a key whose response was delivered: only the payment's row is left. */
const answerForgotten = (paymentId: string | null): ApiError =>
  new ApiError("answer_not_kept", {
    detail:
      "This call was answered before, and the response is no longer stored. Nothing was paid now; `paymentId` is the earlier payment. Use a new key to pay again.",
    extra: { paymentId },
  });

function keyReused(): ApiError {
  return new ApiError("idempotency_key_reused");
}

/** Nothing was signed, and the client no longer waits. */
export const canceled = (cause?: unknown): ApiError => new ApiError("call_canceled", { cause });

/** Marks an error of an earlier call that is returned to a call without a key. */
function joinedError(error: unknown): unknown {
  if (!(error instanceof ApiError)) return error;
  const { code, message: detail, extra, headers, cause } = error;
  return new ApiError(code, {
    detail,
    cause,
    extra: { ...extra, ...JOINED },
    headers: { ...headers, ...REPLAYED },
  });
}

export function inProgress(paymentId: string | null, cause?: unknown): ApiError {
  return new ApiError("idempotency_in_progress", {
    cause,
    headers: { "retry-after": "1" },
    extra: { paymentId },
  });
}

export interface IdempotencyRow {
  isSameBody: boolean;
  paymentId: string | null;
  /** Null while the request runs, after its process died, or when its outcome was unknown. */
  statusCode: number | null;
  /** The exact JSON text: the response, or a note stored before it. Also null if it is long. */
  response: string | null;
  isLong: boolean;
  ageSeconds: number;
}

/** Longer responses are read by a separate statement, once there is memory for them. */
const LONG_BYTES = 64 * 1024;

/** The statements on idempotency keys. */
export class KeyStore {
  readonly #sql: Sql;

  constructor(sql: Sql) {
    this.#sql = sql;
  }

  async find(ref: IdempotencyRef): Promise<IdempotencyRow | undefined> {
    // SQL: the first query of every request that moves money; prepared.
    const { rows } = await this.#sql.query<IdempotencyRow>({
      name: "idempotency-find",
      text: `SELECT body_hash = $4 AS "isSameBody", payment_id AS "paymentId", status_code AS "statusCode",
                    CASE WHEN octet_length(response) <= $5 THEN response END AS response,
                    COALESCE(octet_length(response) > $5, FALSE) AS "isLong",
                    extract(epoch FROM clock_timestamp() - created_at)::float8 AS "ageSeconds"
               FROM idempotency_keys WHERE subject_id = $1 AND route = $2 AND key = $3`,
      values: [...placeOf(ref), Buffer.from(ref.bodyHash), LONG_BYTES],
    });
    return rows[0];
  }

  /** Reads a response that `find` omits because of its length. */
  async readResponse(ref: IdempotencyRef): Promise<string | null> {
    // SQL: as above, for the few long responses.
    const { rows } = await this.#sql.query<{ response: string | null }>(
      "SELECT response FROM idempotency_keys WHERE subject_id = $1 AND route = $2 AND key = $3",
      placeOf(ref),
    );
    return rows[0]?.response ?? null;
  }

  /** Stores the final response, unless one is stored already. `response` is its exact JSON text. */
  async complete(
    ref: IdempotencyRef,
    answer: { statusCode: number; response: string },
  ): Promise<void> {
    // SQL: the last step of every request that moves money, in one round trip.
    await this.#sql.query(
      `UPDATE idempotency_keys SET status_code = $4, response = $5, updated_at = now()
        WHERE subject_id = $1 AND route = $2 AND key = $3 AND status_code IS NULL`,
      [...placeOf(ref), answer.statusCode, answer.response],
    );
  }

  /** Stored before the final response and never over it: the first response of the target stays. */
  async note(ref: IdempotencyRef, storedNote: string): Promise<void> {
    // SQL: as above, while the request waits for proof of the payment.
    await this.#sql.query(
      `UPDATE idempotency_keys SET response = $4, updated_at = now()
        WHERE subject_id = $1 AND route = $2 AND key = $3 AND status_code IS NULL AND response IS NULL`,
      [...placeOf(ref), storedNote],
    );
  }

  /**
   * For a request that reserves nothing, with its response, or that has not reserved yet, to claim the key. Returns
   * false if the key exists.
   */
  async insert(
    ref: IdempotencyRef,
    answer?: { statusCode: number; response: string },
  ): Promise<boolean> {
    // SQL: claims a key outside the payment path, which inserts its own key with the payment.
    const { rowCount } = await this.#sql.query(
      `INSERT INTO idempotency_keys (subject_id, route, key, body_hash, status_code, response)
       VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING`,
      [
        ...placeOf(ref),
        Buffer.from(ref.bodyHash),
        answer?.statusCode ?? null,
        answer?.response ?? null,
      ],
    );
    return rowCount === 1;
  }

  /** Nothing moved: the key may be used again. */
  async release(ref: IdempotencyRef): Promise<void> {
    // SQL: as above, to keep all statements on keys in one place.
    await this.#sql.query(
      `DELETE FROM idempotency_keys
        WHERE subject_id = $1 AND route = $2 AND key = $3 AND status_code IS NULL AND payment_id IS NULL`,
      placeOf(ref),
    );
  }
}

const placeOf = ({ subjectId, route, key }: IdempotencyRef): string[] => [subjectId, route, key];

/** The response of a paid call, while it is stored. */
export async function findPaidAnswer(
  sql: Sql,
  ref: IdempotencyRef,
): Promise<Record<string, unknown> | undefined> {
  const keys = new KeyStore(sql);
  const row = await keys.find(ref);
  if (!row?.paymentId || row.statusCode !== 200) return undefined;
  if (row.isLong) await ref.room?.();
  const response = row.isLong ? await keys.readResponse(ref) : row.response;
  return response === null ? undefined : parseMembers(response);
}

/** The key under which the response to this payment's call is stored. */
export async function findKeyOfPayment(
  sql: Sql,
  { agentId, paymentId, route }: PaymentKey & { route: string },
): Promise<string | undefined> {
  // SQL: the key is inserted with the payment, or claimed shortly before. So the index on its time, read backwards from
  // the payment, finds it after a few rows, and needs no index of its own.
  const { rows } = await sql.query<{ key: string }>(
    `SELECT k.key FROM payments p JOIN idempotency_keys k
         ON k.created_at > p.created_at - interval '5 minutes' AND k.created_at <= p.created_at
        AND k.subject_id = p.agent_id AND k.route = $3 AND k.payment_id = p.id
      WHERE p.agent_id = $1 AND p.id = $2 AND p.kind = 'x402'
      ORDER BY k.created_at DESC LIMIT 1`,
    [agentId, paymentId, route],
  );
  return rows[0]?.key;
}
