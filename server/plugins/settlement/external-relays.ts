/**
 * Watches authorizations that other parties relay, proves the expiry of those that no one used, and frees
 * claims of dead processes.
 * One process at a time does this, under a lease. Two would do no harm, because only proven facts are written.
 */
import { readAuthorizationStates, readHeader } from "../../infra/chain/contracts.ts";
import { blockAt, Signal, writeOutcomes, type EngineContext } from "./context.ts";
import { acquireLease, orphanedLanes, releaseLease, renewLease } from "./lane-store.ts";
import { explainUse, proveExpired } from "./prove.ts";
import { amountIn, findingIn, proofOf, proveByTransaction } from "./receipts.ts";
import {
  endLooks,
  findOpenRecord,
  keyOf,
  openPastDeadline,
  openWatched,
  postponeLook,
  settledUnfollowed,
  takeRefused,
  voidLapsedClaims,
} from "./store.ts";
import { traceProven } from "./transaction-trace.ts";
import type { ProvenOutcome, SettlementRecord } from "./types.ts";

const nameOf = ({ from, asset, nonce }: Pick<ProvenOutcome, "from" | "asset" | "nonce">): string =>
  [from, asset, nonce].join(" ");

/** No key has this address: the lease of the watch is a row in the table of lanes. */
const WATCH_ADDRESS = "0x0000000000000000000000000000000000000000";
const MAX_ROWS = 1_000;
const AT_ONCE = 8;
/**
 * Behind a load balancer some nodes lag: after an error the next round reads an older block, up to this far
 * back.
 */
const MAX_BEHIND_MS = 60_000;

export class ExternalRelays {
  readonly wake = new Signal();
  readonly #ctx: EngineContext;
  readonly #onOrphan: (address: string) => void;
  #behind = 0n;
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
    const { watchLeaseMs, watchRoundMs } = ctx.timings;
    const key = { chainId: ctx.network.chainId, address: WATCH_ADDRESS };
    let epoch: bigint | undefined;
    while (!this.#stopping) {
      try {
        const renewed =
          epoch !== undefined &&
          (await renewLease(ctx.pool, { ...key, owner: ctx.owner, epoch }, watchLeaseMs));
        if (!renewed) epoch = (await acquireLease(ctx.pool, key, ctx.owner, watchLeaseMs))?.epoch;
        if (epoch !== undefined) await this.round();
      } catch (error) {
        ctx.log.warn(
          { err: error, network: ctx.network.id },
          "watching was interrupted; continuing",
        );
      }
      if (!this.#stopping) await this.wake.wait(watchRoundMs);
    }
    if (epoch !== undefined)
      await releaseLease(ctx.pool, { ...key, owner: ctx.owner, epoch }).catch(() => undefined);
  }

  async round(): Promise<void> {
    const ctx = this.#ctx;
    const { chainId } = ctx.network;
    await voidLapsedClaims(ctx.pool, chainId);
    for (const address of await orphanedLanes(ctx.pool, chainId)) this.#onOrphan(address);
    const watched = await openWatched(ctx.pool, chainId, MAX_ROWS);
    const now = BigInt(Math.floor(Date.now() / 1_000));
    // The local clock selects candidates; only a block's own timestamp proves expiry.
    const late = await openPastDeadline(ctx.pool, chainId, now, MAX_ROWS);
    const known = new Set(watched.map((record) => record.id));
    await this.check([...watched, ...late.filter((record) => !known.has(record.id))]);
    if (ctx.network.confirmations > 1) await this.#followToFinality();
    await this.#lookAtRefused(now);
  }

