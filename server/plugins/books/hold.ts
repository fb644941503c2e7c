/**
 * After a restore, or a failover to a standby that was behind, the window lacks what was paid since. A relayer whose nonce on chain is beyond
 * what this database ever gave out is the sign of it: agents pay nothing until the books have read up to the
 * block of that moment. In ordinary life the sign is never there: a nonce is stored before it is used.
 */
import { ApiError } from "../../errors.ts";

export interface HoldDeps {
  /** What the database knows may have become less: a standby that was behind. */
  onPromotion(again: () => void): void;
  /** The lanes' next nonces as this database has them. */
  lanes(): Promise<{ address: string; nextNonce: bigint }[]>;
  usedOnChain(address: string): Promise<bigint>;
  head(): Promise<bigint>;
  /** The block the books read next. */
  nextBlock(): Promise<bigint | undefined>;
  log: { warn(fields: object, message: string): void };
}

export class RestoreHold {
  readonly #deps: HoldDeps;
  #looking: Promise<void> | undefined;
  /** Undefined before the first look; null when there is nothing to wait for. */
  #untilBlock: bigint | null | undefined;

  constructor(deps: HoldDeps) {
    this.#deps = deps;
    deps.onPromotion(() => {
      this.#untilBlock = undefined;
      // Now, before a transaction of the engine's hides the sign.
      this.assertOver().catch(() => undefined);
    });
  }

  /** Throws `chain_unavailable` while limits may lack payments. Costs nothing once they cannot. */
  async assertOver(): Promise<void> {
    if (this.#untilBlock === null) return;
    this.#looking ??= this.#look().finally(() => {
      this.#looking = undefined;
    });
    await this.#looking.catch((cause: unknown) => {
      throw new ApiError("chain_unavailable", { cause });
    });
    if (this.#untilBlock !== null)
      throw new ApiError("chain_unavailable", {
        detail:
          "This database is older than the chain. Agents pay again when the ledger has caught up; nothing was signed.",
      });
  }

  async #look(): Promise<void> {
    if (this.#untilBlock === undefined) this.#untilBlock = await this.#firstLook();
    if (this.#untilBlock === null) return;
    const next = await this.#deps.nextBlock();
    if (next !== undefined && next > this.#untilBlock) this.#untilBlock = null;
  }

  async #firstLook(): Promise<bigint | null> {
    for (const { address, nextNonce } of await this.#deps.lanes()) {
      const used = await this.#deps.usedOnChain(address);
      if (used <= nextNonce) continue;
      this.#deps.log.warn(
        { lane: address, used: String(used), known: String(nextNonce) },
        "the chain knows transactions of the relayer that this database does not: agents wait for the books",
      );
      return this.#deps.head();
    }
    return null;
  }
}
