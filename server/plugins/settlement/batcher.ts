/**
 * Checks whether our batcher contract is deployed on this chain: by its code and a test call, and again in the
 * simulation of each batch. A transaction to an address without code succeeds and does nothing, so this must be
 * certain.
 */
import type { Address } from "viem";
import type { CallResult, ContractCall } from "../../core/abi.ts";
import { NO_ANSWERS, NO_TRANSFERS } from "../../core/batcher.ts";
import type { NetworkFacts } from "../../core/networks.ts";
import { readBatcher } from "../../infra/chain/batcher/read.ts";
import type { Caller } from "../../infra/chain/rpc.ts";
import type { EngineLog } from "./context.ts";

/** It may be deployed while this process runs. */
const LOOK_AGAIN_MS = 60_000;

const STATE_TEXTS = {
  absent: "is not deployed",
  other: "has different code",
  mute: "is deployed but does not work on this chain",
};

export interface BatcherDeps {
  network: Pick<NetworkFacts, "id" | "batcher">;
  rpc: Caller;
  log: EngineLog;
  lookAgainMs?: number;
}

export class Batcher {
  readonly #deps: BatcherDeps;
  #address: Address | undefined;
  #timer: NodeJS.Timeout | undefined;
  #isWarned = false;

  constructor(deps: BatcherDeps) {
    this.#deps = deps;
  }

  /** Undefined until the contract was found; batches use Multicall3 meanwhile. */
  get address(): Address | undefined {
    return this.#address;
  }

  start(): void {
    if (this.#deps.network.batcher === undefined) return;
    void this.look();
    this.#timer = setInterval(() => {
      if (this.#address === undefined) void this.look();
    }, this.#deps.lookAgainMs ?? LOOK_AGAIN_MS).unref();
  }

  stop(): void {
    clearInterval(this.#timer);
  }

  async look(): Promise<void> {
    const { network, rpc } = this.#deps;
    const { batcher } = network;
    if (batcher === undefined) return;
    try {
      const found = await readBatcher(rpc, batcher);
      this.#address = found === "ours" ? batcher : undefined;
      if (found === "ours") this.#isWarned = false;
      else this.#warn(STATE_TEXTS[found]);
    } catch {
      // No response proves nothing; the engine reports the endpoint itself.
    }
  }

  /** An empty batch to add to a simulation. Its result shows whether the batcher exists. */
  get probe(): (ContractCall & { target: Address }) | undefined {
    return this.#address && { target: this.#address, data: NO_TRANSFERS };
  }

  /**
   * Handles the result of the probe. Unless it is an empty batch's result, the batcher is not used until it is
   * found again.
   */
  checkProbe(answer: CallResult | undefined): boolean {
    if (answer?.success === true && answer.data === NO_ANSWERS) return true;
    this.#address = undefined;
    this.#warn("no longer responds");
    return false;
  }

  #warn(what: string): void {
    if (this.#isWarned) return;
    this.#isWarned = true;
    const { log, network } = this.#deps;
    log.warn(
      { network: network.id, batcher: network.batcher },
      `the batcher ${what}: batches use Multicall3, with a little more gas`,
    );
  }
}
