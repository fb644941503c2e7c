/**
 * Payments through a channel (x402's scheme `batch-settlement`). The payer deposits once and signs a voucher for each
 * request; the seller adds up what it charged, and claims it later (channel-claims.ts). One request at a time for each
 * channel. The charge and the response to it are stored in one step before the response is sent.
 */
import { createHash, randomUUID } from "node:crypto";
import type { PaymentRequirements, SettleResponse } from "@x402/core/types";
import {
  notSettled,
  refused,
  settledPayment,
  type KeptResponse,
  type Refused,
  type Settled,
} from "./answers.ts";
import type { ChannelClaims } from "./channel-claims.ts";
import { readState, voucherPayload, type ChannelFacilitator } from "./channel-facilitator.ts";
import {
  unclaimedOf,
  type Channel,
  type ChannelState,
  type ChannelStore,
  type LastCharge,
  type StoredChannel,
} from "./channel-store.ts";
import type { ChannelSettings } from "./channel-settings.ts";
import type { Metered } from "./meter.ts";
import type { PresentedPayment } from "./resource.ts";
import {
  claimBatchOf,
  isSigned,
  NO_ADDRESS,
  readUint128,
  readVoucher,
  reason,
  refundOf,
  whyNotForTerms,
  type Voucher,
} from "./voucher.ts";

/** A refusal with a new request to pay. `state` corrects a payer whose record of the channel differs. */
export interface NotCovered {
  kind: "notCovered";
  reason: string;
  state?: Record<string, unknown>;
}

interface ChannelDeps {
  settings: ChannelSettings;
  facilitator: ChannelFacilitator;
  claims: ChannelClaims;
  settled(
    response: SettleResponse,
    charged: string,
    payment: PresentedPayment,
  ): Settled | Promise<Settled>;
}

/** A deposit that was made for the request. */
type Deposit = SettleResponse | undefined;

const KEPT_MS = 600_000;
/** Larger responses are not stored: they cannot be sent again. */
const MAX_KEPT_BYTES = 65_536;
const MIN_FRESH_MS = 30_000;
const MAX_FRESH_MS = 300_000;
const MISMATCH = reason("cumulative_amount_mismatch");
const BUSY = reason("channel_busy");
/** The protocol has no code for it. Its charges would compete with the withdrawal. */
const WITHDRAWING = "The payer has begun to withdraw from this channel.";

export class ChannelCharges {
  readonly #deps: ChannelDeps;
  readonly #store: ChannelStore;

  constructor(deps: ChannelDeps) {
    this.#deps = deps;
    this.#store = deps.settings.store;
  }

