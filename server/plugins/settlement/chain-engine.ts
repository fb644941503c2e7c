/** The engine of one chain: its lanes, its look at what others relay, and whether work can be taken at all. */
import type { LocalAccount } from "viem";
import { accountsOf, gasHoldOf, PLAIN_GAS } from "../../core/gas.ts";
import { memoFor } from "../../core/shared-answers.ts";
import { ApiError } from "../../errors.ts";
import { classifyChainError } from "../../infra/chain/errors.ts";
import type { LanesElsewhere } from "../../infra/worker-messages.ts";
import { type EngineContext, ExpectedPayments } from "./context.ts";
import { Lane } from "./lane.ts";
import { ChainStatus } from "./chain-status.ts";
import type { Backlog } from "./queue-store.ts";
import { schemeOf } from "../../schemes/index.ts";
import type { Availability, SettlementKind, SettlementRequest } from "./types.ts";
import { ExternalRelays } from "./external-relays.ts";

export interface ChainEngineDeps {
  ctx: EngineContext;
  signers: readonly LocalAccount[];
  /** The token of this chain has been compared with our table. */
  isVerified: () => boolean;
  /** Another process has the lanes: here payments are only accepted and looked up. */
  lanesElsewhere?: LanesElsewhere | undefined;
}

/** What it has become since is caught up with where a transaction is priced again. */
const TIP_FRESH_MS = 30_000;
const QUEUE_FRESH_MS = 250;
/** When work waits longer than this, or than so many blocks, nothing moves: no more is accepted. */
const STANDSTILL_MS = 30_000;
const STANDSTILL_BLOCKS = 15;
const CLASSES: Record<SettlementKind, number> = {
  withdrawal: 0,
  spend: 1,
  x402: 1,
  facilitated: 2,
  refund: 2,
  allowance: 1,
};
const FALLBACK_TIP_WEI = 1_000_000_000n;
/** What one plain settlement may cost, for "can the relayer pay at all". */
const SINGLE_GAS = 170_000n;
/** The most that the usual scheme's call uses. */
const USUAL_KEY_GAS = 100_000n;
/** Accepted rows become visible at the caller's commit: looked for a few times after the word. */
const LOOK_AFTER_MS = [3, 15, 60, 250];

export class ChainEngine {
  readonly ctx: EngineContext;
  readonly lanes: Lane[];
  readonly externalRelays: ExternalRelays;
  readonly expected: ExpectedPayments;
  readonly chainStatus: ChainStatus;
  readonly #deps: ChainEngineDeps;
  readonly #backlog: () => Promise<Backlog>;
  readonly #tip: () => Promise<bigint>;
  readonly #orphans = new Map<string, Lane>();
  readonly #timers = new Set<NodeJS.Timeout>();
  #lookUntil = 0;

