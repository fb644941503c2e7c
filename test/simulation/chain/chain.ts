/**
 * A chain as the service sees it through JSON-RPC: pure, synchronous and deterministic. It has no clock and makes no
 * choices: time and all that happens come in as arguments.
 */
import type { Address, Hex } from "viem";
import batcherArtifact from "../../../server/infra/chain/batcher/Batcher.json" with { type: "json" };
import { MULTICALL3_ADDRESS } from "../../../server/core/networks.ts";
import { selector, word, addressWord } from "./abi.ts";
import { channels, CHANNELS, channelKeys, collector, COLLECTOR } from "./channels.ts";
import { Endpoint } from "./endpoint.ts";
import type { Contract, Effect } from "./execution.ts";
import { Ledger, RemovedBranch, type Block } from "./ledger.ts";
import {
  bitmapKey,
  EXACT_PROXY,
  exactProxy,
  permit2,
  PERMIT2,
  UPTO_PROXY,
  uptoProxy,
} from "./permit2.ts";
import { Pool } from "./pool.ts";
import { batcher, multicall3 } from "./relays.ts";
import { EndpointDown, EndpointSilent, RpcError } from "./rpc-error.ts";
import { hash } from "./signatures.ts";
import { token, tokenKeys } from "./token.ts";
import type { Transaction } from "./transactions.ts";

export { AwaitedReceipt } from "./endpoint.ts";
export type { Endpoint } from "./endpoint.ts";
export type { Block, Mined, RpcReceipt } from "./ledger.ts";
export type { Transaction } from "./transactions.ts";
export { EndpointDown, EndpointSilent, RpcError } from "./rpc-error.ts";

export interface ChainOptions {
  chainId: number;
  usdc: Address;
  /** Virtual time, in milliseconds since 1970. */
  nowMs: () => number;
  /** Accounts that hold native balance from the start. */
  relayers: readonly Address[];
  /** May mint, pause and block accounts. */
  admin?: Address;
  endpoints?: number;
  baseFeeWei?: bigint;
  blockGasLimit?: number;
  relayerWei?: bigint;
  hasBatcher?: boolean;
}

export interface MineOptions {
  /** Only these transactions may be in the block. */
  only?: readonly Hex[];
  /** These stay in the pool, and what follows them by nonce. */
  without?: readonly Hex[];
}

/** An authorization that a block used or canceled. */
export type AuthorizationEnd = Extract<Effect, { kind: "used" | "canceled" }> & Place;
export type Transfer = Extract<Effect, { kind: "transfer" }> & Place;
export type ChannelEffect = Extract<Effect, { kind: "channel" }> & Place;
interface Place {
  txHash: Hex;
  sender: Hex;
  block: number;
}

const BATCHER = batcherArtifact.address.toLowerCase() as Hex;
const CODES = {
  token: "0xf001",
  multicall3: "0xf002",
  permit2: "0xf003",
  exactProxy: "0xf004",
  uptoProxy: "0xf005",
  channels: "0xf006",
  collector: "0xf007",
  batcher: batcherArtifact.deployedBytecode,
} as const;
const ADMIN: Address = "0x00000000000000000000000000000000000ad111";
const RELAYER_WEI = 10_000n * 10n ** 18n;
const BASE_FEE_WEI = 1_000_000_000n;
const BLOCK_GAS = 30_000_000;
const THIRD_PARTY_GAS = 1_000_000;
const THIRD_PARTY_TIP_WEI = 1_000_000_000n;
const BALANCE_AMOUNT = 10n ** 18n;

const lower = (text: string): Hex => text.toLowerCase() as Hex;

export class SimulatedChain {
  readonly ledger: Ledger;
  readonly usdc: Hex;
  readonly admin: Hex;
  readonly endpoints: Endpoint[];
  /** What the makers of blocks know. */
  readonly pool = new Pool();
  readonly #nowMs: () => number;
  readonly #blockGasLimit: number;
  /** What did not come from transactions, by block: it stays when the block is replaced. */
  readonly #given = new Map<number, (() => void)[]>();
  readonly #arrival = new Map<Hex, number>();
  #arrivals = 0;
  #unsigned = 0;
  #baseFeeWei: bigint;

