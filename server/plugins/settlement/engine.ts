/**
 * The settlement engine: the public interface (accept, wait, find, cancel) and the process that runs the lanes
 * of all chains.
 *
 * The life of a settlement, with the fault points at which crash tests kill the process:
 *  1. accept.ts inserts its row: `queued`. The natural key (chain, asset, payer, nonce) makes it unique.
 *  2. A lane (lane.ts: one relayer key under a lease) claims it [claimed], gathers a batch (sender.ts), and simulates
 *     the batch (preflight.ts). What would fail is proven failed or returned to the queue (prove.ts).
 *  3. The batch is signed [signed], stored with its nonce [persisted], and only then broadcast [broadcast]. The row is
 *     `submitted`.
 *  4. mempool.ts gets the transaction into a block: it sends the stored bytes again, pays more, or gives the nonce up
 *     [void-signed, void-persisted, void-broadcast].
 *  5. tracker.ts reads the receipt [mined]. Its logs decide each authorization (receipts.ts). At the inclusion depth
 *     [before-final-write] the outcome is written and reported [reported]: `settled`, `failed`, or `queued` again.
 *  6. At the depth of finality [before-final] it is written once more. Until then a reorganisation opens it again.
 * What others relay, and what expires, is proven by external-relays.ts. waiters.ts wakes the callers.
 */
import { randomUUID } from "node:crypto";
import { hostname } from "node:os";
import type { LaneSigner } from "./lane.ts";
import type { NetworkConfig } from "../../config.ts";
import type { SettlementKey } from "../../core/authorization.ts";
import type { Timings } from "../../core/timings.ts";
import { ApiError } from "../../errors.ts";
import type { HeadWatcher } from "../../infra/chain/heads.ts";
import type { ChainRpc } from "../../infra/chain/rpc.ts";
import { Listener } from "../../infra/db/listener.ts";
import type { Pool, Sql } from "../../infra/db/pool.ts";
import { SilenceWatch } from "../../infra/db/silence.ts";
import { traced } from "../../infra/tracing.ts";
import { acceptSettlements } from "./accept.ts";
import { Batcher, feeCapsOf } from "./batch.ts";
import { ChainEngine } from "./chain-engine.ts";
import {
  writeOutcomes,
  type EngineContext,
  type EngineLog,
  type EngineMeter,
  type FaultPoint,
} from "./context.ts";
import {
  type GasAccount,
  limitsOf,
  readGasAccounts,
  wantCancel,
  writeGasLimits,
} from "./gas-store.ts";
import * as settlements from "./store.ts";
import {
  type Accepted,
  type Availability,
  type CancelOutcome,
  type FinalizeResult,
  type ProvenOutcome,
  REASON_CANCELED,
  type Settlement,
  type SettlementOutcome,
  type SettlementRequest,
  type SettlementRow,
  type WaitOptions,
} from "./types.ts";
import { Waiters, outcomeOf } from "./waiters.ts";

const CANCEL_WAIT_MS = 15_000;

interface EngineDeps {
  pool: Pool;
  chains: ReadonlyMap<number, ChainEngine>;
  waiters: Waiters;
  /** Wakes the lanes of this chain, in whichever process they run. */
  wake: (chainId: number) => void;
  /** Throws while the SQL functions in the database are older than this build. */
  assertFunctions: () => void;
}

class SettlementEngine implements Settlement {
  readonly #deps: EngineDeps;

  constructor(deps: EngineDeps) {
    this.#deps = deps;
  }

  async assertAvailable(chainId: number, options: Availability = {}): Promise<void> {
    const chain = this.#deps.chains.get(chainId);
    if (!chain)
      throw new ApiError("chain_unavailable", {
        detail: `Network eip155:${chainId} is not configured.`,
      });
    this.#deps.assertFunctions();
    await chain.assertAvailable(options);
  }

  async gasHold(chainId: number): Promise<bigint> {
    const chain = this.#deps.chains.get(chainId);
    if (!chain) return 0n;
    return chain.gasHold().catch((cause: unknown) => {
      throw new ApiError("chain_unavailable", {
        detail: `The gas price of ${chain.ctx.network.name} cannot be read. Nothing was signed.`,
        cause,
      });
    });
  }

