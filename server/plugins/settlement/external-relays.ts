/**
 * Goes beside the lanes: notices authorizations that others relay, proves the expiry of those nobody used,
 * and frees what dead processes held. One process at a time does it, under a lease; doing it twice would be
 * harmless, because only proven facts are written.
 */
import type { ProvenOutcome, SettlementRecord } from "./store.ts";
import { schemeOf } from "../../schemes/index.ts";
import { finalTag, Signal, type EngineContext } from "./context.ts";
import { authorizationOf, explainUse, keyOf } from "./prove.ts";
import { proveByTransaction } from "./receipt-logs.ts";

/** No key has this address: the lease of the watch lives beside those of the lanes. */
const WATCH_ADDRESS = "0x0000000000000000000000000000000000000000";
const LEASE_MS = 5_000;
const ROUND_MS = 1_000;
const MAX_ROWS = 1_000;

export class ExternalRelays {
  readonly wake = new Signal();
  readonly #ctx: EngineContext;
  readonly #onOrphan: (address: string) => void;
  #stopping = false;
  #done: Promise<void> | undefined;

  constructor(ctx: EngineContext, onOrphan: (address: string) => void) {
    this.#ctx = ctx;
    this.#onOrphan = onOrphan;
  }

  start(): void {
    this.#done ??= this.#run();
  }

  async stop(): Promise<void> {
    this.#stopping = true;
    this.wake.raise();
    await this.#done;
  }

  async #run(): Promise<void> {
    const ctx = this.#ctx;
    const key = { chainId: ctx.network.chainId, address: WATCH_ADDRESS };
    let epoch: bigint | undefined;
    while (!this.#stopping) {
      try {
        const renewed =
          epoch !== undefined &&
          (await ctx.lanes.renewLease(ctx.pool, { ...key, owner: ctx.owner, epoch }, LEASE_MS));
        if (!renewed)
          epoch = (await ctx.lanes.acquireLease(ctx.pool, key, ctx.owner, LEASE_MS))?.epoch;
        if (epoch !== undefined) await this.round();
      } catch (error) {
        ctx.log.warn(
          { err: error, network: ctx.network.id },
          "the watch was interrupted; it goes on",
        );
      }
      if (!this.#stopping) await this.wake.wait(ROUND_MS);
    }
    if (epoch !== undefined)
      await ctx.lanes
        .releaseLease(ctx.pool, { ...key, owner: ctx.owner, epoch })
        .catch(() => undefined);
  }

  async round(): Promise<void> {
    const ctx = this.#ctx;
    const { chainId } = ctx.network;
    await ctx.queue.voidLapsedClaims(ctx.pool, chainId);
    for (const address of await ctx.lanes.orphanedLanes(ctx.pool, chainId)) this.#onOrphan(address);
    const watched = await ctx.settlements.openWatched(ctx.pool, chainId, MAX_ROWS);
    const now = BigInt(Math.floor(Date.now() / 1_000));
    // The database finds candidates by our clock; only a block's own time proves anything.
    const late = await ctx.settlements.openPastDeadline(ctx.pool, chainId, now, MAX_ROWS);
    const known = new Set(watched.map((record) => record.id));
    await this.check([...watched, ...late.filter((record) => !known.has(record.id))]);
  }

  /** For one authorization, now; `txHash` is where somebody says it was used. */
  async look(id: string, txHash?: string): Promise<void> {
    const ctx = this.#ctx;
    const { record, outcome } =
      txHash === undefined
        ? { record: await ctx.settlements.findOpenRecord(ctx.pool, id), outcome: undefined }
        : await proveByTransaction(ctx, id, txHash);
    if (outcome) await this.#write([outcome]);
    else if (record) await this.check([record]);
  }

  async #write(outcomes: readonly ProvenOutcome[]): Promise<void> {
    const ctx = this.#ctx;
    await ctx.settlements.finalizeSettlements(ctx.pool, ctx.network.chainId, outcomes);
    for (const outcome of outcomes) ctx.meter.finished(outcome.status, 1);
  }

  /** Looks for one authorization now and with each new block, until told to stop. */
  follow(id: string, txHash: string | undefined): () => void {
    const { heads, log } = this.#ctx;
    let busy = false;
    const again = async (): Promise<void> => {
      if (busy) return;
      busy = true;
      try {
        await this.look(id, txHash);
      } catch (error) {
        log.warn({ err: error, settlement: id }, "could not look for an authorization");
      } finally {
        busy = false;
      }
    };
    const stopHeads = heads.onHead(() => void again());
    const release = heads.want();
    void again();
    return () => {
      stopHeads();
      release();
    };
  }

  /** Reads the state of these authorizations at a final block and writes what is proven. */
  async check(records: readonly SettlementRecord[]): Promise<void> {
    if (records.length === 0) return;
    const ctx = this.#ctx;
    if (ctx.network.confirmations > 1) await ctx.heads.refresh();
    const states = await ctx.reads.readAuthorizationStates(
      ctx.rpc,
      records.map(authorizationOf),
      finalTag(ctx),
    );
    const outcomes: ProvenOutcome[] = [];
    for (const [index, record] of records.entries()) {
      const state = states[index];
      if (!state) continue;
      if (state.used) {
        const outcome = await explainUse(ctx, record, state.blockNumber);
        if (outcome) outcomes.push(outcome);
      } else if (state.timestampSeconds >= record.valid_before) {
        // The token demands block time < validBefore, and block time never goes back: it is over for good,
        // whatever transactions still carry it.
        outcomes.push({
          ...keyOf(record),
          status: "expired",
          reason: schemeOf(authorizationOf(record)).reasonExpired,
          message: `validBefore passed unused at block ${state.blockNumber}.`,
        });
      }
    }
    await this.#write(outcomes);
  }
}