  constructor(options: ChainOptions) {
    const { chainId, usdc, nowMs, relayers, endpoints = 1 } = options;
    this.#nowMs = nowMs;
    this.#blockGasLimit = options.blockGasLimit ?? BLOCK_GAS;
    this.#baseFeeWei = options.baseFeeWei ?? BASE_FEE_WEI;
    this.usdc = lower(usdc);
    this.admin = lower(options.admin ?? ADMIN);
    this.ledger = new Ledger(chainId, {
      timestampSeconds: Math.floor(nowMs() / 1_000),
      baseFeeWei: this.#baseFeeWei,
      gasLimit: this.#blockGasLimit,
    });
    this.#place(this.usdc, CODES.token, token);
    this.#place(lower(MULTICALL3_ADDRESS), CODES.multicall3, multicall3);
    this.#place(PERMIT2, CODES.permit2, permit2);
    this.#place(EXACT_PROXY, CODES.exactProxy, exactProxy);
    this.#place(UPTO_PROXY, CODES.uptoProxy, uptoProxy);
    this.#place(CHANNELS, CODES.channels, channels);
    this.#place(COLLECTOR, CODES.collector, collector);
    if (options.hasBatcher !== false) this.#place(BATCHER, CODES.batcher, batcher);
    this.ledger.state.write(tokenKeys.admin, this.admin, 0);
    for (const relayer of relayers) this.fund(relayer, options.relayerWei ?? RELAYER_WEI);
    const deps = {
      ledger: this.ledger,
      blockGasLimit: this.#blockGasLimit,
      spread: (transaction: Transaction) => this.#spread(transaction),
    };
    this.endpoints = Array.from({ length: endpoints }, () => new Endpoint(deps));
  }

  /**
   * Throws RpcError for an error that the endpoint returns, EndpointDown where the connection fails, and EndpointSilent
   * where no response comes. The result of a send that waits is an AwaitedReceipt.
   */
  request(endpoint: number, method: string, params: readonly unknown[] = []): unknown {
    const found = this.endpoints[endpoint];
    if (!found) throw new EndpointDown(`there is no endpoint ${endpoint}`);
    return found.request(method, params);
  }

  // --- blocks

