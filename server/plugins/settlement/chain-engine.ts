/** The engine of one chain: its lanes, its look at what others relay, and whether work can be taken at all. */
import type { PrivateKeyAccount } from "viem";
import { Coalescer } from "../../core/shared-answers.ts";
import { ApiError } from "../../errors.ts";
import { ExpectedPayments } from "./signal.ts";
import { classifyChainError } from "../../infra/chain/errors.ts";
import type { EngineContext } from "./context.ts";
import { Lane } from "./lane.ts";
import type { SettlementKind } from "./types.ts";
import { ExternalRelays } from "./external-relays.ts";

export interface ChainEngineDeps {
  ctx: EngineContext;
  signers: readonly PrivateKeyAccount[];
  /** The token of this chain has been compared with our table. */
  isVerified: () => boolean;
}

const SHARED = { maxBatch: 1_000, maxInFlight: 2 };
const TIP_FRESH_MS = 10_000;
const FALLBACK_TIP_WEI = 1_000_000_000n;
/** What one plain settlement may cost, for "can the relayer pay at all". */
const SINGLE_GAS = 170_000n;
/** Accepted rows become visible at the caller's commit: looked for a few times after the word. */
const LOOK_AFTER_MS = [3, 15, 60, 250];

export class ChainEngine {
  readonly ctx: EngineContext;
  readonly lanes: Lane[];
  readonly externalRelays: ExternalRelays;
  readonly expected = new ExpectedPayments();
  readonly #deps: ChainEngineDeps;
  /** Those who ask at the same moment hear the same answer. */
  readonly #gasToday: Coalescer<undefined, bigint>;
  readonly #orphans = new Map<string, Lane>();
  readonly #timers = new Set<NodeJS.Timeout>();
  #tip: { wei: bigint; readMs: number } | undefined;
  #lookUntil = 0;

  constructor(deps: ChainEngineDeps) {
    this.#deps = deps;
    this.ctx = deps.ctx;
    this.lanes = deps.signers.map((signer) => this.#lane(signer.address, signer));
    const { pool, network, transactions } = deps.ctx;
    this.#gasToday = new Coalescer(async (askers) => {
      const gas = await transactions.gasToday(pool, network.chainId);
      return askers.map(() => gas);
    }, SHARED);
    this.externalRelays = new ExternalRelays(deps.ctx, (address) => this.#adopt(address));
  }

  start(): void {
    this.ctx.heads.start();
    for (const lane of this.lanes) void lane.start();
    this.externalRelays.start();
  }

  async stop(): Promise<void> {
    for (const timer of this.#timers) clearTimeout(timer);
    await Promise.all([
      this.externalRelays.stop(),
      ...[...this.lanes, ...this.#orphans.values()].map((lane) => lane.stop()),
    ]);
  }

  /** Work was announced by another process: it is committed already. */
  wake(): void {
    for (const lane of this.lanes) lane.wake.raise();
  }

  /** Work was written by this process in a transaction that may commit a little later. */
  expectWork(): void {
    const now = performance.now();
    if (now < this.#lookUntil) return;
    this.#lookUntil = now + 2;
    for (const afterMs of LOOK_AFTER_MS) {
      const timer = setTimeout(() => {
        this.#timers.delete(timer);
        this.wake();
      }, afterMs);
      timer.unref();
      this.#timers.add(timer);
    }
  }

  /** Throws unless the chain answers and a relayer can pay: asked before anything is signed. */
  async assertAvailable(kind: SettlementKind | undefined): Promise<void> {
    const { ctx } = this;
    const closed = (detail: string, cause?: unknown): ApiError =>
      new ApiError("chain_unavailable", { detail, cause });
    if (!this.#deps.isVerified())
      throw closed(`The USDC of ${ctx.network.name} has not been verified yet.`);
    try {
      if (!ctx.heads.healthy) await ctx.heads.refresh();
      await this.#assertFunded(ctx.heads.head?.baseFeeWei ?? 0n);
    } catch (error) {
      if (error instanceof ApiError) throw error;
      throw closed(`${ctx.network.name} cannot be reached; nothing was signed.`, error);
    }
    if (
      kind === "facilitated" &&
      (await this.#gasToday.ask(undefined)) + SINGLE_GAS > ctx.dailyGasCeiling
    )
      throw new ApiError("relayer_unfunded", {
        detail:
          "The relayer's gas budget for today is used up; facilitated payments resume tomorrow (UTC).",
      });
  }

  async #assertFunded(baseFeeWei: bigint): Promise<void> {
    const neededWei = SINGLE_GAS * (2n * baseFeeWei + (await this.priorityFeeWei()));
    const balances = await Promise.all(this.lanes.map((lane) => lane.readBalance()));
    if (!balances.some((balance) => balance >= neededWei))
      throw new ApiError("relayer_unfunded", {
        detail: `The relayer on ${this.ctx.network.name} cannot pay for gas; nothing was signed.`,
      });
  }

  readonly priorityFeeWei = async (): Promise<bigint> => {
    const now = performance.now();
    if (this.#tip && now - this.#tip.readMs < TIP_FRESH_MS) return this.#tip.wei;
    let wei = this.#tip?.wei ?? FALLBACK_TIP_WEI;
    try {
      wei = BigInt(await this.ctx.rpc.call<string>("eth_maxPriorityFeePerGas", []));
    } catch (error) {
      // Chains without the method take any tip; an unreachable one is noticed elsewhere.
      if (classifyChainError(error).kind === "unreachable") throw error;
    }
    this.#tip = { wei, readMs: now };
    return wei;
  };

  #lane(address: string, signer: PrivateKeyAccount | undefined): Lane {
    const { ctx, expected, priorityFeeWei } = this;
    return new Lane({ ctx, address, signer, expected, priorityFeeWei });
  }

  /** A key that left the configuration with transactions in flight: they are followed to their end. */
  #adopt(address: string): void {
    if (this.lanes.some((lane) => lane.address === address) || this.#orphans.has(address)) return;
    const lane = this.#lane(address, undefined);
    this.#orphans.set(address, lane);
    void lane.start().finally(() => this.#orphans.delete(address));
  }
}
