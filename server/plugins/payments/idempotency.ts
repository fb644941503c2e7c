/**
 * Idempotency of requests that move money: looks up whether a key was used before, and stores and replays
 * responses.
 */
import { type ExactJson, parseExact, parseMembers, stringifyExact } from "../../core/exact-json.ts";
import { ApiError, type ErrorCode } from "../../errors.ts";
import type { Sql } from "../../infra/db/pool.ts";
import type { IdempotencyRef } from "../guardrails/types.ts";

export interface IdempotencyStore {
  find(ref: IdempotencyRef): Promise<IdempotencyRow | undefined>;
  /** Reads a response that `find` omits because of its length. */
  readResponse(ref: IdempotencyRef): Promise<string | null>;
  /** `response` is the exact JSON text of the response. */
  complete(ref: IdempotencyRef, answer: { statusCode: number; response: string }): Promise<void>;
  /** Stores what is known while the request still runs; the final response replaces it. */
  note(ref: IdempotencyRef, text: string): Promise<void>;
  insert(ref: IdempotencyRef): Promise<boolean>;
  release(ref: IdempotencyRef): Promise<void>;
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

export type Lookup =
  | { kind: "new" }
  | { kind: "free"; freeAnswer: FreeResponse }
  | { kind: "answered"; answer: Answer }
  | { kind: "running"; paymentId: string | null; storedNote: unknown; ageSeconds: number };

const REPLAYED = { "idempotent-replayed": "true" };

export class Idempotency {
  readonly #store: IdempotencyStore;

  constructor(store: IdempotencyStore) {
    this.#store = store;
  }

  async lookup(ref: IdempotencyRef | undefined): Promise<Lookup> {
    if (ref === undefined) return { kind: "new" };
    const row = await this.#store.find(ref);
    if (!row) return { kind: "new" };
    if (!row.isSameBody) throw keyReused();
    const { paymentId, ageSeconds } = row;
    const response = await this.responseOf(ref, row);
    if (row.statusCode === null) {
      const storedNote = response === null ? undefined : parseExact(response);
      return { kind: "running", paymentId, storedNote, ageSeconds };
    }
    const freeAnswer = freeAnswerIn(response);
    if (freeAnswer) return { kind: "free", freeAnswer };
    return { kind: "answered", answer: this.replay(row.statusCode, response, paymentId) };
  }

  /** Replays a stored response; a stored error is thrown again. */
  replay(statusCode: number, text: string | null, paymentId: string | null): Answer {
    if (text === null) throw answerForgotten(paymentId);
    // A request for a free resource has claimed the key meanwhile.
    const freeAnswer = freeAnswerIn(text);
    if (freeAnswer) throw notKept(freeAnswer);
    const body = parseMembers(text);
    if (statusCode >= 400) {
      const { code, detail, extra } = body as unknown as Omit<StoredError, "extra"> & {
        extra: ExactJson;
      };
      throw new ApiError(code, { detail, extra: parseMembers(extra.text), headers: REPLAYED });
    }
    return { statusCode, body, text, replayed: true };
  }

  /** The current row of the key, for a call that waits for another one to finish. */
  async currentRow(ref: IdempotencyRef): Promise<IdempotencyRow | undefined> {
    return this.#store.find(ref);
  }

  /** The stored response of a call. A long one is read once there is memory for it. */
  async responseOf(ref: IdempotencyRef, row: IdempotencyRow): Promise<string | null> {
    if (!row.isLong) return row.response;
    // It may have been paid, so the client must repeat the same call and not make a new one.
    await ref.room?.().catch((cause: unknown) => {
      throw inProgress(row.paymentId, cause);
    });
    return this.#store.readResponse(ref);
  }

  /** Stores the final response unless one is stored already. Returns it with the stored text. */
  async keep<T extends Answer>(ref: IdempotencyRef | undefined, answer: T): Promise<T> {
    if (ref === undefined) return answer;
    const { statusCode, body, text = stringifyExact(body) } = answer;
    await this.#store.complete(ref, { statusCode, response: text });
    return { ...answer, text };
  }

  /** Stores the state of a request without a response yet, for the code that has to finish it. */
  async note(ref: IdempotencyRef | undefined, storedNote: Record<string, unknown>): Promise<void> {
    if (ref !== undefined) await this.#store.note(ref, stringifyExact(storedNote));
  }

  async keepError(ref: IdempotencyRef | undefined, error: ApiError): Promise<void> {
    if (ref === undefined) return;
    const response: StoredError = { code: error.code, detail: error.message, extra: error.extra };
    const text = stringifyExact(response);
    await this.#store.complete(ref, { statusCode: error.status, response: text });
  }

