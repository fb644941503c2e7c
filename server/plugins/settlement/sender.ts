/**
 * Turns queued rows into transactions: collect for a moment, weed by simulation, sign, persist, send.
 * Nothing is sent that is not stored first.
 */
import type { PrivateKeyAccount } from "viem";
import { CLAIM_LOST, LEASE_LOST, OVER_GAS_CEILING, sqlState } from "../../infra/db/pool.ts";
import type { Lease } from "./lane-store.ts";
import type { ExpectedPayments } from "./signal.ts";
import { classifyChainError, revertText } from "../../infra/chain/errors.ts";
import { writeOutcomes, type EngineContext } from "./context.ts";
import { initialFees } from "./batch.ts";
import { proveRefused, refusalsBy, type Refused } from "./prove.ts";
import { pause, type Signal } from "./signal.ts";
import { signAttempt } from "./batch.ts";
import type { Slot, Tracker } from "./tracker.ts";
import {
  gasLimitOf,
  isWornOut,
  MAX_BATCH,
  MAX_IN_FLIGHT,
  meteredGasOf,
  pendingDebits,
  toBatchItem,
  transactionOf,
  type BatchItem,
} from "./batch.ts";

export interface SenderDeps {
  ctx: EngineContext;
  lease: Lease;
  signer: PrivateKeyAccount;
  tracker: Tracker;
  /** The next free nonce when the sender starts. */
  nextNonce: bigint;
  expected: Pick<ExpectedPayments, "count">;
  priorityFeeWei: () => Promise<bigint>;
  /** False when the lane cannot pay this much more gas. */
  canPay: (wei: bigint) => Promise<boolean>;
  isActive: () => boolean;
  /** What this process believes of the lease or of the stored state is wrong: read it again. */
  onDoubt: (reason: string) => void;
  wake: Signal;
}

const MAX_CLAIM = 500;
/** How long facilitated rows rest when the day's gas is spent. */
const CEILING_REST_MS = 30_000;

export class Sender {
  readonly #deps: SenderDeps;
  readonly #underway = new Set<BatchItem[]>();
  #buffer: BatchItem[] = [];
  #nextNonce: bigint;
  #tail: Promise<void> = Promise.resolve();

  constructor(deps: SenderDeps) {
    this.#deps = deps;
    this.#nextNonce = deps.nextNonce;
  }

  get inFlight(): number {
    return this.#underway.size + this.#deps.tracker.unmined;
  }

  /** Works until the queue is empty, the lane is full and nothing is left to collect, or it may not go on. */
  async drain(): Promise<void> {
    const { ctx } = this.#deps;
    const quietMs = Math.min(Math.max(ctx.network.blockTimeMs / 40, 8), 50);
    const patienceMs = ctx.network.blockTimeMs * 0.4;
    let newestMs = 0;
    let oldestMs = 0;
    try {
      while (this.#deps.isActive() && ctx.heads.healthy) {
        const room = (MAX_IN_FLIGHT - this.inFlight) * MAX_BATCH - this.#buffer.length;
        const claimed = room > 0 ? await this.#claim(Math.min(room, MAX_CLAIM)) : 0;
        const now = performance.now();
        if (claimed > 0) {
          newestMs = now;
          if (this.#buffer.length === claimed) oldestMs = now;
        }
        if (this.#sendFull() > 0) oldestMs = now;
        if (this.#buffer.length === 0 && claimed === 0) return;
        if (this.#company > 0 && this.inFlight < MAX_IN_FLIGHT) {
          const isQuiet = now - newestMs >= quietMs && this.#deps.expected.count === 0;
          if (isQuiet || now - oldestMs >= patienceMs) {
            this.#dispatch(this.#takeCompany());
            continue;
          }
        }
        // A flood is collected at its own pace; a lone row waits one quiet moment.
        await pause(room > 0 ? quietMs / 2 : quietMs);
      }
    } finally {
      await this.#release(this.#buffer.splice(0), 0);
    }
  }

  /** Waits until nothing is between claim and broadcast. */
  async settle(): Promise<void> {
    await this.#tail;
  }

  async #claim(limit: number): Promise<number> {
    const { ctx, lease } = this.#deps;
    const rows = await ctx.lanes.claim(ctx.pool, lease, limit, {
      dailyGasCeiling: ctx.dailyGasCeiling,
    });
    if (rows.length > 0) await ctx.fault("claimed");
    this.#buffer.push(...rows.map((row) => toBatchItem(row, ctx.gasCapPerItem)));
    return rows.length;
  }

  /** Sends everything that need not wait for company: full batches, and what travels alone anyway. */
  #sendFull(): number {
    let sent = 0;
    while (this.inFlight < MAX_IN_FLIGHT) {
      const alone = this.#buffer.findIndex((item) => item.solo);
      if (alone === -1) break;
      this.#dispatch(this.#buffer.splice(alone, 1));
      sent += 1;
    }
    while (this.#company >= MAX_BATCH && this.inFlight < MAX_IN_FLIGHT) {
      this.#dispatch(this.#takeCompany());
      sent += 1;
    }
    return sent;
  }

  /** How many in the buffer may share a transaction. */
  get #company(): number {
    return this.#buffer.reduce((count, item) => count + (item.solo ? 0 : 1), 0);
  }

