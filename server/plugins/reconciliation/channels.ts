/**
 * Proves each payment channel of our wallets, as of a final block: its deposits are what was claimed, what came back and
 * what is still in it, and nobody claimed more than the wallet signed. What the wallet signed and the receiver has not
 * claimed is owed until the channel is closed: the highest signed ceiling must have its voucher.
 *
 * What came back is proven twice: the token's transfers from the contract to the wallet must be the sum over the wallet's
 * channels, and where they are not, the receipts of those transfers name the channel.
 */
import type { Hex } from "viem";
import type { ChannelConfig } from "../../core/authorization.ts";
import { readMany } from "../../infra/chain/contracts.ts";
import type { Caller, Witnesses } from "../../infra/chain/rpc.ts";
import { channelCall, pairOf } from "../../schemes/batch-settlement/index.ts";
import { channelIdAt, ownVoucher } from "../../schemes/batch-settlement/paying.ts";
import type { Finding } from "./compare.ts";
import type { Repair, Timeouts } from "./repair.ts";

/** A channel's rows as of a block. */
export interface ChannelRows {
  agentId: string;
  id: Hex;
  config: ChannelConfig;
  isClosed: boolean;
  ceiling: bigint;
  voucher: Hex | null;
  charged: bigint;
  returned: bigint;
  deposited: bigint;
  /** The outcome of a deposit is not known, so what must be in the channel is not known either. */
  hasOpenDeposit: boolean;
  /** Of all channels of this wallet, and what the token moved from the contract to the wallet. */
  returnedInAll: bigint;
  receivedInAll: bigint;
}

/** What the contract says about a channel. */
export interface ChannelTotals {
  balance: bigint;
  claimed: bigint;
}

/** Undefined: the contract did not answer. */
export async function readTotals(
  rpc: Caller,
  ids: readonly Hex[],
  block: bigint,
): Promise<(ChannelTotals | undefined)[]> {
  const results = await readMany(rpc, ids.map(channelCall), block);
  return ids.map((_, index) => {
    const pair = pairOf(results[index]);
    return pair && { balance: pair[0], claimed: pair[1] };
  });
}

export type ChannelKind = "channel_balance" | "channel_claimed" | "channel_row";
export const CHANNEL_KINDS: readonly ChannelKind[] = [
  "channel_balance",
  "channel_claimed",
  "channel_row",
];

interface Problem {
  kind: ChannelKind;
  /** By how much, so that another amount is another difference. */
  by: bigint;
}

/** `returned`: as the receipts prove it. */
export function problemsOf(
  chainId: number,
  rows: ChannelRows,
  { balance, claimed }: ChannelTotals,
  returned: bigint,
): Problem[] {
  const { config, id, ceiling, voucher, isClosed } = rows;
  const problems: Problem[] = [];
  const found = (kind: ChannelKind, by: bigint): void => {
    if (by !== 0n) problems.push({ kind, by });
  };
  if (!rows.hasOpenDeposit) {
    const excess = balance + returned - rows.deposited;
    found("channel_balance", excess === 0n && isClosed ? balance - claimed : excess);
  }
  found("channel_claimed", claimed > ceiling ? claimed - ceiling : 0n);
  const isProven =
    ceiling === 0n ||
    (voucher !== null && ownVoucher({ chainId, config }, { ceiling, voucher }) !== undefined);
  if (channelIdAt(chainId, config) !== id || !isProven) found("channel_row", -1n);
  else if (isClosed && rows.charged < claimed) found("channel_row", claimed - rows.charged);
  return problems;
}

