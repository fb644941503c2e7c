/** What a chain says about channels, read in as few calls as possible. */
import type { Address, Hex } from "viem";
import type { CallResult, ContractCall } from "../../core/abi.ts";
import { MULTICALL3_ADDRESS } from "../../core/networks.ts";
import { Coalescer, LastKnown } from "../../core/shared-answers.ts";
import { callAs, readMany } from "../../infra/chain/contracts.ts";
import type { HeadWatcher } from "../../infra/chain/heads.ts";
import type { Caller } from "../../infra/chain/rpc.ts";
import {
  pairOf,
  readState,
  receiverCall,
  stateCalls,
  type ChannelState,
} from "../../schemes/batch-settlement/index.ts";

const SHARED = { maxBatch: 100, maxInFlight: 2 };
const CALLS = 3;
const MAX_KNOWN = 20_000;
const AT_ATTEMPTS = 4;
const AT_PAUSE_MS = 250;
/** More than the largest claim of plain keys needs. */
const SIMULATION_GAS = 10_000_000n;

interface Known {
  readonly state: ChannelState;
  readonly head: Hex;
  readonly readAtMs: number;
}

interface StatesDeps {
  rpc: Caller;
  heads: Pick<HeadWatcher, "head">;
  blockTimeMs: number;
  pause(ms: number): Promise<void>;
}

/** Undefined: the chain did not answer as the contract does. */
export class ChannelStates {
  readonly #deps: StatesDeps;
  readonly #reads: Coalescer<Hex, ChannelState | undefined>;
  #known = new LastKnown<Known>(MAX_KNOWN);

  constructor(deps: StatesDeps) {
    this.#deps = deps;
    this.#reads = new Coalescer((ids) => this.#readTogether(ids), SHARED);
  }

  /**
   * As of the newest block that we know. A state changes only with a block, so a voucher needs no call of its own while
   * there is none.
   */
  async newest(id: Hex): Promise<ChannelState | undefined> {
    const { heads, blockTimeMs } = this.#deps;
    const head = heads.head?.hash;
    const known = this.#known.get(id);
    if (known && known.head === head && performance.now() - known.readAtMs < blockTimeMs)
      return known.state;
    const readAtMs = performance.now();
    const state = await this.#reads.fetch(id);
    if (state && head !== undefined) this.#known.keep(id, { state, head, readAtMs });
    return state;
  }

  /**
   * As of one block: what our own transaction in it has left. Undefined where no endpoint has the block within a
   * second: what happened is not less certain for it.
   */
  async at(id: Hex, block: bigint): Promise<ChannelState | undefined> {
    return this.#at(stateCalls(id), block, readState);
  }

  async all(ids: readonly Hex[]): Promise<(ChannelState | undefined)[]> {
    return Promise.all(ids.map((id) => this.#reads.fetch(id)));
  }

  /** What is claimed for a receiver, and what of it is settled. As of a block, like `at`. */
  async receiver(
    receiver: Address,
    token: Address,
    block: bigint | "latest",
  ): Promise<{ claimed: bigint; settled: bigint } | undefined> {
    const calls = [receiverCall(receiver, token)];
    const read = ([result]: readonly CallResult[]) => {
      const pair = pairOf(result);
      return pair && { claimed: pair[0], settled: pair[1] };
    };
    return block === "latest"
      ? read(await readMany(this.#deps.rpc, calls, block))
      : this.#at(calls, block, read);
  }

  /** What a call would do now. A payer's contract may run in it, so its gas is limited. */
  async simulate(call: ContractCall): Promise<CallResult> {
    return callAs(this.#deps.rpc, MULTICALL3_ADDRESS, call, { gas: SIMULATION_GAS });
  }

  async #at<T>(
    calls: readonly ContractCall[],
    block: bigint,
    read: (results: readonly CallResult[]) => T | undefined,
  ): Promise<T | undefined> {
    for (let attempt = 0; attempt < AT_ATTEMPTS; attempt += 1) {
      if (attempt > 0) await this.#deps.pause(AT_PAUSE_MS);
      const answer = read(await readMany(this.#deps.rpc, calls, block).catch(() => []));
      if (answer !== undefined) return answer;
    }
    return undefined;
  }

  async #readTogether(ids: Hex[]): Promise<(ChannelState | undefined)[]> {
    const calls = ids.flatMap((id) => stateCalls(id));
    const results = await readMany(this.#deps.rpc, calls, "latest");
    return ids.map((_, index) => readState(results.slice(index * CALLS, (index + 1) * CALLS)));
  }
}
