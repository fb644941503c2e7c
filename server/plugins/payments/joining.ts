/**
 * Calls that come without a key (docs/decisions/0025): which earlier one an identical call joins, and when an answer
 * counts as delivered. An answer is delivered when its last byte was written to an open connection, and no cancellation
 * followed. A lost mark makes the next identical call a replay, never a second payment.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { parseExact } from "../../core/exact-json.ts";
import type { IdempotencyRef, JoiningCall } from "../guardrails/types.ts";
import { inProgress, joinedError, type Answer, type Idempotency } from "./idempotency.ts";
import type { Delivered, PaymentKey, PaymentPlan } from "./payment-plan.ts";
import type { PaymentRow } from "./store.ts";

/** A caller that makes our own call for somebody else and passes the answer on: the MCP server. */
export interface Intermediary {
  /** What a cancellation names. */
  call: string;
  cameAtMs: number;
  isGone: () => boolean;
  isCanceled: () => boolean;
  /** Set by the call: run when the intermediary's own answer is delivered. */
  ref?: IdempotencyRef;
  /** Runs it once the intermediary's own answer has left, or can leave no more. */
  whenSent(run: () => void): void;
}

/** Names, in a request of this process to itself, for whom it is made. */
export const INTERMEDIARY = "purser-intermediary";

export interface EarlierCall {
  key: string;
  /** How long ago its answer was delivered; null: not yet. */
  deliveredAgoMs: number | null;
  /** It ended just now: its delivery may not be stored yet. */
  isFresh: boolean;
}

export interface JoiningStore {
  earlier(ref: IdempotencyRef): Promise<EarlierCall | undefined>;
  told(args: { ref: IdempotencyRef; key: string; atMs: number }): Promise<void>;
}

/** How long the mark of an answer that another process delivered may take to be visible here. */
const MARK_PAUSES_MS = [20, 40, 80, 120, 240];
/**
 * Between an answer's last byte and the mark of another process for it; a client that pays the same again takes longer to
 * read the answer and to send a request.
 */
const TOLERANCE_MS = 20;
/** A mark of this process is compared with its own clock for so long. */
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
        // By another process: at the latest then, however long the database connection took.
        const toldAtMs =
          this.#deliveredAtMs.get(row.key) ?? performance.now() - deliveredAgoMs - TOLERANCE_MS;
        if (toldAtMs > joins.cameAtMs) return row.key;
        joins.heard = row.key;
        return undefined;
      }
      const pauseMs = MARK_PAUSES_MS[turn];
      if (!row.isFresh || pauseMs === undefined) return row.key;
      await sleep(pauseMs);
    }
  }

  /** The answer of this call has gone out whole. */
  heard(ref: IdempotencyRef): void {
    const key = ref.joins?.answeredBy;
    if (key === undefined) return;
    const atMs = performance.now();
    this.#deliveredAtMs.set(key, atMs);
    const marking = this.#store
      .told({ ref, key, atMs })
      .catch(this.#warn)
      .finally(() => {
        if (this.#marking.get(key) === marking) this.#marking.delete(key);
      });
    this.#marking.set(key, marking);
    for (const [old, toldAtMs] of this.#deliveredAtMs) {
      if (atMs - toldAtMs < REMEMBERED_MS) break;
      this.#deliveredAtMs.delete(old);
    }
  }

  /** What is under way, before the connections close. */
  async end(): Promise<void> {
    await Promise.all(this.#marking.values());
  }
}

/** How often a call looks whether the one it joined has ended: ever more rarely. */
const FIRST_LOOK_MS = 60;
const LAST_LOOK_MS = 1_000;

interface EarlierCallDeps {
  idempotency: Pick<Idempotency, "look" | "replay" | "responseOf">;
  store: { find(key: PaymentKey): Promise<PaymentRow | undefined> };
  /** Releases what a dead process reserved and did not sign. */
  voidAbandoned(key: PaymentKey): Promise<boolean>;
  tell(key: PaymentKey, order: PaymentPlan, delivered: Delivered): Promise<Answer>;
}

/** Waits for the end of an earlier call and returns it. Undefined: it moved nothing, so it does not answer this call. */
export async function awaitEarlierCall(
  deps: EarlierCallDeps,
  call: { held: IdempotencyRef; joins: JoiningCall; prepare: () => Promise<PaymentPlan> },
): Promise<Answer | undefined> {
  const { idempotency, store } = deps;
  const { held, joins, prepare } = call;
  for (let pauseMs = FIRST_LOOK_MS; ; pauseMs = Math.min(pauseMs * 1.5, LAST_LOOK_MS)) {
    const row = await idempotency.look(held);
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
    const order = await prepare();
    if (order.isOver(payment) && payment.status === "reserved") {
      // Else another call has released it, or it was signed after all: the next check shows which.
      if (await deps.voidAbandoned(key)) return undefined;
    } else if (order.isOver(payment)) {
      const response = await idempotency.responseOf(held, row);
      const delivered = await order.resume(
        payment,
        response === null ? undefined : parseExact(response),
        held,
      );
      const isVoid = async () => (await store.find(key))?.status === "voided";
      if (delivered.kind === "failed" && (await isVoid())) return undefined;
      if (delivered.kind !== "unknown") joins.answeredBy = held.key;
      return joined(() => deps.tell(key, order, delivered));
    }
    if (joins.isGone()) throw inProgress(row.paymentId);
    await sleep(pauseMs);
  }
}

async function joined(tell: () => Answer | Promise<Answer>): Promise<Answer> {
  try {
    return { ...(await tell()), joined: true };
  } catch (error) {
    throw joinedError(error);
  }
}