interface ProofDeps {
  chainId: number;
  /** The channels whose time has come. */
  due(limit: number): Promise<ChannelKey[]>;
  totals(ids: readonly Hex[], block: bigint): Promise<(ChannelTotals | undefined)[]>;
  /** What each endpoint says. */
  witnesses(ids: readonly Hex[], block: bigint): Promise<Witnesses<(ChannelTotals | undefined)[]>>;
  rows(channels: readonly ChannelKey[], block: bigint): Promise<ChannelRows[]>;
  /** The transactions that paid this wallet out of the contract since the channel's first deposit. */
  payouts(channel: ChannelKey, block: bigint): Promise<Hex[]>;
  /** What such a transaction returned from each channel; undefined: its receipt was not found. */
  payout(hash: Hex): Promise<ReadonlyMap<string, bigint> | undefined>;
  /** Stores what came back, if the row still has what was read. */
  correct(channel: ChannelRows, returned: bigint): Promise<boolean>;
  /** Ends the differences of these channels, of these kinds. */
  agreed(channels: readonly { id: Hex; kinds: readonly ChannelKind[] }[]): Promise<void>;
  lookAgain(channels: readonly (ChannelKey & { seconds: number | null })[]): Promise<void>;
  repair(finding: Finding): Promise<Repair>;
  timeouts: Pick<Timeouts, "timings" | "forget">;
  log: { info(fields: object, message: string): void };
}

export interface ChannelKey {
  agentId: string;
  id: Hex;
}

/** One call of the chain. */
const BATCH = 100;
/** The most receipts of one round; the next one continues. */
const MAX_RECEIPTS = 20;
const MAX_KNOWN = 5_000;
const SOON_SECONDS = 10;
const OPEN_DEPOSIT_SECONDS = 60;
const DIFFERENT_SECONDS = 600;

export class ChannelProofs {
  readonly #deps: ProofDeps;
  #nextMs = 0;
  /** Receipts of final blocks do not change. */
  #payouts = new Map<Hex, ReadonlyMap<string, bigint>>();
  /** What was found and must last before it counts. */
  readonly #waiting = new Map<string, string[]>();

  constructor(deps: ProofDeps) {
    this.#deps = deps;
  }

