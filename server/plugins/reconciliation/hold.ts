/**
 * Holds agents' payments after a database restore, or a failover to a standby that lagged behind: the spending window
 * then lacks recent payments. The sign is a relayer whose nonce on the chain is beyond every nonce in this database.
 * Agents cannot pay until reconciliation has read up to the block of that moment. In normal operation the sign never
 * occurs, because a nonce is stored before it is used. The hold is a row, so it applies to all replicas, including
 * those that start later. A replica that sees the sign writes it; so does the engine's first transaction, which would
 * hide the sign (purser_hold_begin). `#isOver` only means that this process has compared the nonces; the decision in
 * SQL checks that no newer hold exists (purser_reserve).
 */
import { ApiError } from "../../errors.ts";
import { behindTheChain } from "../guardrails/decide.ts";

interface LaneSign {
  address: string;
  nextNonce: bigint;
  /** Used on the chain, and already covered by a hold. */
  lookedNonce: bigint;
}

export interface HoldRow {
  untilBlock: bigint | null;
  generation: bigint;
  /** The block that reconciliation reads next. */
  nextBlock: bigint;
}

/** There is a hold, but its block is not known yet. */
export const SOME_BLOCK = 2n ** 63n - 1n;

interface HoldDeps {
  /** After a promotion the database may be behind: the standby lagged. */
  onPromotion(again: () => void): void;
  /** The lanes' nonces in this database. */
  lanes(): Promise<LaneSign[]>;
  usedOnChain(address: string): Promise<bigint>;
  head(): Promise<bigint>;
  read(): Promise<HoldRow | undefined>;
  /** Because of the nonces that these addresses have used. */
  begin(untilBlock: bigint, used: readonly { address: string; used: bigint }[]): Promise<void>;
  /** These two apply only to the generation that was read. */
  place(generation: bigint, untilBlock: bigint): Promise<void>;
  /** Also requires that reconciliation has read past the hold. */
  lift(generation: bigint): Promise<boolean>;
  log: { warn(fields: object, message: string): void };
}

const isBeyond = ({ nextNonce, lookedNonce }: LaneSign, used: bigint): boolean =>
  used > nextNonce && used > lookedNonce;

export class RestoreHold {
  readonly #deps: HoldDeps;
  #looking: Promise<void> | undefined;
  /** Grows with each promotion: a check that started before one proves nothing. */
  #era = 0;
  /** The era in which the lanes were compared with the chain. */
  #compared = -1;
  #isOver = false;

  constructor(deps: HoldDeps) {
    this.#deps = deps;
    deps.onPromotion(() => {
      this.#era += 1;
      this.#isOver = false;
      // At once, before a transaction of the engine hides the sign. After a failure, the next payment or round tries
      // again.
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

  /** With each round of reconciliation: another replica may have seen the sign, or lifted the hold. */
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
    // A lane may have sent since its row was read. The used nonces were read earlier, so a current database already
    // contains them.
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
    // Another replica was faster, or there is a newer hold.
    const now = await this.#deps.read();
    return !now || now.untilBlock === null;
  }
}