  constructor(deps: ChainEngineDeps) {
    this.#deps = deps;
    this.ctx = deps.ctx;
    this.expected = new ExpectedPayments((isExpected) =>
      deps.lanesElsewhere?.expecting(deps.ctx.network.chainId, isExpected),
    );
    this.lanes = deps.signers.map((signer) => this.#lane(signer.address, signer));
    const { pool, network, queue, rpc } = deps.ctx;
    const { chainId, usdc } = network;
    this.#backlog = memoFor(QUEUE_FRESH_MS, () => queue.readBacklog(pool, chainId));
    this.chainStatus = new ChainStatus({
      rpc,
      timings: deps.ctx.timings,
      asset: usdc.address,
      lanes: this.lanes,
    });
    this.#tip = memoFor(TIP_FRESH_MS, () => this.#readTip());
    this.externalRelays = new ExternalRelays(deps.ctx, (address) => this.#adopt(address));
  }

  start(): void {
    this.ctx.heads.start();
    if (this.#deps.lanesElsewhere) return;
    this.ctx.batcher.start();
    for (const lane of this.lanes) void lane.start();
    this.externalRelays.start();
  }

  async stop(): Promise<void> {
    for (const timer of this.#timers) clearTimeout(timer);
    this.ctx.batcher.stop();
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

  expect(): () => void {
    const { heads } = this.ctx;
    const over = this.expected.expect();
    // Of a burst it is noted at which block it was rehearsed.
    if (this.expected.count > 1 && !heads.current) void heads.newest().catch(() => undefined);
    return over;
  }

  /** Throws unless the chain answers and a relayer can pay. Call it before anything is signed. */
  async assertAvailable({ kind, lane }: Availability): Promise<void> {
    const { ctx } = this;
    const closed = (detail: string, cause?: unknown): ApiError =>
      new ApiError("chain_unavailable", { detail, cause });
    if (this.lanes.length > 0 && this.#lanesFor(lane).every((each) => each.isSignerUnavailable))
      throw new ApiError("keys_unavailable", {
        detail: `The relayer's signer on ${ctx.network.name} does not respond. Nothing was signed.`,
        headers: { "retry-after": "3" },
      });
    if (!this.#deps.isVerified())
      throw closed(`The USDC of ${ctx.network.name} has not been verified yet.`);
    try {
      if (!ctx.heads.healthy) await ctx.heads.refresh();
      await this.#assertTokenAnswers();
      await this.#assertFunded(ctx.heads.head?.baseFeeWei ?? 0n, lane);
    } catch (error) {
      if (error instanceof ApiError) throw error;
      throw closed(`${ctx.network.name} cannot be reached. Nothing was signed.`, error);
    }
    // The owner's way out stays open: a withdrawal is the first thing to leave once anything moves.
    if (kind !== "withdrawal") await this.#assertMoving(kind, lane);
  }

  /**
   * What is set aside for one payment before it is signed: what it would cost now, alone. What a payer's code may
   * burn is the most that its transaction is given.
   */
  async gasHold(options: { hasCode?: boolean; keyGas?: bigint } = {}): Promise<bigint> {
    const { heads, network, gasCapPerItem, feeCaps: caps } = this.ctx;
    const { baseFeeWei } = heads.head ?? (await heads.refresh());
    const priorityFeeWei = await this.priorityFeeWei();
    const { nativePriceAtomic } = network;
    // Set aside for the usual transfer, which uses less than the most; a dearer one in proportion.
    const usual = ((options.keyGas ?? USUAL_KEY_GAS) * PLAIN_GAS) / USUAL_KEY_GAS;
    const gas = options.hasCode === true ? gasCapPerItem : usual;
    return gasHoldOf({ baseFeeWei, priorityFeeWei, caps, nativePriceAtomic, gas });
  }

  /**
   * The head, as far as this process knows: an older one only makes a search longer. And the gas of facilitated
   * work, of refunds and of allowances; that of an agent's payment was set aside when it was reserved.
   */
  async complete(request: SettlementRequest): Promise<SettlementRequest> {
    const { heads } = this.ctx;
    const head = heads.head ?? (await heads.refresh().catch(() => undefined));
    const known = head ? { acceptedBlock: head.number, ...request } : request;
    const { authorization, merchant, kind } = request;
    const isOwn = kind !== "facilitated" && kind !== "refund" && kind !== "allowance";
    if (isOwn || request.gas !== undefined) return known;
    const { isPlainKey, keyGas } = schemeOf(authorization).planTransfer(authorization);
    // What is not known now is charged by the receipt.
    const hold = await this.gasHold({ hasCode: !isPlainKey, keyGas }).catch(() => 0n);
    // Of an agent's wallet the database knows whose it is.
    const { from, to } = authorization;
    const accounts = kind === "allowance" ? [] : accountsOf({ from, to, merchant });
    return Object.assign({}, known, { gas: { accounts, hold } });
  }

  async #assertTokenAnswers(): Promise<void> {
    if (await this.chainStatus.tokenAnswers()) return;
    throw new ApiError("chain_unavailable", {
      detail: `The USDC contract on ${this.ctx.network.name} does not work as a token. Nothing was signed.`,
    });
  }

  /** Work of this class waits too long, or each lane holds a transaction that no block takes. */
  async #assertMoving(kind: SettlementKind | undefined, lane: string | undefined): Promise<void> {
    const { network } = this.ctx;
    const atMost = Math.max(STANDSTILL_MS, STANDSTILL_BLOCKS * network.blockTimeMs) / 1_000;
    const { waitingSeconds, pendingSeconds } = await this.#backlog();
    const waiting = [...waitingSeconds].flatMap(([each, seconds]) =>
      kind === undefined || each <= CLASSES[kind] ? [seconds] : [],
    );
    const stuck = this.#lanesFor(lane).map(({ address }) => pendingSeconds.get(address) ?? 0);
    const seconds = Math.max(...waiting, Math.min(...stuck));
    if (seconds <= atMost) return;
    throw new ApiError("chain_unavailable", {
      detail: `Payments on ${network.name} have been waiting for ${Math.floor(seconds)} seconds. Nothing was signed.`,
      headers: { "retry-after": String(Math.ceil(atMost)) },
    });
  }

  async #assertFunded(baseFeeWei: bigint, lane: string | undefined): Promise<void> {
    const { network, feeCaps } = this.ctx;
    if (baseFeeWei > feeCaps.maxFeeWei)
      throw new ApiError("chain_unavailable", {
        detail: `Gas on ${network.name} costs more than the operator's fee cap (MAX_FEE_GWEI_${network.chainId}: ${network.maxFeeGwei} gwei). Nothing was signed.`,
        headers: { "retry-after": "30" },
      });
    const neededWei = SINGLE_GAS * (2n * baseFeeWei + (await this.priorityFeeWei()));
    const balances = await Promise.all(this.#lanesFor(lane).map((each) => each.readBalance()));
    if (!balances.some((balance) => balance >= neededWei))
      throw new ApiError("relayer_unfunded", {
        detail: `The relayer on ${this.ctx.network.name} cannot pay for gas. Nothing was signed.`,
      });
  }

  /** All, or the one that alone may send it. */
  #lanesFor(address: string | undefined): Lane[] {
    const own = address?.toLowerCase();
    return this.lanes.filter((lane) => own === undefined || lane.address === own);
  }

  readonly priorityFeeWei = (): Promise<bigint> => this.#tip();

  async #readTip(): Promise<bigint> {
    try {
      return BigInt(await this.ctx.rpc.call<string>("eth_maxPriorityFeePerGas", []));
    } catch (error) {
      // Chains without the method take any tip; an unreachable one is noticed elsewhere.
      if (classifyChainError(error).kind === "unreachable") throw error;
      return FALLBACK_TIP_WEI;
    }
  }

  #lane(address: string, signer: LocalAccount | undefined): Lane {
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
