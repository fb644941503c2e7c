/**
 * The engine of one chain: its lanes, its watch for payments relayed by others, and the checks before new work
 * is accepted.
 */
import { getAddress } from "viem";
import { addressWord, selectorDigits, uintOf } from "../../core/abi.ts";
import { accountsOf, gasHoldOf, PLAIN_GAS } from "../../core/gas.ts";
import { MULTICALL3_ADDRESS } from "../../core/networks.ts";
import { memoFor } from "../../core/shared-answers.ts";
import { ApiError } from "../../errors.ts";
import { readMany } from "../../infra/chain/contracts.ts";
import { classifyChainError } from "../../infra/chain/errors.ts";
import { schemeOf } from "../../schemes/index.ts";
import type { EngineContext } from "./context.ts";
import { ExternalRelays } from "./external-relays.ts";
import { Lane, type LaneSigner } from "./lane.ts";
import { readBacklog, type Backlog } from "./store.ts";
import type { Availability, SettlementKind, SettlementRequest } from "./types.ts";
import { CLASSES } from "./work-store.ts";

interface ChainEngineDeps {
  ctx: EngineContext;
  signers: readonly LaneSigner[];
  /** The chain's token has been compared with our table of networks. */
  isVerified: () => boolean;
}

/** A stale tip is corrected when a transaction is re-priced. */
const TIP_FRESH_MS = 30_000;
const QUEUE_FRESH_MS = 250;
/**
 * When work waits longer than this, or than this many blocks, the lanes are stuck and no more work is accepted.
 */
const STANDSTILL_MS = 30_000;
const STANDSTILL_BLOCKS = 15;
const FALLBACK_TIP_WEI = 1_000_000_000n;
/** Upper bound for one plain settlement, to decide whether a relayer can pay at all. */
const SINGLE_GAS = 170_000n;
/** The highest gas use of the most common scheme's call (EIP-3009). */
const USUAL_KEY_GAS = 100_000n;
/**
 * Accepted rows become visible when the caller commits, so lanes are woken several times after the
 * announcement.
 */
const LOOK_AFTER_MS = [3, 15, 60, 250];
const GET_ETH_BALANCE = selectorDigits("getEthBalance(address)");

/** The cause of `relayer_unfunded`, for operators: callers do not get it. */
export class NeedsFunds extends Error {
  override name = "NeedsFunds";
}

export class ChainEngine {
  readonly ctx: EngineContext;
  readonly lanes: Lane[];
  readonly externalRelays: ExternalRelays;
  readonly #deps: ChainEngineDeps;
  readonly #backlog: () => Promise<Backlog>;
  readonly #tip: () => Promise<bigint>;
  readonly #tokenAnswers: () => Promise<boolean>;
  readonly #orphans = new Map<string, Lane>();
  readonly #timers = new Set<NodeJS.Timeout>();
  #lookUntil = 0;