  /**
   * For a request that reserved nothing and has not claimed the key. If another request has claimed it by now,
   * it keeps it.
   */
  async keepFreeResponse(
    ref: IdempotencyRef | undefined,
    body: Record<string, unknown>,
    freeAnswer: FreeResponse | undefined,
    isClaimed = false,
  ): Promise<Answer> {
    const answer = { statusCode: 200, body, replayed: false };
    // A call without a key can be repeated, so nothing is stored.
    if (ref?.joins) return answer;
    const kept = freeAnswer ? { ...answer, body: { freeAnswer } } : answer;
    if (ref !== undefined && (isClaimed || (await this.#store.insert(ref))))
      await this.keep(ref, kept);
    return answer;
  }

  /** Claims the key before anything else is known. Returns false if another request has it. */
  async claim(ref: IdempotencyRef): Promise<boolean> {
    return this.#store.insert(ref);
  }

  async release(ref: IdempotencyRef | undefined): Promise<void> {
    if (ref !== undefined) await this.#store.release(ref);
  }
}

/** A stored free response is short and begins with this member. */
const freeAnswerIn = (response: string | null): FreeResponse | undefined =>
  response?.startsWith('{"freeAnswer":') === true
    ? (JSON.parse(response) as { freeAnswer: FreeResponse }).freeAnswer
    : undefined;

export const notKept = (freeAnswer: FreeResponse, detail?: string): ApiError =>
  new ApiError("answer_not_kept", {
    ...(detail === undefined ? {} : { detail }),
    extra: { freeAnswer, paid: false },
  });

/** The request may have had an effect, and its response was lost with the process. */
export const answerLost = (): ApiError =>
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

export function keyReused(): ApiError {
  return new ApiError("idempotency_key_reused");
}

/** Nothing was signed, and the client no longer waits. */
export const canceled = (cause?: unknown): ApiError => new ApiError("call_canceled", { cause });

/** Marks an error of an earlier call that is returned to a call without a key. */
export function joinedError(error: unknown): unknown {
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

export async function findKey(sql: Sql, ref: IdempotencyRef): Promise<IdempotencyRow | undefined> {
  // SQL: the first query of every request that moves money; prepared.
  const { rows } = await sql.query<IdempotencyRow>({
    name: "idempotency-find",
    text: `SELECT body_hash = $4 AS "isSameBody", payment_id AS "paymentId", status_code AS "statusCode",
                  CASE WHEN octet_length(response) <= $5 THEN response END AS response,
                  COALESCE(octet_length(response) > $5, FALSE) AS "isLong",
                  extract(epoch FROM clock_timestamp() - created_at)::float8 AS "ageSeconds"
             FROM idempotency_keys WHERE subject_id = $1 AND route = $2 AND key = $3`,
    values: [ref.subjectId, ref.route, ref.key, Buffer.from(ref.bodyHash), LONG_BYTES],
  });
  return rows[0];
}

export async function readResponse(
  sql: Sql,
  ref: Pick<IdempotencyRef, "subjectId" | "route" | "key">,
): Promise<string | null> {
  // SQL: as above, for the few long responses.
  const { rows } = await sql.query<{ response: string | null }>(
    "SELECT response FROM idempotency_keys WHERE subject_id = $1 AND route = $2 AND key = $3",
    [ref.subjectId, ref.route, ref.key],
  );
  return rows[0]?.response ?? null;
}

/** The response of a paid call, while it is stored. */
export async function findPaidAnswer(
  sql: Sql,
  ref: IdempotencyRef,
): Promise<Record<string, unknown> | undefined> {
  const row = await findKey(sql, ref);
  if (!row?.paymentId || row.statusCode !== 200) return undefined;
  if (row.isLong) await ref.room?.();
  const response = row.isLong ? await readResponse(sql, ref) : row.response;
  return response === null ? undefined : parseMembers(response);
}

/** Stores the final response, unless one is stored already. */
export async function completeKey(
  sql: Sql,
  ref: IdempotencyRef,
  answer: { statusCode: number; response: string },
): Promise<void> {
  // SQL: the last step of every request that moves money, in one round trip.
  await sql.query(
    `UPDATE idempotency_keys SET status_code = $4, response = $5, updated_at = now()
      WHERE subject_id = $1 AND route = $2 AND key = $3 AND status_code IS NULL`,
    [ref.subjectId, ref.route, ref.key, answer.statusCode, answer.response],
  );
}

/** Stored before the final response and never over it: the first response of the target stays. */
export async function noteOnKey(sql: Sql, ref: IdempotencyRef, storedNote: string): Promise<void> {
  // SQL: as above, while the request waits for proof of the payment.
  await sql.query(
    `UPDATE idempotency_keys SET response = $4, updated_at = now()
      WHERE subject_id = $1 AND route = $2 AND key = $3 AND status_code IS NULL AND response IS NULL`,
    [ref.subjectId, ref.route, ref.key, storedNote],
  );
}

/** For a request that reserves nothing (a free fetch target). Returns false if the key exists. */
export async function insertKey(sql: Sql, ref: IdempotencyRef): Promise<boolean> {
  // SQL: claims a key outside the payment path, which inserts its own key with the payment.
  const { rowCount } = await sql.query(
    `INSERT INTO idempotency_keys (subject_id, route, key, body_hash) VALUES ($1, $2, $3, $4)
     ON CONFLICT DO NOTHING`,
    [ref.subjectId, ref.route, ref.key, Buffer.from(ref.bodyHash)],
  );
  return rowCount === 1;
}

/** Nothing moved: the key may be used again. */
export async function releaseKey(sql: Sql, ref: IdempotencyRef): Promise<void> {
  // SQL: as above, to keep all statements on keys in one place.
  await sql.query(
    `DELETE FROM idempotency_keys
      WHERE subject_id = $1 AND route = $2 AND key = $3 AND status_code IS NULL AND payment_id IS NULL`,
    [ref.subjectId, ref.route, ref.key],
  );
}
