/** The first lookup of a request that moves money: was it sent before, and what was the answer? */
import { type ExactJson, parseExact, parseMembers, stringifyExact } from "../../core/exact-json.ts";
import { ApiError, type ErrorCode } from "../../errors.ts";
import type { Sql } from "../../infra/db/pool.ts";
import type { IdempotencyRef } from "../guardrails/types.ts";

export interface IdempotencyStore {
  find(ref: IdempotencyRef): Promise<IdempotencyRow | undefined>;
  /** A response that `find` leaves out for its length. */
  readResponse(ref: IdempotencyRef): Promise<string | null>;
  /** `response` is the answer's JSON, kept to the letter. */
  complete(ref: IdempotencyRef, answer: { statusCode: number; response: string }): Promise<void>;
  /** What is known of an answer while its request still runs; gone with the next word about it. */
  note(ref: IdempotencyRef, heard: string): Promise<void>;
  insert(ref: IdempotencyRef): Promise<boolean>;
  release(ref: IdempotencyRef): Promise<void>;
}

/** The answer for the caller. A replayed one carries `Idempotent-Replayed: true`. */
export interface Answer {
  statusCode: number;
  body: Record<string, unknown>;
  /** The body as it is kept, and returned again byte for byte; without it the body is written anew. */
  text?: string;
  replayed: boolean;
  /** Replayed to a call without a key, which did not expect it: the body says so too. */
  joined?: true;
}

/** A sentence for a call that joined an earlier one, in words that a model follows. */
export const JOINED = {
  replayed: true,
  next: "This is the response to your earlier identical call, which did not reach you. Nothing was paid now. To buy it again, repeat the call with a new Idempotency-Key.",
};

/** An error as the key remembers it; the request id is each request's own. */
interface StoredError {
  code: ErrorCode;
  detail: string;
  extra: Record<string, unknown>;
}

/** All that is kept of a free answer: enough to know that there was one, too little to fill a disk. */
export interface FreeResponse {
  status: number;
  bytes: number;
  sha256: string;
}

