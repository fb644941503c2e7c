/**
 * Whether the token works, and the relayers' gas balances. Each payment needs both and calls the chain anyway,
 * so these reads are added to that call. They are made alone only when no recent call contained them.
 */
import {
  addressWord,
  selectorDigits,
  uintOf,
  type CallResult,
  type ContractCall,
} from "../../core/abi.ts";
import type { Timings } from "../../core/timings.ts";
import { MULTICALL3_ADDRESS } from "../../core/networks.ts";
import { readMany } from "../../infra/chain/contracts.ts";
import type { Caller } from "../../infra/chain/rpc.ts";
import { schemeOf } from "../../schemes/index.ts";
import type { ExtraCalls } from "./types.ts";

const GET_ETH_BALANCE = selectorDigits("getEthBalance(address)");

export interface ChainStatusDeps {
  rpc: Caller;
  timings: Pick<Timings, "chainStatusFreshMs" | "chainStatusExtraCallsMs">;
  asset: string;
  lanes: readonly { address: string; noteBalance(wei: bigint): void }[];
}

export class ChainStatus {
  readonly #deps: ChainStatusDeps;
  readonly #probeKey: { asset: string; from: string; nonce: string };
  readonly #calls: readonly ContractCall[];
  #known = { readMs: Number.NEGATIVE_INFINITY, tokenAnswers: false };
  #reading: Promise<boolean> | undefined;

  constructor(deps: ChainStatusDeps) {
    this.#deps = deps;
    const { asset, lanes } = deps;
    this.#probeKey = { asset, from: `0x${"0".repeat(40)}`, nonce: `0x${"0".repeat(64)}` };
    this.#calls = [
      schemeOf(this.#probeKey).stateCall(this.#probeKey),
      ...lanes.map(({ address }) => ({
        target: MULTICALL3_ADDRESS,
        data: `0x${GET_ETH_BALANCE}${addressWord(address)}` as const,
      })),
    ];
  }

  /**
   * Calls to add to a Multicall3 of the newest state, before any call that changes state. Undefined when the
   * status is fresh.
   */
  extraCalls(): ExtraCalls | undefined {
    const readMs = performance.now();
    if (readMs - this.#known.readMs <= this.#deps.timings.chainStatusExtraCallsMs) return undefined;
    return { calls: this.#calls, receive: (results) => void this.#keep(results, readMs) };
  }

  /** Detects a proxy without code, which returns nothing to every call. Failed reads are not cached. */
  async tokenAnswers(): Promise<boolean> {
    if (performance.now() - this.#known.readMs <= this.#deps.timings.chainStatusFreshMs)
      return this.#known.tokenAnswers;
    this.#reading ??= this.#read().finally(() => {
      this.#reading = undefined;
    });
    return this.#reading;
  }

  async #read(): Promise<boolean> {
    const readMs = performance.now();
    return this.#keep(await readMany(this.#deps.rpc, this.#calls, "latest"), readMs);
  }

  #keep([state, ...balances]: readonly CallResult[], readMs: number): boolean {
    const probeKey = this.#probeKey;
    const tokenAnswers =
      state !== undefined && schemeOf(probeKey).isEnded(probeKey, state) !== undefined;
    // Responses can arrive out of order.
    if (readMs < this.#known.readMs) return tokenAnswers;
    this.#known = { readMs, tokenAnswers };
    for (const [index, lane] of this.#deps.lanes.entries()) {
      // A lane whose balance is missing reads it on its own.
      const wei = uintOf(balances[index]);
      if (wei !== undefined) lane.noteBalance(wei);
    }
    return tokenAnswers;
  }
}
