/**
 * Claims what was charged to payment channels, and has it paid out. Until then a charge is a promise: a payer that
 * withdraws gets back, after the delay, what is not claimed. Of several processes with one store, one does it at a time.
 */
import { randomUUID } from "node:crypto";
import type { SettleResponse } from "@x402/core/types";
import type { ChannelFacilitator } from "./channel-facilitator.ts";
import {
  unclaimedOf,
  type Channel,
  type ChannelStore,
  type StoredChannel,
} from "./channel-store.ts";
import type { ChannelSettings } from "./channel-settings.ts";
import { claimBatchOf, reason, type ChannelConfig } from "./voucher.ts";

interface ClaimDeps {
  settings: ChannelSettings;
  facilitator: ChannelFacilitator;
  /** Of routes that name no other payee. */
  payees: readonly Payee[];
  onFault: (error: unknown, what: string) => void;
}

type CoveredChannel = Channel & Required<Pick<Channel, "voucher">>;
type Covered = StoredChannel & { channel: CoveredChannel };
type Payee = Pick<ChannelConfig, "receiver" | "token"> & { network: string };

/** One transaction has room for so many. */
const MAX_ROWS = 100;
/** Longer than a call of a facilitator takes; another process goes on after it if this one dies. */
const TURN_MS = 120_000;
const TICK_MS = 60_000;
/** A channel with claims to come is looked at so often, to see a withdrawal. */
const MAX_LOOK_MS = 300_000;
const LOOKS_AT_A_TIME = 8;
const KEPT_UNUSED_MS = 30 * 86_400_000;
/** The voucher is for more than the state allows, so no state is reported: the facilitator's success must do. */
const BEYOND = new Set([reason("cumulative_exceeds_balance"), reason("cumulative_below_claimed")]);
/** Not of the vouchers: the same claim may succeed later. */
const LATER = new Set(["settlement_pending", "amount_below_floor", "gas_budget_exhausted"]);

export class ChannelClaims {
  readonly #deps: ClaimDeps;
  readonly #store: ChannelStore;
  readonly #holder = randomUUID();
  /** Who may have claimed money that is not paid out yet: at first everybody that this process sells for. */
  readonly #owed = new Map<string, Payee>();
  readonly #payees = new Set<string>();
  #timer: NodeJS.Timeout | undefined;
  #running: Promise<void> | undefined;
  #isWanted = false;
  #isClosed = false;

  constructor(deps: ClaimDeps) {
    this.#deps = deps;
    this.#store = deps.settings.store;
  }