export type Lookup =
  | { kind: "new" }
  | { kind: "free"; freeAnswer: FreeResponse }
  | { kind: "answered"; answer: Answer }
  | { kind: "running"; paymentId: string | null; heard: unknown; ageSeconds: number };

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
      const heard = response === null ? undefined : parseExact(response);
      return { kind: "running", paymentId, heard, ageSeconds };
    }
    const freeAnswer = freeAnswerIn(response);
    if (freeAnswer) return { kind: "free", freeAnswer };
    return { kind: "answered", answer: this.replay(row.statusCode, response, paymentId) };
  }

  /** A stored answer, returned again; a stored error is thrown again. */
  replay(statusCode: number, text: string | null, paymentId: string | null): Answer {
    if (text === null) throw answerForgotten(paymentId);
    // It took the key meanwhile.
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

  /** The key's row as it is, for a call that waits for its end. */
  async look(ref: IdempotencyRef): Promise<IdempotencyRow | undefined> {
    return this.#store.find(ref);
  }

  /** What is kept of a call; a long text is read once there is room for it. */
  async responseOf(ref: IdempotencyRef, row: IdempotencyRow): Promise<string | null> {
    if (!row.isLong) return row.response;
    // It may have been paid: a repeat of the same call is right, and a new one would not be.
    await ref.room?.().catch((cause: unknown) => {
      throw inProgress(row.paymentId, cause);
    });
    return this.#store.readResponse(ref);
  }

  /** Stores the final answer; the first one stays. Answers it with the text that is kept. */
  async keep<T extends Answer>(ref: IdempotencyRef | undefined, answer: T): Promise<T> {
    if (ref === undefined) return answer;
    const { statusCode, body, text = stringifyExact(body) } = answer;
    await this.#store.complete(ref, { statusCode, response: text });
    return { ...answer, text };
  }

  /** The state of a request that has no answer yet, for the code that has to finish it. */
  async note(ref: IdempotencyRef | undefined, heard: Record<string, unknown>): Promise<void> {
    if (ref !== undefined) await this.#store.note(ref, stringifyExact(heard));
  }

  async keepError(ref: IdempotencyRef | undefined, error: ApiError): Promise<void> {
    if (ref === undefined) return;
    const response: StoredError = { code: error.code, detail: error.message, extra: error.extra };
    const text = stringifyExact(response);
    await this.#store.complete(ref, { statusCode: error.status, response: text });
  }

  /** For a request that reserved nothing, so nothing took the key yet. Where somebody has it by now, it is his. */
  async keepFreeResponse(
    ref: IdempotencyRef | undefined,
    body: Record<string, unknown>,
    freeAnswer: FreeResponse | undefined,
    isClaimed = false,
  ): Promise<Answer> {
    const answer = { statusCode: 200, body, replayed: false };
    // A call without a key is requested again.
    if (ref?.joins) return answer;
    const kept = freeAnswer ? { ...answer, body: { freeAnswer } } : answer;
    if (ref !== undefined && (isClaimed || (await this.#store.insert(ref))))
      await this.keep(ref, kept);
    return answer;
  }

  /** Takes the key before anything is known; false: somebody has it. */
  async claim(ref: IdempotencyRef): Promise<boolean> {
    return this.#store.insert(ref);
  }

  async release(ref: IdempotencyRef | undefined): Promise<void> {
    if (ref !== undefined) await this.#store.release(ref);
  }
}

/** Such an answer is short, and begins with it. */
const freeAnswerIn = (response: string | null): FreeResponse | undefined =>
  response?.startsWith('{"freeAnswer":') === true
    ? (JSON.parse(response) as { freeAnswer: FreeResponse }).freeAnswer
    : undefined;

export const notKept = (freeAnswer: FreeResponse, detail?: string): ApiError =>
  new ApiError("answer_not_kept", {
    ...(detail === undefined ? {} : { detail }),
    extra: { freeAnswer, paid: false },
  });

/** A request that may have had an effect, and whose answer was lost with the process. */
export const answerLost = (): ApiError =>
  new ApiError("answer_not_kept", {
    detail:
      "The request with this key may have reached the target, but its response was lost. It is not sent again. Nothing was paid. Use a new key to send it again.",
    extra: { paid: false },
  });

/** For a call without a key whose answer was delivered once: only the payment's row is left. */
const answerForgotten = (paymentId: string | null): ApiError =>
  new ApiError("answer_not_kept", {
    detail:
      "This call was answered before, and the response is no longer stored. Nothing was paid now; `paymentId` is the earlier payment. Use a new key to pay again.",
    extra: { paymentId },
  });

export function keyReused(): ApiError {
  return new ApiError("idempotency_key_reused");
}

/** Nothing was signed, and nobody waits for it any more. */
export const canceled = (cause?: unknown): ApiError => new ApiError("call_canceled", { cause });

/** An error of an earlier call, for a call without a key. */
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
  /** Null while the request runs, or when its process died, or when its answer was "unknown". */
  statusCode: number | null;
  /** JSON to the letter: the answer, or what was noted before there was one. Null also where it is long. */
  response: string | null;
  isLong: boolean;
  ageSeconds: number;
}

/** A longer response is read by a statement of its own, once there is room for it. */
const LONG_BYTES = 64 * 1024;

export async function findKey(sql: Sql, ref: IdempotencyRef): Promise<IdempotencyRow | undefined> {
  // SQL: the first look of every request that moves money; prepared.
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
  // SQL: as above, of the few that are long.
  const { rows } = await sql.query<{ response: string | null }>(
    "SELECT response FROM idempotency_keys WHERE subject_id = $1 AND route = $2 AND key = $3",
    [ref.subjectId, ref.route, ref.key],
  );
  return rows[0]?.response ?? null;
}

/** What a paid call answered, while that is kept. */
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

/** Stores the final answer once; the first one stays. */
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

/** Before the final answer, and never over it: the first response of the target stays. */
export async function noteOnKey(sql: Sql, ref: IdempotencyRef, heard: string): Promise<void> {
  // SQL: as above, while the payment's proof is waited for.
  await sql.query(
    `UPDATE idempotency_keys SET response = $4, updated_at = now()
      WHERE subject_id = $1 AND route = $2 AND key = $3 AND status_code IS NULL AND response IS NULL`,
    [ref.subjectId, ref.route, ref.key, heard],
  );
}

/** For a request that reserves nothing (a free x402-fetch target): false when the key exists. */
export async function insertKey(sql: Sql, ref: IdempotencyRef): Promise<boolean> {
  // SQL: the reservation of a key beside the money path, which inserts its own with the payment.
  const { rowCount } = await sql.query(
    `INSERT INTO idempotency_keys (subject_id, route, key, body_hash) VALUES ($1, $2, $3, $4)
     ON CONFLICT DO NOTHING`,
    [ref.subjectId, ref.route, ref.key, Buffer.from(ref.bodyHash)],
  );
  return rowCount === 1;
}

/** Nothing moved: the key may be used again. */
export async function releaseKey(sql: Sql, ref: IdempotencyRef): Promise<void> {
  // SQL: as above: what a spend does with its key is in one place and one language.
  await sql.query(
    `DELETE FROM idempotency_keys
      WHERE subject_id = $1 AND route = $2 AND key = $3 AND status_code IS NULL AND payment_id IS NULL`,
    [ref.subjectId, ref.route, ref.key],
  );
}