  constructor(deps: ChainEngineDeps) {
    this.#deps = deps;
    this.ctx = deps.ctx;
    this.lanes = deps.signers.map((signer) => this.#lane(signer.account.address, signer));
    const { pool, network, timings } = deps.ctx;
    this.#backlog = memoFor(QUEUE_FRESH_MS, () => readBacklog(pool, network.chainId));
    this.#tokenAnswers = memoFor(timings.chainStatusFreshMs, () => this.#readStatus());
    this.#tip = memoFor(TIP_FRESH_MS, () => this.#readTip());
    this.externalRelays = new ExternalRelays(deps.ctx, (address) => this.#adopt(address));
  }

  start(): void {
    this.ctx.heads.start();
    this.ctx.batcher.start();
    for (const lane of this.lanes) void lane.start();
    this.externalRelays.start();
  }

  /** One that became known after the start. */
  addLane(signer: LaneSigner): void {
    const lane = this.#lane(signer.account.address, signer);
    this.lanes.push(lane);
    void lane.start();
  }

  async stop(): Promise<void> {
    for (const timer of this.#timers) clearTimeout(timer);
    this.ctx.batcher.stop();
    await Promise.all([
      this.externalRelays.stop(),
      ...[...this.lanes, ...this.#orphans.values()].map((lane) => lane.stop()),
    ]);
  }

  /** Another process announced work that is already committed. */
  wake(): void {
    for (const lane of this.lanes) lane.wake.raise();
  }

  /** This process wrote work in a transaction that may commit a little later. */
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

  /** Throws unless the chain responds and a relayer can pay. Called before anything is signed. */
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
    // Owners can always withdraw: a withdrawal is the first to be sent once the lanes move again.
    if (kind !== "withdrawal") await this.#assertMoving(kind, lane);
  }

  /**
   * The gas cost to reserve for one payment before it is signed: its current cost when sent alone. For a payer
   * with contract code, which may burn all gas it gets, this is the gas limit of the transaction.
   */
  async gasHold(
    options: { hasCode?: boolean; keyGas?: bigint; moreGas?: bigint } = {},
  ): Promise<bigint> {
    const { heads, network, gasCapPerItem, feeCaps: caps } = this.ctx;
    const { baseFeeWei } = heads.head ?? (await heads.refresh());
    const priorityFeeWei = await this.priorityFeeWei();
    const { nativePriceAtomic } = network;
    // Reserves for the usual transfer, which uses less than its maximum; more expensive ones in proportion.
    const usual = ((options.keyGas ?? USUAL_KEY_GAS) * PLAIN_GAS) / USUAL_KEY_GAS;
    const gas = (options.hasCode === true ? gasCapPerItem : usual) + (options.moreGas ?? 0n);
    return gasHoldOf({ baseFeeWei, priorityFeeWei, caps, nativePriceAtomic, gas });
  }

  /**
   * Adds the newest block that this process knows (an older one only makes a search longer), and the gas
   * reservation for facilitated payments, refunds and allowances. Agents' payments reserved their gas earlier.
   */
  async complete(request: SettlementRequest): Promise<SettlementRequest> {
    const { heads } = this.ctx;
    const head = heads.head ?? (await heads.refresh().catch(() => undefined));
    const known = head ? { acceptedBlock: head.number, ...request } : request;
    const { authorization, merchant, kind } = request;
    const isOwn = kind !== "facilitated" && kind !== "refund" && kind !== "allowance";
    if (isOwn || request.gas !== undefined) return known;
    const scheme = schemeOf(authorization);
    const { isPlainKey, keyGas, moreGas = 0n } = scheme.planTransfer(authorization);
    // If it cannot be estimated now, the receipt decides the charge.
    const hold = await this.gasHold({ hasCode: !isPlainKey, keyGas, moreGas }).catch(() => 0n);
    // For an agent's wallet, the database knows the owner's accounts.
    const { from } = authorization;
    const to = scheme.payeeOf?.(authorization) ?? authorization.to;
    const accounts = kind === "allowance" ? [] : accountsOf({ from, to, merchant });
    return Object.assign({}, known, { gas: { accounts, hold } });
  }

  async #assertTokenAnswers(): Promise<void> {
    if (await this.#tokenAnswers()) return;
    throw new ApiError("chain_unavailable", {
      detail: `The USDC contract on ${this.ctx.network.name} does not work as a token. Nothing was signed.`,
    });
  }

  /**
   * Whether the token works: a proxy without code returns nothing to every call. The relayers' gas balances are read
   * in the same call.
   */
  async #readStatus(): Promise<boolean> {
    const { rpc, network } = this.ctx;
    const probe = {
      asset: network.usdc.address,
      from: `0x${"0".repeat(40)}`,
      nonce: `0x${"0".repeat(64)}`,
    } as const;
    const requestedMs = performance.now();
    const [state, ...balances] = await readMany(
      rpc,
      [
        schemeOf(probe).stateCall(probe),
        ...this.lanes.map(({ address }) => ({
          target: MULTICALL3_ADDRESS,
          data: `0x${GET_ETH_BALANCE}${addressWord(address)}` as const,
        })),
      ],
      "latest",
    );
    for (const [index, lane] of this.lanes.entries()) {
      // A lane whose balance is missing reads it on its own.
      const wei = uintOf(balances[index]);
      if (wei !== undefined) lane.noteBalance(wei, requestedMs);
    }
    return state !== undefined && schemeOf(probe).isEnded(probe, state) !== undefined;
  }

  /**
   * Throws when work of this class waits too long, or when every lane has a transaction that no block includes.
   */
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
        detail: `The relayer on ${network.name} cannot pay for gas. Nothing was signed.`,
        cause: this.#needsFunds(lane),
      });
  }

  #needsFunds(lane: string | undefined): NeedsFunds {
    const { name, id, nativeSymbol } = this.ctx.network;
    const addresses = this.#lanesFor(lane).map(({ address }) => getAddress(address));
    return new NeedsFunds(`Send ${nativeSymbol} on ${name} (${id}) to ${addresses.join(" or ")}.`);
  }

  /** All lanes that send what any may send, or only the one that may send the payment. */
  #lanesFor(address: string | undefined): Lane[] {
    const own = address?.toLowerCase();
    return this.lanes.filter((lane) =>
      own === undefined ? !lane.sendsOnlyBound : lane.address === own,
    );
  }

  readonly priorityFeeWei = (): Promise<bigint> => this.#tip();

  async #readTip(): Promise<bigint> {
    try {
      return BigInt(await this.ctx.rpc.call<string>("eth_maxPriorityFeePerGas", []));
    } catch (error) {
      // Chains without the method accept any tip; an unreachable endpoint is reported elsewhere.
      if (classifyChainError(error).kind === "unreachable") throw error;
      return FALLBACK_TIP_WEI;
    }
  }

  #lane(address: string, signer: LaneSigner | undefined): Lane {
    const { ctx, priorityFeeWei } = this;
    return new Lane({ ctx, address, signer, priorityFeeWei });
  }

  /** Follows transactions in flight to their end when their key has left the configuration. */
  #adopt(address: string): void {
    if (this.lanes.some((lane) => lane.address === address) || this.#orphans.has(address)) return;
    const lane = this.#lane(address, undefined);
    this.#orphans.set(address, lane);
    void lane.start().finally(() => this.#orphans.delete(address));
  }
}
