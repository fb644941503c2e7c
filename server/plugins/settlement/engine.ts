/** The engine as the other parts see it: accept, wait, find, cancel; and the lanes that do the work. */
import type { Pool, Sql } from "../../infra/db/pool.ts";
import type { acceptSettlements } from "./accept-store.ts";
import type * as SettlementStore from "./store.ts";
import { ApiError } from "../../errors.ts";
import type { ChainEngine } from "./chain-engine.ts";
import type { SettlementKey } from "../../core/authorization.ts";
import {
  REASON_CANCELED,
  type CancelOutcome,
  type Settlement,
  type SettlementKind,
  type SettlementOutcome,
  type SettlementRequest,
  type SettlementRow,
  type WaitOptions,
} from "./types.ts";
import { outcomeOf } from "./outcome.ts";
import type { Waiters } from "./waiters.ts";

const CANCEL_WAIT_MS = 15_000;

export interface EngineDeps {
  pool: Pool;
  store: typeof SettlementStore;
  acceptSettlements: typeof acceptSettlements;
  chains: ReadonlyMap<number, ChainEngine>;
  waiters: Waiters;
  /** Tells the other replicas that there is work. */
  announce: (chainId: number) => void;
}

export class SettlementEngine implements Settlement {
  readonly #deps: EngineDeps;

  constructor(deps: EngineDeps) {
    this.#deps = deps;
  }

  async assertAvailable(chainId: number, options: { kind?: SettlementKind } = {}): Promise<void> {
    const chain = this.#deps.chains.get(chainId);
    if (!chain)
      throw new ApiError("chain_unavailable", {
        detail: `Network eip155:${chainId} is not configured.`,
      });
    await chain.assertAvailable(options.kind);
  }

  expect(chainId: number): () => void {
    return this.#deps.chains.get(chainId)?.expected.expect() ?? (() => undefined);
  }

  async accept(
    sql: Sql,
    request: SettlementRequest,
  ): Promise<{ created: boolean; settlement: SettlementRow }> {
    const accepted = await this.#deps.store.acceptSettlement(sql, request);
    if (request.relay && accepted.settlement.status === "queued")
      this.#wake(request.authorization.chainId);
    return accepted;
  }

  async acceptAll(
    sql: Sql,
    requests: readonly SettlementRequest[],
  ): Promise<{ created: boolean; settlement: SettlementRow }[]> {
    const accepted = await this.#deps.acceptSettlements(sql, requests);
    const chainIds = new Set(
      requests
        .filter(({ relay }, index) => relay && accepted[index]?.settlement.status === "queued")
        .map(({ authorization }) => authorization.chainId),
    );
    for (const chainId of chainIds) this.#wake(chainId);
    return accepted;
  }

  async wait(id: string, timeoutMs: number, options: WaitOptions = {}): Promise<SettlementOutcome> {
    const { waiters } = this.#deps;
    if (options.look !== true) return waiters.wait(id, timeoutMs);
    const stopLooking = await this.#look(id, options.txHash);
    return waiters.wait(id, timeoutMs).finally(stopLooking);
  }

  /** What is proven here reaches the waiter as every outcome does: through the database's word. */
  async #look(id: string, txHash: `0x${string}` | undefined): Promise<() => void> {
    const { pool, store, chains } = this.#deps;
    const record = await store.findOpenRecord(pool, id);
    const chain = record && chains.get(Number(record.chain_id));
    return chain ? chain.externalRelays.follow(id, txHash) : () => undefined;
  }

  async find(id: string): Promise<SettlementRow | undefined> {
    return this.#deps.store.findSettlement(this.#deps.pool, id);
  }

  async findByAuthorization(key: SettlementKey): Promise<SettlementRow | undefined> {
    return this.#deps.store.findByAuthorization(this.#deps.pool, key);
  }

  async requestCancel(request: {
    key: SettlementKey;
    cancelSignature: `0x${string}`;
    timeoutMs?: number;
  }): Promise<CancelOutcome> {
    const { pool, store } = this.#deps;
    const marked = await store.markForCancel(pool, request.key, request.cancelSignature);
    const row = marked ?? (await store.findByAuthorization(pool, request.key));
    if (!row) throw new Error("requestCancel of an authorization that was never accepted");
    if (marked) this.#wake(request.key.chainId);
    const known = outcomeOf(row);
    // Already in a transaction of ours, or final: its own outcome is the answer.
    return toCancelOutcome(
      known.status === "pending"
        ? await this.wait(row.id, request.timeoutMs ?? CANCEL_WAIT_MS)
        : known,
    );
  }

  #wake(chainId: number): void {
    this.#deps.chains.get(chainId)?.expectWork();
    this.#deps.announce(chainId);
  }
}

function toCancelOutcome(outcome: SettlementOutcome): CancelOutcome {
  if (outcome.status === "settled") {
    const { txHash, blockNumber, settledAt } = outcome;
    return { status: "settled", txHash, blockNumber, settledAt };
  }
  if (outcome.status === "failed" && outcome.reason === REASON_CANCELED)
    return { status: "canceled", ...(outcome.txHash && { txHash: outcome.txHash }) };
  // Expired or otherwise proven impossible: it can never be collected any more.
  return outcome.status === "pending" ? { status: "pending" } : { status: "expired" };
}
