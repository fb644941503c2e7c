/**
 * Whether the token works and what the relayers have. It is wanted with each payment, and each payment asks the chain
 * something anyway: there it travels along, and is asked by itself only where nothing told it lately.
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
import type { Companion } from "./types.ts";

const GET_ETH_BALANCE = selectorDigits("getEthBalance(address)");

export interface StandingDeps {
  rpc: Caller;
  timings: Pick<Timings, "standingFreshMs" | "standingAskAlongMs">;
  asset: string;
  lanes: readonly { address: string; noteBalance(wei: bigint): void }[];
}

export class Standing {
  readonly #deps: StandingDeps;
  readonly #nobody: { asset: string; from: string; nonce: string };
  readonly #calls: readonly ContractCall[];
  #told = { askedMs: Number.NEGATIVE_INFINITY, tokenAnswers: false };
  #asking: Promise<boolean> | undefined;

  constructor(deps: StandingDeps) {
    this.#deps = deps;
    const { asset, lanes } = deps;
    this.#nobody = { asset, from: `0x${"0".repeat(40)}`, nonce: `0x${"0".repeat(64)}` };
    this.#calls = [
      schemeOf(this.#nobody).stateCall(this.#nobody),
      ...lanes.map(({ address }) => ({
        target: MULTICALL3_ADDRESS,
        data: `0x${GET_ETH_BALANCE}${addressWord(address)}` as const,
      })),
    ];
  }

  /** To be asked by Multicall3 of the newest state, before anything that changes it; undefined where it is known. */
  companion(): Companion | undefined {
    const askedMs = performance.now();
    if (askedMs - this.#told.askedMs <= this.#deps.timings.standingAskAlongMs) return undefined;
    return { calls: this.#calls, hear: (results) => void this.#hear(results, askedMs) };
  }

  /** A proxy without code says nothing, to everything. Failures to ask are not kept. */
  async tokenAnswers(): Promise<boolean> {
    if (performance.now() - this.#told.askedMs <= this.#deps.timings.standingFreshMs)
      return this.#told.tokenAnswers;
    this.#asking ??= this.#ask().finally(() => {
      this.#asking = undefined;
    });
    return this.#asking;
  }

  async #ask(): Promise<boolean> {
    const askedMs = performance.now();
    return this.#hear(await readMany(this.#deps.rpc, this.#calls, "latest"), askedMs);
  }

  #hear([state, ...balances]: readonly CallResult[], askedMs: number): boolean {
    const nobody = this.#nobody;
    const tokenAnswers =
      state !== undefined && schemeOf(nobody).isEnded(nobody, state) !== undefined;
    // Answers overtake each other.
    if (askedMs < this.#told.askedMs) return tokenAnswers;
    this.#told = { askedMs, tokenAnswers };
    for (const [index, lane] of this.#deps.lanes.entries()) {
      // A lane whose coins are not told is asked about by itself.
      const wei = uintOf(balances[index]);
      if (wei !== undefined) lane.noteBalance(wei);
    }
    return tokenAnswers;
  }
}