  start(): void {
    for (const payee of this.#deps.payees) this.sellsFor(payee);
    const everyMs = Math.min(this.#deps.settings.claimEveryMs, TICK_MS);
    this.#timer ??= setInterval(() => this.wake(), everyMs).unref();
  }

  /** A store in memory is claimed to the end; what a durable one has is claimed by the next process. */
  async close(): Promise<void> {
    clearInterval(this.#timer);
    this.#isClosed = true;
    await this.#running;
    if (!this.#store.isDurable) await this.claim();
  }

  /** An earlier process may have stopped between a claim and its payment. */
  sellsFor(payee: Payee): void {
    const name = nameOf(payee);
    if (this.#payees.has(name)) return;
    this.#payees.add(name);
    this.owes(payee);
  }

  /** After a charge: claims at once where it is due. */
  charged(channel: Channel): void {
    if (this.#isDueAtOnce(channel)) this.wake();
  }

  /** Claims what is due, in the background. */
  wake(): void {
    if (this.#isClosed) return;
    this.#isWanted = true;
    this.#running ??= this.#runWanted().finally(() => (this.#running = undefined));
  }

  /** Claims everything now and has it paid out, unless another process is doing it. */
  async claim(): Promise<void> {
    await this.#running;
    await this.#run(true);
  }

  async #runWanted(): Promise<void> {
    while (this.#isWanted) {
      this.#isWanted = false;
      await this.#run(false).catch((error: unknown) =>
        this.#deps.onFault(error, "claiming from payment channels"),
      );
    }
  }

  async #run(isAll: boolean): Promise<void> {
    if (!(await this.#store.takeTurn(this.#holder, TURN_MS))) return;
    try {
      const found = (await this.#store.unclaimed()).filter(isCovered);
      const { claimEveryMs } = this.#deps.settings;
      const looked = await inParts(found, (stored) => this.#lookedAt(stored));
      const oldestMs = Math.min(...looked.map(({ channel }) => channel.unclaimedSinceMs ?? 0));
      // All of them together: a row costs less than a transaction.
      const isTime = isAll || oldestMs <= Date.now() - claimEveryMs;
      const due = isTime ? looked : looked.filter(({ channel }) => this.#isDueAtOnce(channel));
      for (const group of groupsOf(due, ({ channel: { network, config } }) =>
        `${network} ${config.receiverAuthorizer}`.toLowerCase(),
      ))
        for (let from = 0; from < group.length; from += MAX_ROWS)
          await this.#claimRows(group.slice(from, from + MAX_ROWS));
      await this.#payOut();
      await this.#store.forget(new Date(Date.now() - KEPT_UNUSED_MS));
    } finally {
      await this.#store.takeTurn(this.#holder, 0);
    }
  }

  #isDueAtOnce(channel: Channel): boolean {
    const unclaimed = unclaimedOf(channel);
    const isWithdrawing = channel.state.withdrawRequestedAt !== 0 && unclaimed > 0n;
    return isWithdrawing || unclaimed >= this.#deps.settings.claimAboveAtomic;
  }

  /** Its state is read again where it is old. */
  async #lookedAt(stored: Covered): Promise<Covered> {
    const { channel } = stored;
    const everyMs = Math.min(MAX_LOOK_MS, (channel.config.withdrawDelay * 1_000) / 3);
    if (Date.now() - channel.stateReadMs < everyMs) return stored;
    return (await this.#look(stored.channel)) ?? stored;
  }

  /** Reads the state and records it. Undefined where the facilitator does not report it. */
  async #look(channel: CoveredChannel): Promise<Covered | undefined> {
    try {
      const stateReadMs = Date.now();
      const found = await this.#deps.facilitator.stateOf(channel);
      if ("reason" in found) throw new Error(found.reason);
      const { state } = found;
      return await this.#record(channel, (newest) => ({ ...newest, state, stateReadMs }));
    } catch (error) {
      this.#deps.onFault(error, `reading the payment channel ${channel.id}`);
      return undefined;
    }
  }

  async #record({ id }: Channel, change: (channel: Channel) => Channel) {
    for (;;) {
      const stored = await this.#store.find(id);
      if (!stored) return undefined;
      const channel = change(stored.channel);
      if (unclaimedOf(channel) <= 0n) delete channel.unclaimedSinceMs;
      if (channel.last && channel.last.untilMs < Date.now()) delete channel.last;
      const { version } = stored;
      if (!(await this.#store.save(channel, version))) continue;
      const saved = { channel, version: version + 1 };
      return isCovered(saved) ? saved : undefined;
    }
  }

  /** All happen or none; where they are refused, halves of them are tried. */
  async #claimRows(group: readonly Covered[]): Promise<void> {
    const rows = group.filter(({ channel }) => unclaimedOf(channel) > 0n);
    const [first] = rows;
    if (!first) return;
    await this.#store.takeTurn(this.#holder, TURN_MS);
    const what = `claiming from ${rows.length} payment channels, such as ${first.channel.id}`;
    let response: SettleResponse;
    try {
      response = await this.#sendClaim(rows, first.channel);
    } catch (error) {
      this.#deps.onFault(error, what);
      return;
    }
    const { success, errorReason = "", errorMessage } = response;
    if (success) {
      await inParts(rows, ({ channel }) => this.#claimed(channel));
      for (const { channel } of rows) this.owes({ ...channel.config, network: channel.network });
    } else if (rows.length > 1 && !LATER.has(errorReason)) {
      const half = Math.ceil(rows.length / 2);
      await this.#claimRows(rows.slice(0, half));
      await this.#claimRows(rows.slice(half));
    } else if (!LATER.has(errorReason) || rows.some(({ channel }) => isWithdrawing(channel)))
      this.#deps.onFault(new Error(`${errorReason} ${errorMessage ?? ""}`.trim()), what);
  }

  async #sendClaim(
    rows: readonly Covered[],
    { network, config }: Channel,
  ): Promise<SettleResponse> {
    const { authorizer } = this.#deps.settings;
    const isOurs = authorizer?.address.toLowerCase() === config.receiverAuthorizer.toLowerCase();
    const batch = rows.map(({ channel }) => ({
      id: channel.id,
      ceiling: channel.voucher.ceiling,
      total: channel.charged,
    }));
    const signature = isOurs ? await authorizer?.sign(claimBatchOf(network, batch)) : undefined;
    return this.#deps.facilitator.order(
      {
        type: "claim",
        claims: rows.map(({ channel }) => ({
          voucher: { channel: channel.config, maxClaimableAmount: channel.voucher.ceiling },
          signature: channel.voucher.signature,
          totalClaimed: channel.charged,
        })),
        ...(signature && { claimAuthorizerSignature: signature }),
      },
      { network, receiver: config.receiver, token: config.token },
    );
  }

  /** The state on chain decides. Where the facilitator does not report it, the claim is sent again: it happens once. */
  async #claimed(channel: CoveredChannel): Promise<void> {
    const stateReadMs = Date.now();
    const { charged } = channel;
    const found = await this.#deps.facilitator.stateOf(channel).catch(() => undefined);
    const isShown = found && ("state" in found || BEYOND.has(found.reason));
    if (!isShown) return;
    if ("state" in found && BigInt(found.state.totalClaimed) < BigInt(charged))
      this.#deps.onFault(
        new Error("The facilitator reports a claim that the chain does not show."),
        `claiming from the payment channel ${channel.id}`,
      );
    await this.#record(channel, (newest) => ({
      ...newest,
      ...("state" in found
        ? { state: found.state, stateReadMs }
        : { state: { ...newest.state, totalClaimed: charged } }),
      ...(BigInt(newest.charged) > BigInt(charged) && { unclaimedSinceMs: stateReadMs }),
    }));
  }

  /** One transfer for all that was claimed for a receiver. */
  async #payOut(): Promise<void> {
    for (const [name, { network, receiver, token }] of this.#owed) {
      try {
        const order = { type: "settle", receiver, token };
        const response = await this.#deps.facilitator.order(order, { network, receiver, token });
        const { success, errorReason = "" } = response;
        if (success || errorReason === reason("nothing_to_settle")) this.#owed.delete(name);
        else if (!LATER.has(errorReason))
          this.#deps.onFault(new Error(errorReason), `paying out to ${receiver}`);
      } catch (error) {
        this.#deps.onFault(error, `paying out to ${receiver}`);
      }
    }
  }

  /** Claimed for this payee, and to be paid out with the next claims. */
  owes(payee: Payee): void {
    this.#owed.set(nameOf(payee), payee);
  }
}

const nameOf = ({ network, receiver, token }: Payee): string =>
  `${network} ${receiver} ${token}`.toLowerCase();

const isCovered = (stored: StoredChannel): stored is Covered =>
  stored.channel.voucher !== undefined;

const isWithdrawing = ({ state }: Channel): boolean => state.withdrawRequestedAt !== 0;

function groupsOf<Item>(items: readonly Item[], nameOf: (item: Item) => string): Item[][] {
  const groups = new Map<string, Item[]>();
  for (const item of items) groups.set(nameOf(item), [...(groups.get(nameOf(item)) ?? []), item]);
  return [...groups.values()];
}

async function inParts<Item, Done>(
  items: readonly Item[],
  work: (item: Item) => Promise<Done>,
): Promise<Done[]> {
  const done: Done[] = [];
  for (let from = 0; from < items.length; from += LOOKS_AT_A_TIME)
    done.push(...(await Promise.all(items.slice(from, from + LOOKS_AT_A_TIME).map(work))));
  return done;
}