  gasAccounts(chainId: number, accounts: readonly string[]): Promise<GasAccount[]> {
    return readGasAccounts(this.#deps.pool, chainId, accounts);
  }

  async accept(sql: Sql, request: SettlementRequest): Promise<Accepted> {
    const [accepted] = await this.acceptAll(sql, [request]);
    return accepted as Accepted;
  }

  async acceptAll(sql: Sql, requests: readonly SettlementRequest[]): Promise<Accepted[]> {
    const accepted = await acceptSettlements(
      sql,
      await Promise.all(requests.map((request) => this.#complete(request))),
    );
    const chainIds = new Set(
      requests
        .filter(({ relay }, index) => relay && accepted[index]?.settlement.status === "queued")
        .map(({ authorization }) => authorization.chainId),
    );
    for (const chainId of chainIds) this.#deps.wake(chainId);
    return accepted;
  }

  async #complete(request: SettlementRequest): Promise<SettlementRequest> {
    const chain = this.#deps.chains.get(request.authorization.chainId);
    return chain ? chain.complete(request) : request;
  }

  async wait(id: string, timeoutMs: number, options: WaitOptions = {}): Promise<SettlementOutcome> {
    const { waiters } = this.#deps;
    return traced("settlement.wait", { "purser.payment_id": id }, async () => {
      if (options.look !== true) return waiters.wait(id, timeoutMs);
      const stopLooking = await this.#look(id, options.txHash);
      return waiters.wait(id, timeoutMs).finally(stopLooking);
    });
  }

  /**
   * Starts a search for this one authorization. A proven outcome reaches the waiter through the database
   * notification, like every outcome.
   */
  async #look(id: string, txHash: `0x${string}` | undefined): Promise<() => void> {
    const { pool, chains } = this.#deps;
    const record = await settlements.findOpenRecord(pool, id);
    const chain = record && chains.get(record.authorization.chainId);
    return chain ? chain.externalRelays.follow(id, txHash) : () => undefined;
  }

  async find(id: string): Promise<SettlementRow | undefined> {
    return settlements.findSettlement(this.#deps.pool, id);
  }

  async findByAuthorization(key: SettlementKey): Promise<SettlementRow | undefined> {
    return settlements.findByAuthorization(this.#deps.pool, key);
  }

  async record(chainId: number, outcomes: readonly ProvenOutcome[]): Promise<FinalizeResult> {
    const chain = this.#deps.chains.get(chainId);
    if (!chain) throw new Error(`network eip155:${chainId} is not configured`);
    return writeOutcomes(chain.ctx, outcomes);
  }

  async tryAgain(key: SettlementKey): Promise<SettlementRow | undefined> {
    const row = await settlements.tryAgain(this.#deps.pool, key);
    if (row) this.#deps.wake(key.chainId);
    return row;
  }

  async requestCancel(request: {
    key: SettlementKey;
    cancelSignature: `0x${string}`;
    timeoutMs?: number;
  }): Promise<CancelOutcome> {
    const { pool } = this.#deps;
    const wanted = await wantCancel(pool, request.key, request.cancelSignature);
    if (wanted?.decision === "lapse")
      return { status: "lapsing", until: new Date(Number(wanted.validBefore) * 1_000) };
    const row = await settlements.findByAuthorization(pool, request.key);
    if (!row) throw new Error("requestCancel of an authorization that was never accepted");
    if (wanted) this.#deps.wake(request.key.chainId);
    const known = outcomeOf(row);
    // Already in one of our transactions, or final: the outcome of the authorization itself is returned.
    return toCancelOutcome(
      known.status === "pending"
        ? await this.wait(row.id, request.timeoutMs ?? CANCEL_WAIT_MS)
        : known,
    );
  }
}

function toCancelOutcome(outcome: SettlementOutcome): CancelOutcome {
  if (outcome.status === "settled") {
    const { txHash, blockNumber, settledAt, amountAtomic } = outcome;
    return { status: "settled", txHash, blockNumber, settledAt, amountAtomic };
  }
  if (outcome.status === "failed" && outcome.reason === REASON_CANCELED)
    return { status: "canceled", ...(outcome.txHash && { txHash: outcome.txHash }) };
  // Expired, or proven impossible in another way: it can never be collected.
  return outcome.status === "pending" ? { status: "pending" } : { status: "expired" };
}

export interface RunningEngineDeps {
  pool: Pool;
  connectionString: string;
  silence?: SilenceWatch;
  signers: readonly LaneSigner[];
  timings: Timings;
  gasCapPerItem: bigint;
  forcedCancelsPerDay: bigint;
  chains: readonly {
    network: NetworkConfig;
    rpc: ChainRpc;
    heads: HeadWatcher;
    isVerified: () => boolean;
    meter: EngineMeter;
  }[];
  log: EngineLog;
  assertFunctions?: () => void;
  /** Tests use smaller spans on short chains. */
  search?: EngineContext["search"];
  fault?: (point: FaultPoint) => Promise<void>;
}

/** Providers limit the block range of one log query; nearly all accept 2,000 blocks. */
const DEFAULT_SEARCH = { spanBlocks: 2_000n, spansPerRound: 25 };
const SETTLED_CHANNEL = "purser_settled";
const QUEUE_CHANNEL = "purser_queue";
/** The notification follows the work: once soon after, and once more for a caller that commits late. */
const ANNOUNCE_AFTER_MS = [15, 150];

/** Every line names its network. */
const logOf = ({ id: network }: NetworkConfig, log: EngineLog): EngineLog => ({
  info: (fields, message) => log.info({ network, ...fields }, message),
  warn: (fields, message) => log.warn({ network, ...fields }, message),
  error: (fields, message) => log.error({ network, ...fields }, message),
});

/** Assembles the engine without HTTP. Used by the plugin and by the crash tests. */
export class RunningEngine {
  readonly settlement: SettlementEngine;
  readonly chains: ReadonlyMap<number, ChainEngine>;
  readonly waiters: Waiters;
  readonly #deps: RunningEngineDeps;
  readonly #listener: Listener;
  readonly #announcing = new Set<number>();
  readonly #timers = new Set<NodeJS.Timeout>();

  constructor(deps: RunningEngineDeps) {
    this.#deps = deps;
    const owner = `${hostname()}:${process.pid}:${randomUUID()}`;
    this.chains = new Map(
      deps.chains.map(({ network, rpc, heads, isVerified, meter }) => {
        const log = logOf(network, deps.log);
        const chain = new ChainEngine({
          signers: deps.signers,
          isVerified,
          ctx: {
            network,
            rpc,
            heads,
            pool: deps.pool,
            batcher: new Batcher({ network, rpc, log }),
            search: deps.search ?? DEFAULT_SEARCH,
            timings: deps.timings,
            log,
            meter,
            fault: deps.fault ?? (async () => undefined),
            gasCapPerItem: deps.gasCapPerItem,
            feeCaps: feeCapsOf(network),
            owner,
          },
        });
        return [network.chainId, chain];
      }),
    );
    this.waiters = new Waiters({
      load: (ids) => settlements.findSettlements(deps.pool, ids),
      ended: (ids) => settlements.findEnded(deps.pool, ids),
      onTrouble: (error) => deps.log.warn({ err: error }, "could not check waiting callers"),
    });
    this.#listener = new Listener({
      connectionString: deps.connectionString,
      silence: deps.silence ?? new SilenceWatch(),
      onConnected: () => void this.waiters.queryAll(),
      onTrouble: (error) =>
        deps.log.warn({ err: error }, "listening connection lost; reconnecting"),
    });
    this.#listener.on(SETTLED_CHANNEL, (payload) => this.waiters.receive(payload));
    this.#listener.on(QUEUE_CHANNEL, (payload) => this.chains.get(Number(payload))?.wake());
    this.settlement = new SettlementEngine({
      pool: deps.pool,
      chains: this.chains,
      waiters: this.waiters,
      wake: (chainId) => this.wake(chainId),
      assertFunctions: deps.assertFunctions ?? (() => undefined),
    });
  }

  async start(): Promise<void> {
    const { pool, forcedCancelsPerDay } = this.#deps;
    for (const [chainId, { ctx }] of this.chains)
      await writeGasLimits(pool, chainId, limitsOf(ctx.network.gasBudget, forcedCancelsPerDay));
    await this.#listener.connect();
    for (const chain of this.chains.values()) chain.start();
  }

  /** A lane on every chain for an account that became known after the start. */
  addLane(signer: LaneSigner): void {
    for (const chain of this.chains.values()) chain.addLane(signer);
  }

  async stop(): Promise<void> {
    for (const timer of this.#timers) clearTimeout(timer);
    await Promise.all([...this.chains.values()].map((chain) => chain.stop()));
    await this.#listener.close();
  }

  /** Wakes the lanes of this chain, in whichever process they run: work is about to be committed here. */
  wake(chainId: number): void {
    this.chains.get(chainId)?.expectWork();
    this.#announce(chainId);
  }

  /**
   * Notifies lane holders in other replicas. Not inside the caller's transaction: Postgres commits transactions
   * that use NOTIFY one after another, which would halve the rate of spends. A lost notification costs at most
   * one fallback poll.
   */
  #announce(chainId: number): void {
    const { pool, log } = this.#deps;
    const isAllHere = this.chains.get(chainId)?.lanes.every((lane) => lane.held) ?? false;
    if (isAllHere || this.#announcing.has(chainId)) return;
    this.#announcing.add(chainId);
    for (const afterMs of ANNOUNCE_AFTER_MS) {
      const timer = setTimeout(() => {
        this.#timers.delete(timer);
        this.#announcing.delete(chainId);
        // Raw SQL: Prisma has no NOTIFY.
        pool
          .query("SELECT pg_notify($1, $2)", [QUEUE_CHANNEL, String(chainId)])
          .catch((error: unknown) => log.warn({ err: error }, "could not announce work"));
      }, afterMs);
      timer.unref();
      this.#timers.add(timer);
    }
  }
}
