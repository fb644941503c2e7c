/**
 * Callers in this process that wait for an outcome. Outcomes arrive through Postgres NOTIFY, whichever replica
 * wrote them; one query for all waiters together finds missed notifications.
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

interface WaitersDeps {
  load: (ids: string[]) => Promise<SettlementRow[]>;
  /** Returns only settlements that have ended. */
  ended: (ids: string[]) => Promise<SettlementRow[]>;
  onTrouble: (error: unknown) => void;
}

export class Waiters {
  readonly #deps: WaitersDeps;
  readonly #byId = new Map<string, Set<Waiter>>();
  /** Waits that time out at the same moment share one query. */
  readonly #finalQueries: Coalescer<string, SettlementRow | undefined>;
  /** Ids that joined since the last query. */
  #fresh = new Set<string>();
  #gathering: NodeJS.Timeout | undefined;
  #fallback: NodeJS.Timeout | undefined;

  constructor(deps: WaitersDeps) {
    this.#deps = deps;
    this.#finalQueries = new Coalescer(async (ids) => {
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
      // The outcome may have been written before this waiter was registered.
      this.#fresh.add(id);
      this.#gathering ??= setTimeout(() => void this.#query(), GATHER_MS);
      this.#fallback ??= setInterval(() => void this.queryAll(), FALLBACK_MS).unref();
      timer = setTimeout(() => {
        this.#finalQuery(id).then(resolve, reject);
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

  /**
   * Handles a notification, with one or several outcomes: `{id, status, txHash, block, at, byOther, reason,
   * message, value}`.
   */
  receive(payload: string): void {
    for (const notice of [JSON.parse(payload) as OutcomeNotice | OutcomeNotice[]].flat())
      this.#notify(notice);
  }

  #notify(notice: OutcomeNotice): void {
    const waiters = this.#byId.get(notice.id);
    if (!waiters) return;
    const outcome = outcomeOfNotice(notice);
    // A reorganisation reopened the payment: keep waiting for its end.
    if (outcome.status === "pending") return;
    for (const waiter of waiters) waiter.resolve(outcome);
  }

  /** Queries all waiters: after a lost connection, and periodically. */
  async queryAll(): Promise<void> {
    this.#fresh = new Set(this.#byId.keys());
    await this.#query();
  }

  async #query(): Promise<void> {
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
      // The next round queries again, and every wait ends with its own query.
      this.#deps.onTrouble(error);
    }
  }

  async #finalQuery(id: string): Promise<SettlementOutcome> {
    const row = await this.#finalQueries.fetch(id);
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

function outcomeOfNotice(notice: OutcomeNotice): SettlementOutcome {
  const { id, status, txHash, byOther } = notice;
  return outcomeOf({
    id,
    status,
    txHash,
    byOther,
    errorReason: notice.reason,
    errorMessage: notice.message,
    blockNumber: notice.block === null ? null : BigInt(notice.block),
    settledAt: notice.at === null ? null : new Date(notice.at),
    authorization: { value: BigInt(notice.value) },
  });
}

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

/** Converts a settlement row to an outcome. */
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