  async begin(
    payment: PresentedPayment,
    beforeSettle: () => Promise<void>,
  ): Promise<Settled | Refused | Metered | NotCovered> {
    const { terms } = payment;
    const voucher = readVoucher(payment.payload.payload);
    if (typeof voucher === "string") return notCovered(voucher);
    const isKeySigned = voucher.config.payerAuthorizer !== NO_ADDRESS;
    const [stored, isGood] = await Promise.all([
      this.#store.find(voucher.id),
      !isKeySigned || isSigned(voucher, terms.network),
    ]);
    const problem = whyNotForTerms(voucher, terms, stored?.channel.config);
    if (problem !== undefined) return notCovered(problem);
    if (!isGood) return notCovered(reason("voucher_signature"));

    const price = voucher.type === "refund" ? 0n : BigInt(terms.amount);
    const isExpected = (channel: Channel): boolean => voucher.ceiling === baseOf(channel) + price;
    // Who cannot show a signature of the payer's learns nothing of the channel.
    if (stored && isKeySigned && !isExpected(stored.channel))
      return this.#answerAgain(stored.channel, voucher, payment);
    const found = await this.#stateOf(payment, voucher, stored?.channel);
    if ("reason" in found) return notCovered(found.reason);
    const { state, readMs, isDeposited } = found;
    if (state.withdrawRequestedAt !== 0 && voucher.type !== "refund") {
      const { channel, version } = stored ?? {};
      if (channel) await this.#store.save({ ...channel, state, stateReadMs: readMs }, version ?? 0);
      this.#deps.claims.wake();
      return notCovered(WITHDRAWING);
    }

    // A charge has to be claimed before a withdrawal can end.
    const seconds = Math.min(terms.maxTimeoutSeconds, voucher.config.withdrawDelay / 3);
    const request = { id: randomUUID(), untilMs: Date.now() + seconds * 1_000 };
    const added = isDeposited ? 0n : voucher.deposited;
    let held = stored;
    for (;;) {
      const { network } = terms;
      const before = held?.channel ?? newChannel(voucher, network, state);
      const isNewer = readMs >= before.stateReadMs;
      const channel = caughtUp({
        ...before,
        ...(isNewer && { state, stateReadMs: readMs }),
        usedMs: Date.now(),
      });
      if (channel.request && channel.request.untilMs > Date.now()) return notCovered(BUSY);
      if (!isExpected(channel)) return this.#answerAgain(channel, voucher, payment);
      if (voucher.type !== "refund" && voucher.ceiling > coverOf(channel) + added)
        return notCovered(reason("cumulative_exceeds_balance"));
      // Its ceiling is what was charged, and never above the balance.
      if (voucher.type === "refund") channel.voucher = signedOf(voucher);
      const version = held?.version ?? 0;
      const reserved = { channel: { ...channel, request }, version: version + 1 };
      if (await this.#store.save(reserved.channel, version)) {
        held = reserved;
        break;
      }
      held = await this.#store.find(voucher.id);
    }
    this.#deps.claims.sellsFor({ ...voucher.config, network: terms.network });
    const work = new ChannelRequest(this.#store, held, request.id);
    if (voucher.type === "refund") return this.#refund(payment, voucher, work);

    let deposit: Deposit;
    let isBegun = false;
    try {
      await beforeSettle();
      if (voucher.type === "deposit" && !isDeposited) {
        // Before the work: it is no payment, and the work is done for money that is there.
        deposit = await this.#deps.facilitator.settle(payment);
        if (!deposit.success) return refused(deposit, payment.version);
        work.sees(readState(deposit.extra?.["channelState"]));
      }
      isBegun = true;
    } finally {
      if (!isBegun) await work.end();
    }
    return this.#metered(payment, voucher, { work, deposit });
  }

  #metered(
    payment: PresentedPayment,
    voucher: Voucher,
    { work, deposit }: { work: ChannelRequest; deposit: Deposit },
  ): Metered {
    const { terms, version } = payment;
    const price = BigInt(terms.amount);
    const settle = async (amount: bigint, response?: KeptResponse): Promise<Settled | Refused> => {
      if (amount < 0n || amount > price) {
        await work.end();
        throw new RangeError("the charge is more than the payer signed for");
      }
      const charge = { amount, voucher, response, request: requestKeyOf(payment) };
      const settlement = await work.charge(charge, (channel) =>
        settlementOf(channel, { amount, deposit }),
      );
      if (!settlement)
        return refused(
          notSettled(
            terms,
            BUSY,
            "The work took longer than the payment allows.",
            voucher.config.payer,
          ),
          version,
        );
      this.#deps.claims.charged(work.channel);
      return this.#deps.settled(settlement, amount.toString(), payment);
    };
    const release = async () => {
      await work.end();
      if (!deposit) return {};
      return settledPayment(settlementOf(work.channel, { amount: 0n, deposit }), version).headers;
    };
    return {
      kind: "metered",
      headers: {},
      payer: voucher.config.payer,
      network: terms.network,
      maximum: terms.amount,
      unlessSet: price,
      proof: `${terms.network} ${voucher.id} ${voucher.ceiling}`,
      settle,
      release,
    };
  }

