/**
 * Calls without an Idempotency-Key (docs/decisions/0025): which earlier call an identical call joins, and when
 * a response counts as delivered.
 * A response is delivered when its last byte was written to an open connection and no cancellation followed. A
 * lost delivery mark makes the next identical call a replay, never a second payment.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { parseExact } from "../../core/exact-json.ts";
import type { IdempotencyRef, JoiningCall } from "../guardrails/types.ts";
import { inProgress, joinedError, type Answer, type Idempotency } from "./idempotency.ts";
import type { Delivered, PaymentKey, PaymentPlan } from "./payment-plan.ts";
import type { PaymentRow } from "./store.ts";

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

export interface EarlierCall {
  key: string;
  /** How long ago its response was delivered; null: not yet. */
  deliveredAgoMs: number | null;
  /** It ended just now: its delivery may not be stored yet. */
  isFresh: boolean;
}

export interface JoiningStore {
  earlier(ref: IdempotencyRef): Promise<EarlierCall | undefined>;
  markDelivered(args: { ref: IdempotencyRef; key: string; atMs: number }): Promise<void>;
}

/** Delays while waiting for the delivery mark of another process to become visible. */
const MARK_PAUSES_MS = [20, 40, 80, 120, 240];
/**
 * The time between the last byte of a response and another process's mark for it. A client that pays the same
 * again needs longer than this to read the response and send a request.
 */
const TOLERANCE_MS = 20;
/** How long marks of this process are compared by its own clock. */
const REMEMBERED_MS = 60_000;

export class Joining {
  readonly #store: JoiningStore;
  readonly #warn: (error: unknown) => void;
  readonly #marking = new Map<string, Promise<void>>();
  readonly #deliveredAtMs = new Map<string, number>();

  constructor(store: JoiningStore, warn: (error: unknown) => void) {
    this.#store = store;
    this.#warn = warn;
  }

  /** The key of the call to join, if there is one. */
  async earlier(ref: IdempotencyRef, joins: JoiningCall): Promise<string | undefined> {
    for (let turn = 0; ; turn += 1) {
      const row = await this.#store.earlier(ref);
      if (!row) return undefined;
      const { deliveredAgoMs } = row;
      const marking = this.#marking.get(row.key);
      if (marking && deliveredAgoMs === null) {
        await marking;
        this.#marking.delete(row.key);
        continue;
      }
      if (deliveredAgoMs !== null) {
        // Delivered by another process: at this time at the latest, however long the database write took.
        const deliveredAtMs =
          this.#deliveredAtMs.get(row.key) ?? performance.now() - deliveredAgoMs - TOLERANCE_MS;
        if (deliveredAtMs > joins.cameAtMs) return row.key;
        joins.deliveredKey = row.key;
        return undefined;
      }
      const pauseMs = MARK_PAUSES_MS[turn];
      if (!row.isFresh || pauseMs === undefined) return row.key;
      await sleep(pauseMs);
    }
  }

  /** The whole response of this call has been sent. */
  noteDelivered(ref: IdempotencyRef): void {
    const key = ref.joins?.answeredBy;
    if (key === undefined) return;
    const atMs = performance.now();
    this.#deliveredAtMs.set(key, atMs);
    const marking = this.#store
      .markDelivered({ ref, key, atMs })
      .catch(this.#warn)
      .finally(() => {
        if (this.#marking.get(key) === marking) this.#marking.delete(key);
      });
    this.#marking.set(key, marking);
    for (const [old, deliveredAtMs] of this.#deliveredAtMs) {
      if (atMs - deliveredAtMs < REMEMBERED_MS) break;
      this.#deliveredAtMs.delete(old);
    }
  }

  /** Waits for marks that are being stored, before the connections close. */
  async end(): Promise<void> {
    await Promise.all(this.#marking.values());
  }
}

/** How often a call checks whether the one it joined has ended; the delay grows. */
const FIRST_LOOK_MS = 60;
const LAST_LOOK_MS = 1_000;

interface EarlierCallDeps {
  idempotency: Pick<Idempotency, "currentRow" | "replay" | "responseOf">;
  store: { find(key: PaymentKey): Promise<PaymentRow | undefined> };
  /** Releases a reservation that a dead process did not sign. */
  voidAbandoned(key: PaymentKey): Promise<boolean>;
  finish(key: PaymentKey, plan: PaymentPlan, delivered: Delivered): Promise<Answer>;
}

/**
 * Waits for the end of an earlier call and returns its response. Undefined: it moved nothing, so this call must
 * pay itself.
 */
export async function awaitEarlierCall(
  deps: EarlierCallDeps,
  call: { held: IdempotencyRef; joins: JoiningCall; prepare: () => Promise<PaymentPlan> },
): Promise<Answer | undefined> {
  const { idempotency, store } = deps;
  const { held, joins, prepare } = call;
  for (let pauseMs = FIRST_LOOK_MS; ; pauseMs = Math.min(pauseMs * 1.5, LAST_LOOK_MS)) {
    const row = await idempotency.currentRow(held);
    if (!row || row.paymentId === null) return undefined;
    const key = { agentId: held.subjectId, paymentId: row.paymentId };
    const payment = await store.find(key);
    if (!payment || payment.status === "voided") return undefined;
    const { statusCode } = row;
    if (statusCode !== null) {
      const response = await idempotency.responseOf(held, row);
      joins.answeredBy = held.key;
      return joined(() => idempotency.replay(statusCode, response, row.paymentId));
    }
    const plan = await prepare();
    if (plan.isOver(payment) && payment.status === "reserved") {
      // Otherwise another call has released it, or it was signed after all: the next check shows which.
      if (await deps.voidAbandoned(key)) return undefined;
    } else if (plan.isOver(payment)) {
      const response = await idempotency.responseOf(held, row);
      const delivered = await plan.resume(
        payment,
        response === null ? undefined : parseExact(response),
        held,
      );
      const isVoid = async () => (await store.find(key))?.status === "voided";
      if (delivered.kind === "failed" && (await isVoid())) return undefined;
      if (delivered.kind !== "unknown") joins.answeredBy = held.key;
      return joined(() => deps.finish(key, plan, delivered));
    }
    if (joins.isGone()) throw inProgress(row.paymentId);
    await sleep(pauseMs);
  }
}

async function joined(answerOf: () => Answer | Promise<Answer>): Promise<Answer> {
  try {
    return { ...(await answerOf()), joined: true };
  } catch (error) {
    throw joinedError(error);
  }
}
