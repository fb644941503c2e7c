/**
 * After a restore, or a failover to a standby that was behind, the window lacks what was paid since. A relayer whose nonce on chain is beyond
 * what this database ever gave out is the sign of it: agents cannot pay until reconciliation has read up to the
 * block of that moment. In ordinary life the sign is never there: a nonce is stored before it is used.
 *
 * The hold is a row, so it is every replica's, those that start meanwhile included. Whoever sees the sign writes it; the
 * engine's first transaction, which would hide the sign, writes it as well (purser_hold_begin). Who is over it here has
 * compared; that nobody began another since, the decision itself sees (purser_reserve).
 */
import { ApiError } from "../../errors.ts";
import { behindTheChain } from "../guardrails/decide.ts";

export interface LaneSign {
  address: string;
  nextNonce: bigint;
  /** Used on the chain, and held for already. */
  lookedNonce: bigint;
}

export interface HoldRow {
  untilBlock: bigint | null;
  generation: bigint;
  /** The block that reconciliation reads next. */
  nextBlock: bigint;
}

/** That there is a hold is known, and not yet up to which block. */
export const SOME_BLOCK = 2n ** 63n - 1n;

export interface HoldDeps {
  /** What the database knows may have become less: a standby that was behind. */
  onPromotion(again: () => void): void;
  /** The lanes' nonces as this database has them. */
  lanes(): Promise<LaneSign[]>;
  usedOnChain(address: string): Promise<bigint>;
  head(): Promise<bigint>;
  read(): Promise<HoldRow | undefined>;
  /** For what these addresses have used. */
  begin(untilBlock: bigint, used: readonly { address: string; used: bigint }[]): Promise<void>;
  /** The next two only in the generation that was read. */
  place(generation: bigint, untilBlock: bigint): Promise<void>;
  /** And only when reconciliation has read past it. */
  lift(generation: bigint): Promise<boolean>;
  log: { warn(fields: object, message: string): void };
}

const isBeyond = ({ nextNonce, lookedNonce }: LaneSign, used: bigint): boolean =>
  used > nextNonce && used > lookedNonce;

export class RestoreHold {
  readonly #deps: HoldDeps;
  #looking: Promise<void> | undefined;
  /** Grows with each promotion: a check that began before one proves nothing. */
  #era = 0;
  /** The era in which the lanes were compared with the chain. */
  #compared = -1;
  #isOver = false;

  constructor(deps: HoldDeps) {
    this.#deps = deps;
    deps.onPromotion(() => {
      this.#era += 1;
      this.#isOver = false;
      // Now, before a transaction of the engine's hides the sign. What fails is tried again by the next payment or pass.
      this.look().catch(() => undefined);
    });
  }

  /** Throws `chain_unavailable` while limits may lack payments. Costs nothing once they cannot. */
  async assertOver(): Promise<void> {
    if (this.#isOver) return;
    await this.look().catch((cause: unknown) => {
      throw new ApiError("chain_unavailable", { cause });
    });
    if (!this.#isOver) throw behindTheChain();
  }

  /** With each pass of the books: another replica may have seen the sign, or lifted the hold. */
  async look(): Promise<void> {
    this.#looking ??= this.#look().finally(() => {
      this.#looking = undefined;
    });
    return this.#looking;
  }

  async #look(): Promise<void> {
    for (;;) {
      const era = this.#era;
      if (this.#compared !== era) await this.#compare();
      const isOver = await this.#readIsOver();
      if (era !== this.#era) continue;
      this.#compared = era;
      this.#isOver = isOver;
      return;
    }
  }

  async #compare(): Promise<void> {
    const used = new Map<string, bigint>();
    for (const lane of await this.#deps.lanes()) {
      const count = await this.#deps.usedOnChain(lane.address);
      if (isBeyond(lane, count)) used.set(lane.address, count);
    }
    if (used.size === 0) return;
    // A lane that sent since its row was read is no sign: what was used by now, a current database has by now.
    const beyond: { address: string; used: bigint }[] = [];
    for (const lane of await this.#deps.lanes()) {
      const { address, nextNonce } = lane;
      const count = used.get(address);
      if (count === undefined || !isBeyond(lane, count)) continue;
      beyond.push({ address, used: count });
      this.#deps.log.warn(
        { lane: address, used: String(count), known: String(nextNonce) },
        "the chain has relayer transactions that this database does not have: agents wait for reconciliation",
      );
    }
    if (beyond.length > 0) await this.#deps.begin(await this.#deps.head(), beyond);
  }

  async #readIsOver(): Promise<boolean> {
    const row = await this.#deps.read();
    if (!row || row.untilBlock === null) return true;
    if (row.untilBlock === SOME_BLOCK) {
      await this.#deps.place(row.generation, await this.#deps.head());
      return false;
    }
    if (row.nextBlock <= row.untilBlock) return false;
    if (await this.#deps.lift(row.generation)) return true;
    // Another replica was faster, or there is a newer one.
    const now = await this.#deps.read();
    return !now || now.untilBlock === null;
  }
}