  /** Sends the response to this voucher again, or corrects a payer with another record of the channel. */
  #answerAgain(
    channel: Channel,
    voucher: Voucher,
    payment: PresentedPayment,
  ): Promise<Settled> | Settled | NotCovered {
    const { last, voucher: newest, state, charged, id } = caughtUp(channel);
    const isLost =
      last !== undefined &&
      last.untilMs > Date.now() &&
      last.ceiling === voucher.ceiling.toString() &&
      last.signature === voucher.signature &&
      last.request === requestKeyOf(payment) &&
      voucher.type !== "refund";
    if (isLost) return this.#again(last, payment);
    return {
      kind: "notCovered",
      reason: MISMATCH,
      state: {
        channelState: { channelId: id, ...state, chargedCumulativeAmount: charged },
        ...(newest && {
          voucherState: { signedMaxClaimable: newest.ceiling, signature: newest.signature },
        }),
      },
    };
  }

  async #again({ settlement, amount, response }: LastCharge, payment: PresentedPayment) {
    const settled = await this.#deps.settled(settlement, amount, payment);
    const { text, base64 = "", ...kept } = response;
    const payload = text ?? Buffer.from(base64, "base64");
    return { ...settled, kept: { ...kept, payload } };
  }

  /** From the record while it is new, else from the facilitator. */
  async #stateOf(
    payment: PresentedPayment,
    voucher: Voucher,
    channel: Channel | undefined,
  ): Promise<{ state: ChannelState; readMs: number; isDeposited: boolean } | { reason: string }> {
    if (channel && voucher.type === "voucher" && isKnown(voucher, channel))
      return { state: channel.state, readMs: channel.stateReadMs, isDeposited: false };
    const readMs = Date.now();
    const verified = await this.#deps.facilitator.verify(payment);
    if ("state" in verified) return { ...verified, readMs, isDeposited: false };
    if (voucher.type !== "deposit") return verified;
    // The deposit may have been made already, by an earlier request or by somebody else.
    const covered = await this.#deps.facilitator.verify(
      payment,
      voucherPayload("voucher", voucher),
    );
    return "state" in covered ? { ...covered, readMs, isDeposited: true } : verified;
  }

  /** Gives back at most what is left after all charges, and claims these in the same transaction. */
  async #refund(
    payment: PresentedPayment,
    voucher: Voucher,
    work: ChannelRequest,
  ): Promise<Settled | Refused> {
    const { terms, version } = payment;
    const { channel } = work;
    const { authorizer } = this.#deps.settings;
    const refuse = (name: string, message: string) =>
      refused(notSettled(terms, reason(name), message, voucher.config.payer), version);
    try {
      const left = BigInt(channel.state.balance) - BigInt(channel.charged);
      if (left <= 0n) return refuse("refund_no_balance", "Nothing is left in the channel.");
      const amount = voucher.amount === undefined ? left : readUint128(voucher.amount);
      // The payer can send the signed refund alone and first, so it must not cover what is charged.
      if (amount === undefined || amount === 0n || amount > left)
        return refuse("refund_amount_invalid", `At most ${left} is left in the channel.`);
      const nonce = channel.state.refundNonce;
      // Recorded first: it may be paid out after any crash or fault.
      if (!(await work.signs({ nonce, amount })))
        return refuse("channel_busy", "The request took longer than the payment allows.");
      const row = { id: channel.id, ceiling: String(voucher.ceiling), total: channel.charged };
      const claims = unclaimedOf(channel) > 0n ? [row] : [];
      const { network } = channel;
      const signatures = authorizer && {
        refundAuthorizerSignature: await authorizer.sign(
          refundOf(network, channel.id, nonce, amount),
        ),
        ...(claims.length > 0 && {
          claimAuthorizerSignature: await authorizer.sign(claimBatchOf(network, claims)),
        }),
      };
      const response = await this.#deps.facilitator.settle(payment, {
        ...voucherPayload("refund", voucher),
        amount: amount.toString(),
        refundNonce: nonce,
        claims: claims.map(({ ceiling, total }) => ({
          voucher: { channel: channel.config, maxClaimableAmount: ceiling },
          signature: voucher.signature,
          totalClaimed: total,
        })),
        ...signatures,
      });
      if (!response.success) return refused(response, version);
      work.sees(readState(response.extra?.["channelState"]));
      if (claims.length > 0) this.#deps.claims.owes({ ...channel.config, network });
      const reported = {
        ...response,
        extra: { channelState: channelStateOf(work.channel) },
      };
      const settled = await this.#deps.settled(reported, "0", payment);
      const body = JSON.stringify({ message: "Refund acknowledged", channelId: channel.id });
      return {
        ...settled,
        // Nothing was delivered, so no receipt is signed.
        delivered: async () => settled,
        kept: { status: 200, headers: { "content-type": "application/json" }, payload: body },
      };
    } finally {
      await work.end();
    }
  }
}