  /** Makes one block of what the pool holds. */
  mine(options: MineOptions = {}): Block {
    this.#collect();
    const { head } = this.ledger;
    const timestampSeconds = Math.max(Math.floor(this.#nowMs() / 1_000), head.timestampSeconds);
    return this.#append(options, timestampSeconds);
  }

  /**
   * Replaces the last `depth` blocks by empty ones with the same times. Their transactions return to the pools, except
   * those in `drop`.
   */
  reorganise(depth: number, { drop = [] }: { drop?: readonly Hex[] | "all" } = {}): void {
    const removed: ReturnType<Ledger["undo"]>[] = [];
    for (let count = 0; count < depth && this.ledger.head.number > 0; count += 1)
      removed.unshift(this.ledger.undo());
    const before = new RemovedBranch(this.ledger, removed);
    for (const endpoint of this.endpoints) endpoint.reorganised(before);
    for (const { block } of removed) this.#append({ only: [] }, block.timestampSeconds);
    for (const { block } of removed)
      for (const { transaction } of block.mined)
        if (drop !== "all" && !drop.includes(transaction.hash)) this.#spread(transaction);
  }

  setBaseFee(wei: bigint): void {
    this.#baseFeeWei = wei;
  }

  // --- the pool

  /** Every node forgets one transaction, or all. */
  evictMempool(txHash?: Hex): void {
    for (const pool of [this.pool, ...this.endpoints.map((endpoint) => endpoint.pool)])
      if (txHash === undefined) pool.clear();
      else pool.remove(txHash);
  }

  /**
   * A transaction of an account whose key is elsewhere: a third party's, or one by a second signer of a relayer's key.
   * If it lacks native balance for the gas, it gets it.
   */
  sendAs(
    account: Address,
    call: {
      to: Address;
      data?: Hex;
      value?: bigint;
      gas?: number;
      nonce?: number;
      maxFeeWei?: bigint;
      priorityFeeWei?: bigint;
    },
  ): Hex {
    const from = lower(account);
    const gas = call.gas ?? THIRD_PARTY_GAS;
    const priorityFeeWei = call.priorityFeeWei ?? THIRD_PARTY_TIP_WEI;
    const maxFeeWei = call.maxFeeWei ?? this.#baseFeeWei * 10n + priorityFeeWei;
    const value = call.value ?? 0n;
    const needed = BigInt(gas) * maxFeeWei + value;
    if (this.nativeBalanceOf(from) < needed) this.fund(from, needed + BALANCE_AMOUNT);
    const nonce = call.nonce ?? this.pool.nonceAfter(from, this.ledger.nonceOf(from));
    this.#unsigned += 1;
    const transaction: Transaction = {
      hash: `0x${hash(`${addressWord(from)}${word(nonce)}${word(this.#unsigned)}`)}`,
      raw: undefined,
      type: 2,
      from,
      nonce,
      to: lower(call.to),
      value,
      input: lower(call.data ?? "0x"),
      gas,
      maxFeeWei,
      priorityFeeWei,
      chainId: this.ledger.chainId,
    };
    this.#spread(transaction);
    return transaction.hash;
  }

  // --- money and contracts from outside: at once, and as of the newest block

  /** Raises a balance without a transaction or an event. */
  mint(address: Address, atomic: bigint): void {
    this.#give(tokenKeys.balance(lower(address)), atomic);
  }

  fund(address: Address, wei: bigint): void {
    this.#give(`wei ${lower(address)}`, wei);
  }

  /** In the next block, with a transaction and events, as the token's issuer pays out. */
  deposit(address: Address, atomic: bigint): Hex {
    return this.#admin("mint(address,uint256)", addressWord(lower(address)) + word(atomic));
  }

  pauseToken(isPaused = true): Hex {
    return this.#admin(isPaused ? "pause()" : "unpause()", "");
  }

  blacklist(address: Address, isBlocked = true, priorityFeeWei?: bigint): Hex {
    const name = isBlocked ? "blacklist(address)" : "unBlacklist(address)";
    return this.#admin(name, addressWord(lower(address)), priorityFeeWei);
  }

  /** Contract code at an address, or none. Other code than `behaviour` does nothing and fails. */
  setCode(address: Address, code: Hex | undefined, behaviour?: Contract): void {
    if (behaviour && code !== undefined) this.ledger.contracts.set(code, behaviour);
    this.#givenAt(() => {
      this.ledger.state.write(`code ${lower(address)}`, code, this.ledger.head.number);
    });
  }

  // --- inspection of the canonical chain

  get head(): Block {
    return this.ledger.head;
  }

  balanceOf(address: Address, block?: number): bigint {
    return this.ledger.number(tokenKeys.balance(lower(address)), block);
  }

  nativeBalanceOf(address: Address, block?: number): bigint {
    return this.ledger.number(`wei ${lower(address)}`, block);
  }

  allowanceOf(owner: Address, spender: Address): bigint {
    return this.ledger.number(tokenKeys.allowance(lower(owner), lower(spender)));
  }

  /** Whether it is used or canceled. Nonces as in the engine: the token's, or with the prefix `permit2:`. */
  isEnded(from: Address, nonce: string): boolean {
    const payer = lower(from);
    if (!nonce.startsWith("permit2:"))
      return this.ledger.number(tokenKeys.state(payer, nonce.slice(2).toLowerCase())) !== 0n;
    const value = BigInt(nonce.slice("permit2:".length));
    const bits = this.ledger.number(bitmapKey(payer, value >> 8n));
    return ((bits >> (value & 255n)) & 1n) === 1n;
  }

  /** In the order of the chain. */
  *ends(): Generator<AuthorizationEnd> {
    for (const effect of this.#effects())
      if (effect.kind === "used" || effect.kind === "canceled") yield effect;
  }

  *transfers(): Generator<Transfer> {
    for (const effect of this.#effects()) if (effect.kind === "transfer") yield effect;
  }

  *channelEffects(): Generator<ChannelEffect> {
    for (const effect of this.#effects()) if (effect.kind === "channel") yield effect;
  }

  channelOf(id: string): { balance: bigint; claimed: bigint; withdrawalBegunSeconds: bigint } {
    const digits = id.slice(2).toLowerCase();
    const pair = this.ledger.number(channelKeys.channel(digits));
    const pending = this.ledger.number(channelKeys.withdrawal(digits));
    return {
      balance: BigInt.asUintN(128, pair),
      claimed: pair >> 128n,
      withdrawalBegunSeconds: pending >> 128n,
    };
  }

  /** The mined transactions of a sender, by nonce. */
  transactionsOf(sender: Address) {
    const from = lower(sender);
    return this.ledger.blocks.flatMap((block) =>
      block.mined
        .filter(({ transaction }) => transaction.from === from)
        .map((mined) => ({ ...mined, block: block.number })),
    );
  }

  *#effects(): Generator<Effect & Place> {
    for (const { mined, number } of this.ledger.blocks)
      for (const { transaction, effects } of mined)
        for (const effect of effects)
          yield { ...effect, txHash: transaction.hash, sender: transaction.from, block: number };
  }

  // --- inside

  /** To the makers of blocks and to every endpoint that listens. */
  #spread(transaction: Transaction): void {
    if (this.pool.offer(transaction)) this.#arrival.set(transaction.hash, (this.#arrivals += 1));
    for (const endpoint of this.endpoints) if (endpoint.gossips) endpoint.pool.offer(transaction);
  }

  /** What endpoints kept to themselves while they did not gossip. */
  #collect(): void {
    for (const { gossips, pool } of this.endpoints)
      if (gossips)
        for (const transaction of pool.all)
          if (!this.pool.get(transaction.hash)) this.#spread(transaction);
  }

  #append(options: MineOptions, timestampSeconds: number): Block {
    const block = this.ledger.mine(this.#inOrder(options), {
      timestampSeconds,
      baseFeeWei: this.#baseFeeWei,
      gasLimit: this.#blockGasLimit,
    });
    for (const give of this.#given.get(block.number) ?? []) give();
    this.pool.dropUsed((sender) => this.ledger.nonceOf(sender));
    for (const endpoint of this.endpoints) endpoint.notice();
    return block;
  }

  /** The best payers first, then the first to arrive; of one sender in the order of nonces. */
  #inOrder({ only, without = [] }: MineOptions): () => Transaction | undefined {
    const next = new Map<Hex, Transaction>();
    const enter = (sender: Hex, nonce: number): void => {
      const found = this.pool.at(sender, nonce);
      const isWanted =
        found !== undefined &&
        found.maxFeeWei >= this.#baseFeeWei &&
        (only === undefined || only.includes(found.hash)) &&
        !without.includes(found.hash);
      if (isWanted) next.set(sender, found);
      else next.delete(sender);
    };
    const tipOf = ({ maxFeeWei, priorityFeeWei }: Transaction): bigint => {
      const room = maxFeeWei - this.#baseFeeWei;
      return room < priorityFeeWei ? room : priorityFeeWei;
    };
    const arrivedAt = ({ hash }: Transaction): number => this.#arrival.get(hash) ?? 0;
    for (const sender of this.pool.senders) enter(sender, this.ledger.nonceOf(sender));
    return () => {
      let best: Transaction | undefined;
      for (const candidate of next.values()) {
        const isBetter =
          !best ||
          tipOf(candidate) > tipOf(best) ||
          (tipOf(candidate) === tipOf(best) && arrivedAt(candidate) < arrivedAt(best));
        if (isBetter) best = candidate;
      }
      if (best) enter(best.from, best.nonce + 1);
      return best;
    };
  }

