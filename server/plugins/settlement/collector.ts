/** Settlements that a lane has claimed and not sent yet: their order, their batch, and when it may be sent. */
import {
  type BatchItem,
  gasLimitOf,
  isThirdParty,
  RESERVED_PLACES,
  MAX_BATCH,
  MAX_IN_FLIGHT,
  SOLO_PLACES,
  toBatchItem,
} from "./batch.ts";
import type { EngineContext } from "./context.ts";
import type { Lease } from "./lane-store.ts";
import { inQueueOrder } from "./queue-store.ts";

export interface CollectorDeps {
  ctx: EngineContext;
  lease: Lease;
  /** Transactions that are in no block yet, signed or about to be. */
  inFlight: () => number;
  /** The items of those transactions, as far as this process claimed them. */
  ahead: () => readonly BatchItem[][];
}

const MAX_CLAIM = 500;
/** A batch waits this fraction of a block time for more payments, ... */
const PATIENCE = 0.4;
/**
 * ... and is sent at least this long before the next block is due, plus the time for preflight, signing and
 * sending.
 */
const SPARE_MS = 60;

const clamp = (wanted: number, atMost: number): number => Math.max(Math.min(wanted, atMost), 0);

export class Collector {
  readonly #deps: CollectorDeps;
  #items: BatchItem[] = [];
  #batchLimit = MAX_BATCH;

  constructor(deps: CollectorDeps) {
    this.#deps = deps;
  }

  get isEmpty(): boolean {
    return this.#items.length === 0;
  }

  /** Claims as many settlements as there is room for; returns their number. */
  async claim(): Promise<number> {
    const { ctx, lease, inFlight } = this.#deps;
    const places = MAX_IN_FLIGHT - inFlight();
    const solos = this.#items.filter((item) => item.solo);
    const ownSolos = solos.filter((item) => !isThirdParty(item)).length;
    const thirdPartySolos = solos.length - ownSolos + this.#thirdPartySolosAhead;
    const room = {
      batchable: clamp(places * MAX_BATCH - this.#batchable.length, MAX_CLAIM),
      ownSolo: clamp(places - ownSolos, MAX_IN_FLIGHT),
      thirdPartySolo: places > 0 ? clamp(SOLO_PLACES - thirdPartySolos, places) : 0,
    };
    if (room.batchable + room.ownSolo + room.thirdPartySolo === 0) return 0;
    const rows = await ctx.queue.claim(ctx.pool, lease, room);
    if (rows.length === 0) return 0;
    await ctx.fault("claimed");
    this.#items.push(...rows.map((row) => toBatchItem(row, ctx.gasCapPerItem)));
    this.#items.sort((one, other) => inQueueOrder(one.record, other.record));
    return rows.length;
  }

  /** Returns what may be sent immediately: a payment that is sent alone anyway, or a full batch. */
  takeReady(): BatchItem[] | undefined {
    const solo = this.#items.find((item) => item.solo && this.#mayLeave([item]));
    if (solo) return this.#take([solo]);
    const batch = this.#nextBatch();
    return batch.length === this.#batchLimit && this.#mayLeave(batch)
      ? this.#take(batch)
      : undefined;
  }

  /** Returns the next batch even if it is not full; undefined when there is none or it may not be sent yet. */
  takeBatch(): BatchItem[] | undefined {
    const batch = this.#nextBatch();
    return batch.length > 0 && this.#mayLeave(batch) ? this.#take(batch) : undefined;
  }

  get isLone(): boolean {
    return this.#items.length === 1;
  }

  get hasBatchable(): boolean {
    return this.#batchable.length > 0;
  }

  /** The next batch contains a withdrawal. */
  get hasWithdrawal(): boolean {
    return this.#batchable[0]?.record.class === 0;
  }

  /** Removes and returns all items, so that they can be returned to the queue. */
  empty(): BatchItem[] {
    return this.#items.splice(0);
  }

  /**
   * Nodes rejected a transaction of this many items for good: the next batches are smaller, and grow as they
   * are mined.
   */
  shrink(items: number): void {
    this.#batchLimit = Math.max(Math.floor(Math.min(items, this.#batchLimit) / 4), 1);
  }

  grow(): void {
    this.#batchLimit = Math.min(this.#batchLimit * 2, MAX_BATCH);
  }

  get #batchable(): BatchItem[] {
    return this.#items.filter((item) => !item.solo);
  }

  #nextBatch(): BatchItem[] {
    // Of two payments with the same trace on chain, it would later be unknown which one was paid: only one goes
    // into a batch.
    const traces = new Set<string>();
    const isFirst = ({ trace }: BatchItem): boolean =>
      trace === undefined || (!traces.has(trace) && traces.add(trace) !== undefined);
    return this.#batchable.filter(isFirst).slice(0, this.#batchLimit);
  }

  #take(items: BatchItem[]): BatchItem[] {
    const leaving = new Set(items);
    this.#items = this.#items.filter((item) => !leaving.has(item));
    return items;
  }

  get #thirdPartySolosAhead(): number {
    return this.#deps.ahead().filter(([item]) => item?.solo === true && isThirdParty(item)).length;
  }

  /**
   * Third-party payments leave one place to withdrawals and agents, and never put more gas ahead of them than
   * two blocks hold. So a withdrawal or an agent's payment gets into one of the next two blocks, however many
   * third-party payments arrive.
   */
  #mayLeave(items: readonly BatchItem[]): boolean {
    const { ctx, inFlight, ahead } = this.#deps;
    if (inFlight() >= MAX_IN_FLIGHT) return false;
    if (!items.every(isThirdParty)) return true;
    if (inFlight() >= MAX_IN_FLIGHT - RESERVED_PLACES) return false;
    if (items[0]?.solo === true && this.#thirdPartySolosAhead >= SOLO_PLACES) return false;
    const gasAhead = ahead().reduce((sum, batch) => sum + gasLimitOf(batch), 0n);
    const blockGas = ctx.heads.head?.gasLimit ?? 0n;
    return gasAhead === 0n || gasAhead + gasLimitOf(items) <= 2n * blockGas;
  }
}

/**
 * When a batch stops waiting for more payments: after a fraction of a block, and in time for the next block. If
 * that block cannot be reached, the one after it counts.
 */
export function leaveBy(
  heads: EngineContext["heads"],
  oldestMs: number,
  nowMs: number,
  neededMs: number,
): number {
  const patientMs = oldestMs + heads.blockTimeMs * PATIENCE;
  const dueMs = heads.nextDueMs(nowMs + neededMs);
  return dueMs === undefined ? patientMs : Math.min(patientMs, dueMs - neededMs - SPARE_MS);
}
