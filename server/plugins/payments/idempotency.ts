/** The first lookup of a request that moves money: was it asked before, and what was the answer? */
import { ApiError, type ErrorCode } from "../../errors.ts";
import type { IdempotencyRow } from "./idempotency-store.ts";
import type { IdempotencyRef } from "../guardrails/types.ts";

export interface IdempotencyStore {
  find(ref: IdempotencyRef): Promise<IdempotencyRow | undefined>;
  complete(ref: IdempotencyRef, answer: { statusCode: number; response: unknown }): Promise<void>;
  insert(ref: IdempotencyRef): Promise<boolean>;
  release(ref: IdempotencyRef): Promise<void>;
}

/** What the caller hears. A replayed one carries `Idempotent-Replayed: true`. */
export interface Answer {
  statusCode: number;
  body: Record<string, unknown>;
  replayed: boolean;
}

/** An error as the key remembers it; the request id is each request's own. */
interface StoredError {
  code: ErrorCode;
  detail: string;
  extra: Record<string, unknown>;
}

export type Lookup =
  | { kind: "new" }
  | { kind: "answered"; answer: Answer }
  | { kind: "running"; paymentId: string | null };

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
    if (row.statusCode === null) return { kind: "running", paymentId: row.paymentId };
    return { kind: "answered", answer: this.replay(row.statusCode, row.response) };
  }

  /** A stored answer, told again; a stored error is thrown again. */
  replay(statusCode: number, response: unknown): Answer {
    if (statusCode >= 400) {
      const { code, detail, extra } = response as StoredError;
      throw new ApiError(code, { detail, extra, headers: REPLAYED });
    }
    return { statusCode, body: response as Record<string, unknown>, replayed: true };
  }

  /** Stores the final answer; the first one stays. */
  async keep(ref: IdempotencyRef | undefined, answer: Answer): Promise<void> {
    if (ref === undefined) return;
    await this.#store.complete(ref, { statusCode: answer.statusCode, response: answer.body });
  }

  async keepError(ref: IdempotencyRef | undefined, error: ApiError): Promise<void> {
    if (ref === undefined) return;
    const response: StoredError = { code: error.code, detail: error.message, extra: error.extra };
    await this.#store.complete(ref, { statusCode: error.status, response });
  }

  /** For a request that reserved nothing, so nothing took the key yet. Where somebody has it by now, it is his. */
  async keepUnpaid(
    ref: IdempotencyRef | undefined,
    body: Record<string, unknown>,
  ): Promise<Answer> {
    const answer = { statusCode: 200, body, replayed: false };
    if (ref !== undefined && (await this.#store.insert(ref))) await this.keep(ref, answer);
    return answer;
  }

  async release(ref: IdempotencyRef | undefined): Promise<void> {
    if (ref !== undefined) await this.#store.release(ref);
  }
}

export function keyReused(): ApiError {
  return new ApiError("idempotency_key_reused");
}

export function inProgress(paymentId: string | null): ApiError {
  return new ApiError("idempotency_in_progress", {
    headers: { "retry-after": "1" },
    extra: { paymentId },
  });
}