  /**
   * Refused here, but used on chain by someone else: the row is then corrected. Looked at until its expiry is proven: the
   * endpoint in use may be wrong, and no process may have run before.
   */
  async #lookAtRefused(now: bigint): Promise<void> {
    const ctx = this.#ctx;
    const refused = await takeRefused(ctx.pool, ctx.network.chainId, now, MAX_ROWS);
    if (refused.length === 0) return;
    const block = await blockAt(ctx, ctx.network.inclusionDepth, this.#behind);
    const states = await readAuthorizationStates(
      ctx.rpc,
      refused.map(({ authorization }) => authorization),
      block.number,
    );
    await this.#each(
      refused.filter((_, index) => states[index] === true),
      (record) => explainUse(ctx, record),
    );
    const late = refused.filter(
      ({ authorization }, index) => states[index] === false && authorization.validBefore <= now,
    );
    if (late.length === 0) return;
    const proven = new Set((await proveExpired(ctx, late, this.#behind)).map(nameOf));
    const over = late.filter((record) => proven.has(nameOf(keyOf(record))));
    if (over.length > 0)
      await endLooks(
        ctx.pool,
        over.map(({ id }) => id),
      );
  }

  /** Checks again what no lane follows, because a reorganisation may have removed the block. */
  async #followToFinality(): Promise<void> {
    const ctx = this.#ctx;
    const { confirmations, chainId } = ctx.network;
    const head = ctx.heads.head ?? (await ctx.heads.refresh());
    const final = head.number - BigInt(confirmations - 1);
    const records = await settledUnfollowed(ctx.pool, chainId, final, MAX_ROWS);
    await this.#each(records, async (record) => {
      const { txHash: tx, blockNumber: number, blockHash, byOther } = record;
      if (tx === null || number === null || blockHash === null) return undefined;
      const found = await findingIn(ctx, tx, record.authorization, head.number);
      if (found?.fate === "paid") {
        const { receipt, isFinal, charged } = found;
        const proof = proofOf(receipt);
        const settled = { status: "settled" as const, proof, isFinal, byOther };
        return { ...keyOf(record), ...settled, ...amountIn(charged) };
      }
      // The receipt may be late. Only a different block at the same height proves a reorganisation.
      const header = await readHeader(ctx.rpc, number);
      if (!header || header.hash === blockHash) return undefined;
      const proof = { kind: "receipt" as const, tx, block: number.toString(), blockHash };
      return { ...keyOf(record), status: "open", proof, isFinal: false };
    });
  }

  /**
   * Checks rows independently of each other: a row without a result, or with an error, is postponed and delays
   * no other.
   */
  async #each(
    records: readonly SettlementRecord[],
    prove: (record: SettlementRecord) => Promise<ProvenOutcome | undefined>,
  ): Promise<void> {
    const ctx = this.#ctx;
    const waiting = [...records];
    const work = async (): Promise<void> => {
      for (let record = waiting.shift(); record; record = waiting.shift()) {
        const { id } = record;
        try {
          const outcome = await prove(record);
          if (outcome) {
            await writeOutcomes(ctx, [outcome]);
            traceProven(record, outcome);
          } else await postponeLook(ctx.pool, record, false);
        } catch (error) {
          ctx.log.warn({ err: error, settlement: id }, "could not check an authorization");
          await postponeLook(ctx.pool, record, true);
        }
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, work));
  }

  /** Checks one authorization now. `txHash` is a hint to the transaction that used it. */
  async look(id: string, txHash?: string): Promise<void> {
    const ctx = this.#ctx;
    const { record, outcome } =
      txHash === undefined
        ? { record: await findOpenRecord(ctx.pool, id), outcome: undefined }
        : await proveByTransaction(ctx, id, txHash);
    if (outcome) {
      await writeOutcomes(ctx, [outcome]);
      if (record) traceProven(record, outcome);
    } else if (record) await this.check([record]);
  }

  /** Searches for one authorization now and with each new block, until the returned function is called. */
  follow(id: string, txHash: string | undefined): () => void {
    const { heads, log } = this.#ctx;
    let busy = false;
    const again = async (): Promise<void> => {
      if (busy) return;
      busy = true;
      try {
        await this.look(id, txHash);
      } catch (error) {
        log.warn({ err: error, settlement: id }, "could not search for an authorization");
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

  /** Reads the state of these authorizations at one block and writes what it proves. */
  async check(records: readonly SettlementRecord[]): Promise<void> {
    if (records.length === 0) return;
    const ctx = this.#ctx;
    try {
      const block = await blockAt(ctx, ctx.network.inclusionDepth, this.#behind);
      const states = await readAuthorizationStates(
        ctx.rpc,
        records.map(({ authorization }) => authorization),
        block.number,
      );
      const used = records.filter((_, index) => states[index] === true);
      const unused = records.filter(
        ({ authorization }, index) =>
          states[index] === false && block.timestampSeconds >= authorization.validBefore,
      );
      if (unused.length > 0)
        await writeOutcomes(ctx, await proveExpired(ctx, unused, this.#behind));
      this.#behind = 0n;
      await this.#each(used, (record) => explainUse(ctx, record));
    } catch (error) {
      const next = this.#behind === 0n ? 1n : this.#behind * 2n;
      this.#behind = next * BigInt(ctx.network.blockTimeMs) > MAX_BEHIND_MS ? 0n : next;
      throw error;
    }
  }
}
