/**
 * Everybody in this process who waits for an outcome. Words come from the database's NOTIFY, whichever
 * replica wrote the outcome; one query for all waiters together covers what was missed.
 */
import type { Hex } from "viem";
import { Coalescer } from "../../core/shared-answers.ts";
import type { SettlementOutcome, SettlementRow, SettlementStatus } from "./types.ts";

const GATHER_MS = 8;
const FALLBACK_MS = 2_000;
const SHARED = { maxBatch: 200, maxInFlight: 2 };

interface Waiter {
  resolve: (outcome: SettlementOutcome) => void;
  reject: (error: unknown) => void;
}

export interface WaitersDeps {
  load: (ids: string[]) => Promise<SettlementRow[]>;
  /** Only those that have come to an end. */
  ended: (ids: string[]) => Promise<SettlementRow[]>;
  onTrouble: (error: unknown) => void;
}

export class Waiters {
  readonly #deps: WaitersDeps;
  readonly #byId = new Map<string, Set<Waiter>>();
  /** Waits that end at the same time look together. */
  readonly #lastLooks: Coalescer<string, SettlementRow | undefined>;
  /** Ids that joined since the last query. */
  #fresh = new Set<string>();
  #gathering: NodeJS.Timeout | undefined;
  #fallback: NodeJS.Timeout | undefined;

  constructor(deps: WaitersDeps) {
    this.#deps = deps;
    this.#lastLooks = new Coalescer(async (ids) => {
      const rows = await deps.load(ids);
      const byId = new Map(rows.map((row) => [row.id, row]));
      return ids.map((id) => byId.get(id));
    }, SHARED);
  }

  get size(): number {
    return this.#byId.size;
  }

  async wait(id: string, timeoutMs: number): Promise<SettlementOutcome> {
    let waiter: Waiter | undefined;
    let timer: NodeJS.Timeout | undefined;
    const outcome = new Promise<SettlementOutcome>((resolve, reject) => {
      waiter = { resolve, reject };
      const waiters = this.#byId.get(id) ?? new Set();
      waiters.add(waiter);
      this.#byId.set(id, waiters);
      // It may have become final before we listened for it.
      this.#fresh.add(id);
      this.#gathering ??= setTimeout(() => void this.#ask(), GATHER_MS);
      this.#fallback ??= setInterval(() => void this.askAll(), FALLBACK_MS).unref();
      timer = setTimeout(() => {
        this.#last(id).then(resolve, reject);
      }, timeoutMs);
    });
    return outcome.finally(() => {
      clearTimeout(timer);
      const waiters = this.#byId.get(id);
      if (waiter) waiters?.delete(waiter);
      if (waiters?.size === 0) this.#byId.delete(id);
      if (this.#byId.size === 0) {
        clearInterval(this.#fallback);
        this.#fallback = undefined;
      }
    });
  }

  /** Words from the database, one or several: `{id, status, txHash, block, at, byOther, reason, message, value}`. */
  hear(payload: string): void {
    for (const word of [JSON.parse(payload) as OutcomeNotice | OutcomeNotice[]].flat())
      this.#hear(word);
  }

  #hear(word: OutcomeNotice): void {
    const waiters = this.#byId.get(word.id);
    if (!waiters) return;
    const outcome = outcomeOfWord(word);
    // Taken back by a reorganisation: its end is to be waited for again.
    if (outcome.status === "pending") return;
    for (const waiter of waiters) waiter.resolve(outcome);
  }

  /** Looks after everyone: after a lost connection, and now and then. */
  async askAll(): Promise<void> {
    this.#fresh = new Set(this.#byId.keys());
    await this.#ask();
  }

  async #ask(): Promise<void> {
    clearTimeout(this.#gathering);
    this.#gathering = undefined;
    const ids = [...this.#fresh].filter((id) => this.#byId.has(id));
    this.#fresh = new Set();
    if (ids.length === 0) return;
    try {
      for (const row of await this.#deps.ended(ids)) {
        const outcome = outcomeOf(row);
        if (outcome.status === "pending") continue;
        for (const waiter of this.#byId.get(row.id) ?? []) waiter.resolve(outcome);
      }
    } catch (error) {
      // The next round queries again, and every wait ends with a query of its own.
      this.#deps.onTrouble(error);
    }
  }

  async #last(id: string): Promise<SettlementOutcome> {
    const row = await this.#lastLooks.fetch(id);
    return row ? outcomeOf(row) : { status: "pending", id };
  }
}

interface OutcomeNotice {
  id: string;
  status: SettlementStatus;
  txHash: Hex | null;
  block: string | null;
  at: string | null;
  byOther: boolean;
  reason: string | null;
  message: string | null;
  value: string;
}

function outcomeOfWord(word: OutcomeNotice): SettlementOutcome {
  const { id, status, txHash, byOther } = word;
  return outcomeOf({
    id,
    status,
    txHash,
    byOther,
    errorReason: word.reason,
    errorMessage: word.message,
    blockNumber: word.block === null ? null : BigInt(word.block),
    settledAt: word.at === null ? null : new Date(word.at),
    authorization: { value: BigInt(word.value) },
  });
}

/** The outcome that a settlement's row holds. */

type OutcomeFields = Pick<
  SettlementRow,
  | "id"
  | "status"
  | "txHash"
  | "blockNumber"
  | "settledAt"
  | "byOther"
  | "errorReason"
  | "errorMessage"
> & { authorization: Pick<SettlementRow["authorization"], "value"> };

export function outcomeOf(row: OutcomeFields): SettlementOutcome {
  const { id, txHash } = row;
  if (row.status === "settled" && txHash && row.settledAt)
    return {
      status: "settled",
      id,
      txHash,
      blockNumber: row.blockNumber ?? 0n,
      settledAt: row.settledAt,
      byOther: row.byOther,
      amountAtomic: row.authorization.value,
    };
  if (row.status === "failed" || row.status === "expired") {
    const reason = row.errorReason ?? "unexpected_settle_error";
    return {
      status: row.status,
      id,
      reason,
      message: row.errorMessage ?? reason,
      ...(txHash && { txHash }),
    };
  }
  return { status: "pending", id, ...(txHash && { txHash }) };
}