  #takeCompany(): BatchItem[] {
    const taken = this.#buffer.filter((item) => !item.solo).slice(0, MAX_BATCH);
    const leaving = new Set(taken);
    this.#buffer = this.#buffer.filter((item) => !leaving.has(item));
    return taken;
  }

  /** Simulations of several batches run side by side; signing and nonces go one by one, in order. */
  #dispatch(items: BatchItem[]): void {
    const ahead = [...this.#underway].flat();
    this.#underway.add(items);
    const weeded = this.#weed(items, ahead).catch(async (error: unknown) => {
      await this.#giveBack(items, error);
      return [];
    });
    this.#tail = this.#afterTail(this.#tail, items, weeded);
  }

  async #afterTail(
    before: Promise<void>,
    items: BatchItem[],
    weeded: Promise<BatchItem[]>,
  ): Promise<void> {
    await before;
    const good = await weeded;
    try {
      if (good.length > 0) await this.#submit(good);
    } catch (error) {
      await this.#giveBack(good, error);
    } finally {
      this.#underway.delete(items);
    }
  }

  /** One `eth_call` says which would fail; what became of those is proven, the others are returned. */
  async #weed(items: BatchItem[], ahead: BatchItem[]): Promise<BatchItem[]> {
    const { ctx, lease, tracker } = this.#deps;
    const [only] = items;
    // A contract can pass every simulation and still do nothing when it counts, at our gas.
    if (items.length === 1 && only && isWornOut(only))
      return this.#prove([{ item: only, text: undefined }], [], true);
    const inFlight = [...tracker.slots.values()].flatMap((slot) => slot.batch ?? []);
    const debits = pendingDebits(items, [...inFlight, ...ahead]);
    const all = [...debits, ...items];
    let results;
    try {
      results = await ctx.reads.simulate(ctx.rpc, {
        from: lease.address,
        calls: all.map((item) => item.call),
        gas: gasLimitOf(all),
      });
    } catch (error) {
      if (classifyChainError(error).kind === "unreachable") throw error;
      if (items.length === 1)
        return this.#prove([{ item: items[0] as BatchItem, text: undefined }], debits);
      // Somebody burns the gas of all: halves, until it is found.
      const half = Math.ceil(items.length / 2);
      const parts = await Promise.all([
        this.#weed(items.slice(0, half), ahead),
        this.#weed(items.slice(half), [...ahead, ...items.slice(0, half)]),
      ]);
      return parts.flat();
    }
    const own = results.slice(debits.length);
    const refused = items.flatMap((item, index) => {
      const result = own[index];
      return result?.success === true ? [] : [{ item, text: revertText(result?.data ?? "0x") }];
    });
    if (refused.length === 0) return items;
    const mute = refused.filter(({ text }) => text === undefined);
    // Without a reason it may be a neighbour's fault: such a row is tried again by itself.
    const again = items.length > 1 ? mute : [];
    const unproven = refused.filter((entry) => !again.includes(entry));
    const refusedItems = new Set(refused.map(({ item }) => item));
    const good = items.filter((item) => !refusedItems.has(item));
    for (const { item } of again) this.#dispatch([{ ...item, solo: true, gas: ctx.gasCapPerItem }]);
    void this.#prove(unproven, debits).catch((error: unknown) =>
      this.#giveBack(
        unproven.map(({ item }) => item),
        error,
      ),
    );
    return good;
  }

  async #prove(
    refused: { item: BatchItem; text: string | undefined }[],
    debits: BatchItem[],
    isWornOut = false,
  ): Promise<BatchItem[]> {
    if (refused.length === 0) return [];
    const { ctx, lease } = this.#deps;
    const items = refused.map(({ item }) => item);
    const proofs = await proveRefused(
      ctx,
      refused.map(({ item, text }): Refused => ({ record: item.record, text, isWornOut })),
      refusalsBy(ctx, { from: lease.address, ahead: debits, items }),
    );
    const outcomes = proofs.flatMap(({ proof }) => ("outcome" in proof ? [proof.outcome] : []));
    await writeOutcomes(ctx, outcomes);
    const delays = new Map<number, BatchItem[]>();
    for (const [index, { proof }] of proofs.entries()) {
      const item = refused[index]?.item;
      if (!item || "outcome" in proof) continue;
      delays.set(proof.retryAfterMs, [...(delays.get(proof.retryAfterMs) ?? []), item]);
    }
    for (const [delayMs, rows] of delays) await this.#release(rows, delayMs);
    return [];
  }

  async #submit(items: BatchItem[]): Promise<void> {
    const { ctx, lease, signer, tracker } = this.#deps;
    if (!this.#deps.isActive()) return this.#release(items, 0);
    const head = await this.#freshHead();
    const { maxFeeWei, priorityFeeWei } = initialFees(
      head.baseFeeWei,
      await this.#deps.priorityFeeWei(),
    );
    const gasLimit = gasLimitOf(items);
    if (!(await this.#deps.canPay(gasLimit * maxFeeWei))) return this.#release(items, 1_000);
    const tx = { nonce: this.#nextNonce, ...transactionOf(items), gasLimit };
    const attempt = await signAttempt(signer, ctx.network.chainId, tx, {
      maxFeeWei,
      priorityFeeWei,
      attempt: 1,
    });
    await ctx.fault("signed");
    await ctx.lanes.persistTransaction(ctx.pool, lease, {
      ...tx,
      meteredGas: meteredGasOf(items, gasLimit),
      dailyGasCeiling: ctx.dailyGasCeiling,
      attempt,
      items,
      sentBlock: head.number,
    });
    this.#nextNonce += 1n;
    const slot = tracker.add({
      ...tx,
      attempts: [attempt],
      items,
      sentBlock: head.number,
      included: undefined,
    });
    slot.batch = items;
    await ctx.fault("persisted");
    ctx.meter.batch(items.length);
    // Not awaited: the next batch is signed meanwhile. The answer proves nothing anyway.
    void this.#send(slot);
  }

  /** Never throws: whatever goes wrong here, the bytes are stored and are followed up. */
  async #send(slot: Slot): Promise<void> {
    const { ctx, tracker } = this.#deps;
    try {
      await tracker.send(slot);
      await ctx.fault("broadcast");
      // Where a block follows at once, nobody waits for the next poll.
      await ctx.heads.refresh();
      await tracker.reconcile();
    } catch (error) {
      ctx.log.warn({ err: error, nonce: slot.nonce }, "could not follow a transaction right away");
    }
  }

  async #freshHead() {
    const { heads, network } = this.#deps.ctx;
    const { head } = heads;
    const isFresh = head && performance.now() - head.seenAtMs < network.blockTimeMs * 2;
    return isFresh ? head : heads.refresh();
  }

  /** Something failed between claim and send: decide by what it was whether anything may have been stored. */
  async #giveBack(items: BatchItem[], error: unknown): Promise<void> {
    const { ctx, onDoubt } = this.#deps;
    const state = sqlState(error);
    if (state === OVER_GAS_CEILING) {
      ctx.log.warn({ network: ctx.network.id }, "the daily gas ceiling is reached");
      const isMetered = (item: BatchItem): boolean => item.record.kind === "facilitated";
      await this.#release(items.filter(isMetered), CEILING_REST_MS);
      return this.#release(
        items.filter((item) => !isMetered(item)),
        0,
      );
    }
    if (state === LEASE_LOST || state === CLAIM_LOST)
      return onDoubt("the lease or a claim was lost");
    if (classifyChainError(error).kind === "unreachable" && state === undefined)
      return this.#release(items, 250);
    ctx.log.error({ err: error }, "a batch could not be submitted");
    // The commit may have happened although its answer was lost: only the database knows.
    onDoubt("the stored state is uncertain");
  }

  async #release(items: BatchItem[], delayMs: number): Promise<void> {
    if (items.length === 0) return;
    const { ctx, lease, wake } = this.#deps;
    try {
      await ctx.lanes.unclaim(ctx.pool, lease, items, delayMs);
    } catch (error) {
      // The claim ends with the lease; reading everything again frees it sooner.
      this.#deps.onDoubt(`rows could not be given back: ${String(error)}`);
    }
    if (delayMs > 0) setTimeout(() => wake.raise(), delayMs + 5).unref();
  }
}