interface Charge {
  amount: bigint;
  voucher: Voucher;
  response: KeptResponse | undefined;
  request: string;
}

/** The request that has the channel to itself, until its time is over. */
class ChannelRequest {
  readonly #store: ChannelStore;
  readonly #id: string;
  #held: StoredChannel;

  constructor(store: ChannelStore, held: StoredChannel, id: string) {
    this.#store = store;
    this.#held = held;
    this.#id = id;
  }

  get channel(): Channel {
    return this.#held.channel;
  }

  /** A newer state of the chain, which is written with the end of the request. */
  sees(state: ChannelState | undefined): void {
    if (!state) return;
    const channel = { ...this.#held.channel, state, stateReadMs: Date.now() };
    this.#held = { ...this.#held, channel };
  }

  /** Records a refund that is to be signed. False where another request has begun. */
  signs({ nonce, amount }: { nonce: string; amount: bigint }): Promise<boolean> {
    return this.#write((channel) => {
      const { signedRefund: earlier } = channel;
      const most = earlier?.nonce === nonce ? BigInt(earlier.amount) : 0n;
      const signedRefund = { nonce, amount: String(most > amount ? most : amount) };
      return { ...channel, signedRefund };
    });
  }

  /** Undefined where the time was over and another request has begun: nothing is charged. */
  async charge(
    { amount, voucher, response, request }: Charge,
    settlementOf: (channel: Channel) => SettleResponse,
  ): Promise<SettleResponse | undefined> {
    let settlement: SettleResponse | undefined;
    const isSaved = await this.#finish((before) => {
      const charged = BigInt(before.charged) + amount;
      if (charged > voucher.ceiling)
        throw new RangeError("a channel cannot be charged more than its payer signed");
      const channel: Channel = { ...before, charged: charged.toString() };
      settlement = settlementOf(channel);
      if (amount === 0n) return channel;
      channel.voucher = signedOf(voucher);
      channel.unclaimedSinceMs ??= Date.now();
      const kept = response && storable(response);
      if (kept) {
        const untilMs = Date.now() + KEPT_MS;
        const paid = { ...channel.voucher, request, amount: amount.toString() };
        channel.last = { ...paid, settlement, response: kept, untilMs };
      }
      return channel;
    });
    return isSaved ? settlement : undefined;
  }

  /** Frees the channel; nothing is charged. */
  async end(): Promise<void> {
    await this.#finish((channel) => channel);
  }

  #finish(change: (channel: Channel) => Channel): Promise<boolean> {
    return this.#write((before) => {
      const { request: _request, last: _last, ...channel } = before;
      return change(channel);
    });
  }

  async #write(change: (channel: Channel) => Channel): Promise<boolean> {
    const { state, stateReadMs } = this.channel;
    for (;;) {
      if (this.channel.request?.id !== this.#id) return false;
      const channel = change({ ...this.channel, usedMs: Date.now() });
      if (unclaimedOf(channel) <= 0n) delete channel.unclaimedSinceMs;
      if (await this.#store.save(channel, this.#held.version)) {
        this.#held = { channel, version: this.#held.version + 1 };
        return true;
      }
      // Its claims were recorded meanwhile.
      const found = await this.#store.find(this.channel.id);
      if (!found) return false;
      const isNewer = found.channel.stateReadMs >= stateReadMs;
      this.#held = isNewer
        ? found
        : { ...found, channel: { ...found.channel, state, stateReadMs } };
    }
  }
}