  /** One batch at a time, and seldom, so that the calls of an RPC plan are bounded. */
  async run(block: bigint): Promise<void> {
    if (performance.now() < this.#nextMs) return;
    this.#nextMs = performance.now() + this.#deps.timeouts.timings.reconcileChannelsMs;
    const keys = await this.#deps.due(BATCH);
    if (keys.length > 0) await this.#prove(keys, block);
  }

  async #prove(keys: readonly ChannelKey[], block: bigint): Promise<void> {
    const { chainId } = this.#deps;
    const totals = await this.#totalsOf(keys, block);
    // Read after the chain: a ceiling only grows, so no claim is compared with an older one.
    const rows = await this.#deps.rows(keys, block);
    const isFine = (channel: ChannelRows): boolean => {
      const shown = totals.get(channel.id);
      return (
        shown !== undefined &&
        channel.returnedInAll === channel.receivedInAll &&
        problemsOf(chainId, channel, shown, channel.returned).length === 0
      );
    };
    const doubtful = rows.filter((channel) => !isFine(channel));
    for (const channel of rows) if (!doubtful.includes(channel)) this.#forget(channel.id, []);
    const results = new Map<string, Result>();
    if (doubtful.length > 0) {
      const shown = await this.#witnessesOf(doubtful, block);
      let receiptsLeft = MAX_RECEIPTS;
      for (const channel of doubtful) {
        const spend = (): boolean => (receiptsLeft -= 1) >= 0;
        results.set(channel.id, await this.#judge(channel, shown(channel.id), block, spend));
      }
    }
    await this.#deps.agreed(
      rows.flatMap(({ id }) => {
        const { found, isKnown } = results.get(id) ?? FINE;
        return isKnown
          ? [{ id, kinds: CHANNEL_KINDS.filter((kind) => !found.includes(kind)) }]
          : [];
      }),
    );
    await this.#deps.lookAgain(
      rows.map(({ agentId, id, hasOpenDeposit }) => {
        const { seconds } = results.get(id) ?? FINE;
        return { agentId, id, seconds: seconds ?? (hasOpenDeposit ? OPEN_DEPOSIT_SECONDS : null) };
      }),
    );
  }

  async #totalsOf(keys: readonly ChannelKey[], block: bigint): Promise<Map<Hex, ChannelTotals>> {
    const ids = keys.map(({ id }) => id);
    return mapOf(ids, await this.#deps.totals(ids, block));
  }

  /** One endpoint is enough to show that a channel is as it must be. Undefined: too few answer. */
  async #witnessesOf(
    channels: readonly ChannelRows[],
    block: bigint,
  ): Promise<(id: Hex) => ChannelTotals[] | undefined> {
    const ids = channels.map(({ id }) => id);
    const { answers, needed } = await this.#deps.witnesses(ids, block);
    const maps = answers.map((answer) => mapOf(ids, answer));
    return (id) => {
      const shown = maps.flatMap((totals) => totals.get(id) ?? []);
      return shown.length < needed ? undefined : shown;
    };
  }

  async #judge(
    channel: ChannelRows,
    shown: readonly ChannelTotals[] | undefined,
    block: bigint,
    spend: () => boolean,
  ): Promise<Result> {
    const { chainId } = this.#deps;
    const { agentId, id, returned } = channel;
    const proven = shown && (await this.#returnedOf(channel, block, spend));
    if (!shown || proven === undefined) return LATER;
    const each = shown.map((totals) => problemsOf(chainId, channel, totals, proven));
    const [first = [], ...others] = each;
    const problems = first.filter(({ kind }) =>
      others.every((problemsThere) => problemsThere.some((one) => one.kind === kind)),
    );
    const isOff = proven !== returned && !problems.some(({ kind }) => kind === "channel_balance");
    // The receiver may return money at any time, and the database may be a restored one.
    if (isOff && proven > returned && !channel.hasOpenDeposit) {
      if (await this.#deps.correct(channel, proven))
        this.#deps.log.info({ agentId, channelId: id }, "a receiver returned money of a channel");
    } else if (isOff && !channel.hasOpenDeposit)
      problems.push({ kind: "channel_balance", by: proven - returned });
    const keys = problems.map(({ kind, by }) => `${kind}:${id}:${by}`);
    this.#forget(id, keys);
    let isWaiting = false;
    for (const { kind, by } of problems) {
      const [totals] = shown;
      const repaired = await this.#deps.repair({
        kind,
        key: `${id}:${by}`,
        agentId,
        blockNumber: block,
        txHash: null,
        detail: {
          deposited: channel.deposited,
          balance: totals?.balance,
          claimed: totals?.claimed,
          returned: proven,
          ceiling: channel.ceiling,
          recorded: { returned, charged: channel.charged },
        },
        ...(isOff &&
          kind === "channel_balance" && { correct: () => this.#deps.correct(channel, proven) }),
      });
      if (repaired === "wait") isWaiting = true;
    }
    if (isWaiting) this.#waiting.set(id, keys);
    return {
      isKnown: true,
      found: problems.map(({ kind }) => kind),
      seconds: isWaiting ? SOON_SECONDS : problems.length > 0 ? DIFFERENT_SECONDS : null,
    };
  }

  /** What was found earlier and is not found now has ended: a later one lasts from its own start. */
  #forget(id: Hex, found: readonly string[]): void {
    for (const key of this.#waiting.get(id) ?? [])
      if (!found.includes(key)) this.#deps.timeouts.forget(key);
    this.#waiting.delete(id);
  }

  /** What came back from a channel, by the receipts; undefined: not all of them are read yet. */
  async #returnedOf(
    channel: ChannelRows,
    block: bigint,
    spend: () => boolean,
  ): Promise<bigint | undefined> {
    let returned = 0n;
    for (const hash of await this.#deps.payouts(channel, block)) {
      let payout = this.#payouts.get(hash);
      if (!payout) {
        payout = spend() ? await this.#deps.payout(hash) : undefined;
        if (!payout) return undefined;
        if (this.#payouts.size >= MAX_KNOWN) this.#payouts = new Map();
        this.#payouts.set(hash, payout);
      }
      returned += payout.get(channel.id) ?? 0n;
    }
    return returned;
  }
}

interface Result {
  /** Whether all of it could be read. */
  isKnown: boolean;
  found: readonly ChannelKind[];
  /** When to look again; null: as usual. */
  seconds: number | null;
}
const FINE: Result = { isKnown: true, found: [], seconds: null };
const LATER: Result = { isKnown: false, found: [], seconds: SOON_SECONDS };

function mapOf(
  ids: readonly Hex[],
  totals: readonly (ChannelTotals | undefined)[],
): Map<Hex, ChannelTotals> {
  const map = new Map<Hex, ChannelTotals>();
  for (const [index, id] of ids.entries()) {
    const one = totals[index];
    if (one) map.set(id, one);
  }
  return map;
}
