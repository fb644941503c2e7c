/** Puts the engine together from its parts, without HTTP: the plugin and the crash tests both use it. */
import { hostname } from "node:os";
import { randomUUID } from "node:crypto";
import { privateKeyToAccount } from "viem/accounts";
import * as reads from "../../infra/chain/authorizations.ts";
import type { HeadWatcher } from "../../infra/chain/heads.ts";
import type { ChainRpc } from "../../infra/chain/rpc.ts";
import { Listener } from "../../infra/db/listener.ts";
import type { Pool } from "../../infra/db/pool.ts";
import * as lanes from "./lane-store.ts";
import * as transactions from "./transaction-store.ts";
import { acceptSettlements } from "./accept-store.ts";
import * as settlements from "./store.ts";
import type { NetworkConfig } from "../../config.ts";
import { ChainEngine } from "./chain-engine.ts";
import type { EngineLog, EngineMeter, FaultPoint } from "./context.ts";
import { SettlementEngine } from "./engine.ts";
import { Waiters } from "./waiters.ts";

export interface RunningEngineDeps {
  pool: Pool;
  connectionString: string;
  relayerPrivateKeys: readonly `0x${string}`[];
  gasCapPerItem: bigint;
  dailyGasCeiling: bigint;
  chains: readonly {
    network: NetworkConfig;
    rpc: ChainRpc;
    heads: HeadWatcher;
    isVerified: () => boolean;
    meter: EngineMeter;
  }[];
  log: EngineLog;
  fault?: (point: FaultPoint) => Promise<void>;
}

const QUEUE_CHANNEL = "purser_queue";
const SETTLED_CHANNEL = "purser_settled";
/** The word follows the work: once soon after, once more for a caller that commits late. */
const ANNOUNCE_AFTER_MS = [15, 150];

export class RunningEngine {
  readonly settlement: SettlementEngine;
  readonly chains: ReadonlyMap<number, ChainEngine>;
  readonly waiters: Waiters;
  readonly #pool: Pool;
  readonly #log: EngineLog;
  readonly #listener: Listener;
  readonly #announcing = new Set<number>();
  readonly #timers = new Set<NodeJS.Timeout>();

  constructor(deps: RunningEngineDeps) {
    this.#pool = deps.pool;
    this.#log = deps.log;
    const signers = deps.relayerPrivateKeys.map((key) => privateKeyToAccount(key));
    const owner = `${hostname()}:${process.pid}:${randomUUID()}`;
    this.chains = new Map(
      deps.chains.map(({ network, rpc, heads, isVerified, meter }) => [
        network.chainId,
        new ChainEngine({
          signers,
          isVerified,
          ctx: {
            network,
            rpc,
            heads,
            pool: deps.pool,
            reads,
            lanes,
            transactions,
            settlements,
            log: deps.log,
            meter,
            fault: deps.fault ?? (async () => undefined),
            gasCapPerItem: deps.gasCapPerItem,
            dailyGasCeiling: deps.dailyGasCeiling,
            owner,
          },
        }),
      ]),
    );
    this.waiters = new Waiters({
      load: (ids) => settlements.findSettlements(deps.pool, ids),
      onTrouble: (error) => deps.log.warn({ err: error }, "could not look after waiting callers"),
    });
    this.#listener = new Listener({
      connectionString: deps.connectionString,
      onConnected: () => void this.waiters.askAll(),
      onTrouble: (error) =>
        deps.log.warn({ err: error }, "listening connection lost; reconnecting"),
    });
    this.#listener.on(SETTLED_CHANNEL, (payload) => this.waiters.hear(payload));
    this.#listener.on(QUEUE_CHANNEL, (payload) => this.chains.get(Number(payload))?.wake());
    this.settlement = new SettlementEngine({
      pool: deps.pool,
      store: settlements,
      acceptSettlements,
      chains: this.chains,
      waiters: this.waiters,
      announce: (chainId) => this.#announce(chainId),
    });
  }

  async start(): Promise<void> {
    await this.#listener.connect();
    for (const chain of this.chains.values()) chain.start();
  }

  async stop(): Promise<void> {
    for (const timer of this.#timers) clearTimeout(timer);
    await Promise.all([...this.chains.values()].map((chain) => chain.stop()));
    await this.#listener.close();
  }

  /**
   * Wakes lane holders elsewhere. Not inside the caller's transaction: Postgres lets transactions that
   * notify commit only one after another, which would halve the rate of spends. A lost word costs at most
   * one fallback poll.
   */
  #announce(chainId: number): void {
    const isAllHere = this.chains.get(chainId)?.lanes.every((lane) => lane.held) ?? false;
    if (isAllHere || this.#announcing.has(chainId)) return;
    this.#announcing.add(chainId);
    for (const afterMs of ANNOUNCE_AFTER_MS) {
      const timer = setTimeout(() => {
        this.#timers.delete(timer);
        this.#announcing.delete(chainId);
        this.#pool
          .query("SELECT pg_notify($1, $2)", [QUEUE_CHANNEL, String(chainId)])
          .catch((error: unknown) => this.#log.warn({ err: error }, "could not announce work"));
      }, afterMs);
      timer.unref();
      this.#timers.add(timer);
    }
  }
}