const notCovered = (why: string): NotCovered => ({ kind: "notCovered", reason: why });

/** What was charged, or claimed: a record that was lost and found again may have less than the chain. */
function baseOf({ charged, state }: Pick<Channel, "charged" | "state">): bigint {
  const [stored, claimed] = [BigInt(charged), BigInt(state.totalClaimed)];
  return stored > claimed ? stored : claimed;
}

/** A record from a backup may be older than its claims: then its voucher covers less than was claimed, and is needed no more. */
function caughtUp(channel: Channel): Channel {
  const charged = baseOf(channel);
  const { voucher, ...rest } = { ...channel, charged: charged.toString() };
  return voucher && BigInt(voucher.ceiling) >= charged ? { ...rest, voucher } : rest;
}

/** What vouchers may be signed for: not what a signed refund may still take. */
function coverOf({ state, signedRefund }: Channel): bigint {
  const isOpen = signedRefund?.nonce === state.refundNonce;
  return BigInt(state.balance) - (isOpen ? BigInt(signedRefund.amount) : 0n);
}

/** Whether the record shows that the channel covers the voucher. */
function isKnown({ ceiling, config }: Voucher, { state, stateReadMs }: Channel): boolean {
  const freshMs = Math.min(
    MAX_FRESH_MS,
    Math.max(MIN_FRESH_MS, (config.withdrawDelay * 1_000) / 3),
  );
  return (
    config.payerAuthorizer !== NO_ADDRESS &&
    Date.now() - stateReadMs <= freshMs &&
    state.withdrawRequestedAt === 0 &&
    ceiling <= BigInt(state.balance)
  );
}

const newChannel = ({ id, config }: Voucher, network: string, state: ChannelState): Channel => ({
  id,
  network,
  config,
  charged: state.totalClaimed,
  state,
  stateReadMs: 0,
  usedMs: 0,
});

const signedOf = ({ ceiling, signature }: Voucher) => ({ ceiling: ceiling.toString(), signature });

const channelStateOf = ({ id, state, charged }: Channel): Record<string, unknown> => ({
  channelId: id,
  ...state,
  chargedCumulativeAmount: charged,
});

/** The protocol's answer: of a deposit with its transaction, of a voucher without one. */
function settlementOf(
  channel: Channel,
  { amount, deposit }: { amount: bigint; deposit: Deposit },
): SettleResponse {
  const { network, config } = channel;
  const base = deposit ?? {
    success: true,
    payer: config.payer.toLowerCase(),
    transaction: "",
    network: network as PaymentRequirements["network"],
    amount: "",
  };
  const extra = { chargedAmount: amount.toString(), channelState: channelStateOf(channel) };
  return { ...base, extra };
}

/** Of two requests with one voucher, the second gets the response to the first only if they are the same. */
function requestKeyOf({ resourceKey, request: { body } }: PresentedPayment): string {
  const hash = createHash("sha256").update(resourceKey).update("\n");
  if (body === undefined || body === null) return hash.digest("base64url");
  if (typeof body === "string" || body instanceof Uint8Array)
    return hash.update(body).digest("base64url");
  // What can be read only once is not compared.
  return isPlain(body) ? hash.update(JSON.stringify(body)).digest("base64url") : randomUUID();
}

/** JSON, at any depth. */
const isPlain = (value: unknown): boolean =>
  typeof value === "object" && value !== null
    ? [Object.prototype, Array.prototype, null].includes(Object.getPrototypeOf(value)) &&
      Object.values(value).every(isPlain)
    : typeof value !== "function";

function storable({ payload, ...kept }: KeptResponse): LastCharge["response"] | undefined {
  if (Buffer.byteLength(payload) > MAX_KEPT_BYTES) return undefined;
  return typeof payload === "string"
    ? { ...kept, text: payload }
    : { ...kept, base64: payload.toString("base64") };
}