  #place(address: Hex, code: string, contract: Contract): void {
    this.ledger.contracts.set(code, contract);
    this.ledger.state.write(`code ${address}`, code, 0);
  }

  #give(key: string, amount: bigint): void {
    this.#givenAt(() => {
      const { number } = this.ledger.head;
      this.ledger.state.write(key, this.ledger.number(key, number) + amount, number);
    });
  }

  #givenAt(give: () => void): void {
    const { number } = this.ledger.head;
    this.#given.set(number, [...(this.#given.get(number) ?? []), give]);
    give();
  }

  #admin(signature: string, words: string, priorityFeeWei = THIRD_PARTY_TIP_WEI): Hex {
    const data: Hex = `0x${selector(signature)}${words}`;
    return this.sendAs(this.admin, { to: this.usdc, data, priorityFeeWei });
  }
}

/** For a network layer: answers the body of one HTTP request, with one call or a batch of them. */
export function respond(chain: SimulatedChain, endpoint: number, body: unknown): unknown {
  if (!Array.isArray(body)) return answerTo(chain, endpoint, body as RpcRequest);
  if (chain.endpoints[endpoint]?.refusesBatches === true)
    return {
      jsonrpc: "2.0",
      id: null,
      error: { code: -32600, message: "batches are not allowed" },
    };
  return body.map((each) => answerTo(chain, endpoint, each as RpcRequest));
}

interface RpcRequest {
  id: number;
  method: string;
  params?: unknown[];
}

function answerTo(chain: SimulatedChain, endpoint: number, { id, method, params }: RpcRequest) {
  try {
    return { jsonrpc: "2.0", id, result: chain.request(endpoint, method, params ?? []) };
  } catch (error) {
    if (error instanceof EndpointDown || error instanceof EndpointSilent) throw error;
    if (!(error instanceof RpcError)) throw error;
    const { code, message, data } = error;
    return { jsonrpc: "2.0", id, error: { code, message, ...(data !== undefined && { data }) } };
  }
}
