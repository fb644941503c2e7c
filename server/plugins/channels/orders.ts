/**
 * What a receiver has done with its channels: claim vouchers, settle what was claimed, refund a payer. The engine sends
 * it like a payment. All of it may be sent by others, too, so each answer is read from the chain's state.
 *
 * A claim and a refund need the signature of the receiver's authorizer. We sign only with our own key, only where the
 * channel names it, and only for the merchant whose channel it is: a payer could otherwise have its deposit refunded
 * while the seller holds unclaimed vouchers.
 */
import { hexToBytes, keccak256, toBytes, type Address, type Hex } from "viem";
import type {
  ChannelClaim,
  SchemeTerms,
  SettlementKey,
  SignedAuthorization,
} from "../../core/authorization.ts";
import type { FeeAgreement } from "../../core/fees.ts";
import { newId } from "../../core/ids.ts";
import type { NetworkFacts } from "../../core/networks.ts";
import { ApiError } from "../../errors.ts";
import { revertReason } from "../../infra/chain/errors.ts";
import type { SettleAnswer } from "../../schemas/facilitator.ts";
import {
  channelIdOf,
  CHANNELS,
  claimCall,
  claimDigest,
  errorName,
  refundCall,
  refundDigest,
  settleCall,
  type ChannelState,
  type Claim,
  type Refund,
  type SettleOrder,
} from "../../schemes/batch-settlement/index.ts";
import { refuse, type Reason, type Refusal } from "../../schemes/scheme.ts";
import { notSettled, refusal, type SettleOptions } from "../facilitator/settle.ts";
import type { Settlement, SettlementOutcome, SettlementRow } from "../settlement/types.ts";
import { outcomeOf } from "../settlement/waiters.ts";
import { snapshot } from "./check.ts";
import type { ChannelStates } from "./states.ts";

/** Signs for the receivers of channels that name it. */
export interface ReceiverAuthorizer {
  readonly address: Address;
  sign(digest: Uint8Array): Hex;
}

export interface OrderDeps {
  settlement: Pick<Settlement, "assertAvailable" | "wait">;
  /** Accepts it in a transaction of its own. */
  accept(request: {
    id: string;
    authorization: SignedAuthorization;
    merchant: string | undefined;
    fee: FeeAgreement | undefined;
  }): Promise<SettlementRow>;
  find(key: SettlementKey): Promise<SettlementRow | undefined>;
  /** This receiver's claims and refunds without an outcome, and the newest block with one of its orders. */
  ordersOf(
    network: NetworkFacts,
    receiver: Address,
  ): Promise<{ open: string[]; newest: bigint | null }>;
  states(network: NetworkFacts): ChannelStates;
  /** Those of these channels into which we settled a deposit just now. */
  deposits(
    network: NetworkFacts,
    channels: readonly { id: Hex; payer: Address }[],
  ): Promise<ReadonlyMap<string, bigint>>;
  authorizer: ReceiverAuthorizer | undefined;
  /** What a receiver owes this facilitator for a settle of this amount. */
  feeFor(receiver: Address, amountAtomic: bigint): FeeAgreement | undefined;
  /** Whether this merchant is the receiver. */
  isMerchants(merchant: string, receiver: Address, network: NetworkFacts): Promise<boolean>;
  countFor(limit: "payer", payer: string): void | Promise<void>;
  /** Less is not worth its gas; for a claim, on average of the channels that it adds to. */
  leastAtomic: bigint;
  waitMs: number;
  /** Between two rounds of a claim. */
  pause(ms: number): Promise<void>;
}

type Order = Claim | SettleOrder | Refund;
/** Longer than any queue; an order has no end of its own, and the contract's state decides. */
const NO_END = 2n ** 64n;
/** How often a claim is repeated whose first part somebody else has sent. */
const MAX_ROUNDS = 5;
const ROUND_MS = 300;
/** How often to look whether an endpoint shows our own deposit by now. */
const MAX_LOOKS = 8;
/** A failed order may be requested again. */
const MAX_ATTEMPTS = 1_000;
const TOO_LITTLE = "amount_below_floor";

export class ChannelOrders {
  readonly #deps: OrderDeps;

  constructor(deps: OrderDeps) {
    this.#deps = deps;
  }

  async run(order: Order, options: SettleOptions): Promise<SettleAnswer> {
    if (order.type === "claim") return this.#claim(order, options);
    if (order.type === "settle") return this.#settle(order, options);
    return this.#refund(order, options);
  }

  async #claim(order: Claim, options: SettleOptions): Promise<SettleAnswer> {
    const { network, claims } = order;
    const foreign = claims.find(({ channel }) => !isUsdc(channel.token, network));
    if (foreign) return refused(order, "invalid_batch_settlement_evm_token_mismatch");
    const signature = order.signature ?? (await this.#signClaims(order, options));
    if (typeof signature !== "string") return refusal(order.networkName, signature);
    const ids = claims.map(({ channel }) => channelIdOf(network.chainId, channel));
    let sent: SettlementOutcome | undefined;
    for (let round = 0; round < MAX_ROUNDS; round += 1) {
      const found = await this.#statesFor(order, ids);
      const lead = leadOf(claims, ids, found);
      if (lead === "unreadable")
        return refused(order, "invalid_batch_settlement_evm_rpc_read_failed");
      // Also if somebody else has claimed them meanwhile.
      if (!lead) return succeeded(order, sent);
      if (this.#isTooLittle(lead.addsInAll, lead.count)) return refused(order, TOO_LITTLE);
      const bad = await this.#whyRefused(order, claimCall(claims, signature));
      if (bad !== undefined)
        return refused(
          order,
          "invalid_batch_settlement_evm_claim_simulation_failed",
          describe(bad, claims, ids, found),
        );
      const { outcome, isOwn } = await this.#send(order, options, {
        from: lead.claim.channel.receiver,
        asset: lead.claim.channel.token,
        value: 0n,
        signature,
        name: `claim:${lead.channelId}:${lead.claim.total}`,
        terms: {
          scheme: "channel-claim",
          claims,
          lead: { channelId: lead.channelId, total: lead.claim.total },
        },
      });
      sent = outcome;
      if (sent.status !== "settled") return unsettled(order, sent);
      if (isOwn && !sent.byOther) return succeeded(order, sent);
      // Another request, or somebody else, claimed a part of it.
      await this.#deps.pause(ROUND_MS);
    }
    return refused(order, "settlement_pending");
  }

  /** An endpoint that lags may not show our own deposit yet, without which the contract would refuse the claim. */
  async #statesFor({ network, claims }: Claim, ids: readonly Hex[]) {
    const states = this.#deps.states(network);
    let found = await states.all(ids);
    const lacking = () =>
      claims.flatMap(({ channel: { payer }, total }, index) => {
        const [id, state] = [ids[index], found[index]];
        return id && state && BigInt(total) > state.balance ? [{ id, payer }] : [];
      });
    const first = lacking();
    if (first.length === 0) return found;
    const deposits = await this.#deps.deposits(network, first);
    const isMissing = (): boolean => lacking().some(({ id }) => deposits.has(id));
    for (let look = 0; look < MAX_LOOKS && isMissing(); look += 1) {
      await this.#deps.pause(ROUND_MS);
      found = await states.all(ids);
    }
    return found;
  }

  async #settle(order: SettleOrder, options: SettleOptions): Promise<SettleAnswer> {
    const { network, receiver, token } = order;
    if (!isUsdc(token, network))
      return refused(order, "invalid_batch_settlement_evm_token_mismatch");
    // Claims that were requested before are part of it, alone or with a refund.
    const { open } = await this.#deps.ordersOf(network, receiver);
    await Promise.all(open.map((id) => this.#deps.settlement.wait(id, this.#deps.waitMs)));
    const sums = await this.#sumsOf(order);
    if (!sums) return refused(order, "invalid_batch_settlement_evm_rpc_read_failed");
    if (sums.claimed <= sums.settled)
      return refused(order, "invalid_batch_settlement_evm_nothing_to_settle");
    if (this.#isTooLittle(sums.claimed - sums.settled)) return refused(order, TOO_LITTLE);
    const bad = await this.#whyRefused(order, settleCall(receiver, token));
    if (bad !== undefined)
      return refused(order, "invalid_batch_settlement_evm_settle_simulation_failed", bad);
    const { outcome: sent } = await this.#send(order, options, {
      from: receiver,
      asset: token,
      value: sums.claimed - sums.settled,
      signature: "0x",
      name: `settle:${sums.claimed}`,
      fee:
        options.isBilled === true
          ? this.#deps.feeFor(receiver, sums.claimed - sums.settled)
          : undefined,
      terms: { scheme: "channel-settle", claimed: `${sums.claimed}` },
    });
    return sent.status === "settled"
      ? { ...succeeded(order, sent), amount: sent.amountAtomic.toString() }
      : unsettled(order, sent);
  }

  /**
   * An endpoint that lags may not show our newest claim or settle yet, so the sums are read as of its block, too. Neither
   * sum ever falls, so the greater is the later one.
   */
  async #sumsOf({ network, receiver, token }: SettleOrder) {
    const states = this.#deps.states(network);
    const { newest } = await this.#deps.ordersOf(network, receiver);
    const [sums, later] = await Promise.all([
      states.receiver(receiver, token, "latest"),
      newest === null ? undefined : states.receiver(receiver, token, newest),
    ]);
    if (!sums || newest === null) return sums;
    // Without that block there may be something to settle all the same.
    if (!later) return sums.claimed > sums.settled ? sums : undefined;
    return { claimed: max(sums.claimed, later.claimed), settled: max(sums.settled, later.settled) };
  }

  async #refund(order: Refund, options: SettleOptions): Promise<SettleAnswer> {
    const { network, channel, claims, nonce } = order;
    const { config, id, payer } = channel;
    const states = this.#deps.states(network);
    if (!isUsdc(config.token, network))
      return refused(order, "invalid_batch_settlement_evm_token_mismatch", undefined, payer);
    const name = `refund:${id}:${nonce}`;
    const known = await this.#known(network, config.payer, config.token, name);
    // The response to an earlier request for it may have been lost.
    if (known) return this.#refunded(order, known, options);
    const state = (await states.all([id]))[0];
    if (!state)
      return refused(order, "invalid_batch_settlement_evm_rpc_read_failed", undefined, payer);
    const refundable = refundableOf(order, state);
    if (refundable <= 0n)
      return refused(order, "invalid_batch_settlement_evm_refund_no_balance", undefined, payer);
    // A state from before an earlier refund would show more than is left.
    if (order.signature === undefined && state.refundNonce !== nonce)
      return refused(
        order,
        "invalid_batch_settlement_evm_refund_simulation_failed",
        `The channel's refund nonce is ${state.refundNonce}.`,
        payer,
      );
    // The contract pays no more than what is left, whatever is signed.
    const paid = order.amount < refundable ? order.amount : refundable;
    if (this.#isTooLittle(paid)) return refused(order, TOO_LITTLE, undefined, payer);
    const signed = await this.#signRefund(order, options, refundable);
    if ("reason" in signed) return refusal(order.networkName, signed);
    const { amount, signature, claimSignature } = signed;
    const call = refundCall({ config, amount, nonce, signature, claims, claimSignature });
    const bad = await this.#whyRefused(order, call);
    if (bad !== undefined)
      return refused(order, "invalid_batch_settlement_evm_refund_simulation_failed", bad, payer);
    const { outcome } = await this.#send(order, options, {
      from: config.payer,
      asset: config.token,
      value: amount,
      signature,
      name,
      terms: {
        scheme: "channel-refund",
        channelId: id,
        config,
        refundNonce: `${nonce}`,
        claims,
        ...(claimSignature && { claimSignature }),
      },
    });
    return this.#refunded({ ...order, claimSignature }, outcome, options);
  }

  async #refunded(
    order: Refund,
    outcome: SettlementOutcome,
    options: SettleOptions,
  ): Promise<SettleAnswer> {
    const { network, channel, claimSignature } = order;
    const { id, payer } = channel;
    if (outcome.status !== "settled") return { ...unsettled(order, outcome), payer };
    const [first, ...others] = order.claims;
    // Somebody took the signed refund out of its transaction: the claims are still to be sent.
    if (outcome.byOther && first && claimSignature)
      await this.#claim(
        { ...order, type: "claim", claims: [first, ...others], signature: claimSignature },
        options,
      );
    const after = await this.#deps.states(network).at(id, outcome.blockNumber);
    return {
      ...succeeded(order, outcome),
      payer,
      amount: outcome.amountAtomic.toString(),
      ...(after && { extra: { channelState: snapshot(id, after) } }),
    };
  }

  // Signing for a merchant.

  async #signClaims(order: Claim, options: SettleOptions): Promise<Hex | Refusal> {
    const { claims, network } = order;
    const refusedFor = await this.#whyNotOurs(
      claims.map(({ channel }) => channel),
      network,
      options,
    );
    return refusedFor ?? this.#sign(claimDigest(network.chainId, claims));
  }

  async #signRefund(
    order: Refund,
    options: SettleOptions,
    refundable: bigint,
  ): Promise<{ amount: bigint; signature: Hex; claimSignature: Hex | undefined } | Refusal> {
    const { network, channel, claims, nonce } = order;
    let { amount, signature, claimSignature } = order;
    const isComplete =
      signature !== undefined && (claims.length === 0 || claimSignature !== undefined);
    if (!isComplete) {
      const configs = [channel.config, ...claims.map((claim) => claim.channel)];
      const problem = await this.#whyNotOurs(configs, network, options);
      if (problem) return { ...problem, payer: channel.payer };
    }
    if (signature === undefined) {
      // Never more than what is left after the claims: the payer can send this signature alone, and first.
      amount = amount < refundable ? amount : refundable;
      signature = this.#sign(
        refundDigest(network.chainId, { channelId: channel.id, nonce, amount }),
      );
    }
    if (claims.length > 0) claimSignature ??= this.#sign(claimDigest(network.chainId, claims));
    return { amount, signature, claimSignature };
  }

  async #whyNotOurs(
    configs: readonly { receiver: Address; receiverAuthorizer: Address }[],
    network: NetworkFacts,
    { merchant }: SettleOptions,
  ): Promise<Refusal | undefined> {
    const { authorizer } = this.#deps;
    if (!authorizer || merchant === undefined)
      return refuse("invalid_batch_settlement_evm_authorizer_not_configured");
    if (configs.some(({ receiverAuthorizer }) => receiverAuthorizer !== authorizer.address))
      return refuse("invalid_batch_settlement_evm_authorizer_address_mismatch");
    const receivers = [...new Set(configs.map(({ receiver }) => receiver))];
    const own = await Promise.all(
      receivers.map((receiver) => this.#deps.isMerchants(merchant, receiver, network)),
    );
    return own.every(Boolean)
      ? undefined
      : refuse(
          "invalid_batch_settlement_evm_authorizer_not_configured",
          undefined,
          "The receiver of the channel is not the wallet of this merchant's key.",
        );
  }

  #sign(digest: Hex): Hex {
    const { authorizer } = this.#deps;
    if (!authorizer) throw new Error("there is no receiver authorizer");
    return authorizer.sign(hexToBytes(digest));
  }

  // Sending.

  #isTooLittle(amount: bigint, channels = 1): boolean {
    return amount < this.#deps.leastAtomic * BigInt(channels);
  }

  /** The contract's reason, if it would refuse this now. */
  async #whyRefused(
    { network }: Order,
    call: ReturnType<typeof settleCall>,
  ): Promise<string | undefined> {
    const { success, data } = await this.#deps.states(network).simulate(call);
    return success ? undefined : (errorName(revertReason(data)) ?? "It gives no reason.");
  }

  /** Two requests for the same are one: the first that has not failed. `isOwn`: it is of this request. */
  async #send(
    { network }: Order,
    { merchant }: SettleOptions,
    wanted: Wanted,
  ): Promise<{ outcome: SettlementOutcome; isOwn: boolean }> {
    const { settlement, waitMs } = this.#deps;
    const { name, fee, ...own } = wanted;
    await this.#deps.countFor("payer", own.from);
    await settlement.assertAvailable(network.chainId, { kind: "facilitated" });
    for (let attempt = 0; attempt < MAX_ATTEMPTS; attempt += 1) {
      const id = newId("pay");
      const row = await this.#deps.accept({
        id,
        merchant,
        fee,
        authorization: {
          ...own,
          chainId: network.chainId,
          to: CHANNELS.toLowerCase() as Address,
          validAfter: 0n,
          validBefore: NO_END,
          nonce: nonceOf(name, attempt),
        },
      });
      const known = outcomeOf(row);
      const isOwn = row.id === id;
      if (known.status === "pending")
        return { outcome: await settlement.wait(row.id, waitMs), isOwn };
      if (known.status === "settled") return { outcome: known, isOwn };
    }
    throw new ApiError("internal_error");
  }

  /** The outcome of an earlier request for the same that has not failed. */
  async #known(
    { chainId }: NetworkFacts,
    from: Address,
    asset: Address,
    name: string,
  ): Promise<SettlementOutcome | undefined> {
    for (let attempt = 0; attempt < MAX_ATTEMPTS; attempt += 1) {
      const row = await this.#deps.find({ chainId, from, asset, nonce: nonceOf(name, attempt) });
      if (!row) return undefined;
      const known = outcomeOf(row);
      if (known.status === "settled") return known;
      if (known.status === "pending") return this.#deps.settlement.wait(row.id, this.#deps.waitMs);
    }
    return undefined;
  }
}

interface Wanted {
  from: Address;
  asset: Address;
  value: bigint;
  signature: Hex;
  /** The same for every request for the same. */
  name: string;
  terms: SchemeTerms;
  fee?: FeeAgreement | undefined;
}

const nonceOf = (name: string, attempt: number): `channel:${Hex}` =>
  `channel:${keccak256(toBytes(`${name}:${attempt}`))}`;

const max = (one: bigint, other: bigint): bigint => (one > other ? one : other);

const isUsdc = (token: Address, { usdc }: NetworkFacts): boolean =>
  token === usdc.address.toLowerCase();

interface Lead {
  claim: ChannelClaim;
  channelId: Hex;
  adds: bigint;
  /** Of all claims that add something. */
  addsInAll: bigint;
  count: number;
}

/** The claim that adds most: while it is missing, so is the whole. Undefined: all of them are done. */
function leadOf(
  claims: readonly ChannelClaim[],
  ids: readonly Hex[],
  states: readonly (ChannelState | undefined)[],
): Lead | "unreadable" | undefined {
  let best: Lead | undefined;
  let addsInAll = 0n;
  let count = 0;
  for (const [index, claim] of claims.entries()) {
    const state = states[index];
    const channelId = ids[index];
    if (!state || !channelId) return "unreadable";
    const adds = BigInt(claim.total) - state.totalClaimed;
    if (adds <= 0n) continue;
    addsInAll += adds;
    count += 1;
    if (adds > (best?.adds ?? 0n)) best = { claim, channelId, adds, addsInAll, count };
  }
  return best && { ...best, addsInAll, count };
}

/** What is left for the payer after the claims of this channel. */
function refundableOf(
  { network, channel, claims }: Refund,
  { balance, totalClaimed }: ChannelState,
): bigint {
  const charged = claims
    .filter((claim) => channelIdOf(network.chainId, claim.channel) === channel.id)
    .reduce((most, { total }) => (BigInt(total) > most ? BigInt(total) : most), totalClaimed);
  return balance - charged;
}

/** Names the channels at fault, so that the rest can be claimed without them. */
function describe(
  reason: string,
  claims: readonly ChannelClaim[],
  ids: readonly Hex[],
  states: readonly (ChannelState | undefined)[],
): string {
  const bad = claims.flatMap(({ total, ceiling }, index) => {
    const isWrong =
      BigInt(total) > BigInt(ceiling) || BigInt(total) > (states[index]?.balance ?? 0n);
    return isWrong ? [ids[index]] : [];
  });
  const named = bad.length > 0 ? ` Claim the others without ${bad.join(", ")}.` : "";
  return `The contract would refuse this claim: ${reason}.${named}`;
}

const refused = (
  { networkName }: Order,
  reason: Reason,
  message?: string,
  payer?: string,
): SettleAnswer => refusal(networkName, refuse(reason, payer, message));

function succeeded({ networkName }: Order, sent: SettlementOutcome | undefined): SettleAnswer {
  const txHash = sent?.status === "settled" ? sent.txHash : "";
  return {
    success: true,
    txHash,
    transaction: txHash,
    network: networkName,
    ...(sent && { paymentId: sent.id }),
  };
}

function unsettled(
  { networkName: network }: Order,
  outcome: Exclude<SettlementOutcome, { status: "settled" }>,
): SettleAnswer {
  const ids = { network, paymentId: outcome.id };
  return outcome.status === "pending"
    ? notSettled(ids, "settlement_pending", { txHash: outcome.txHash })
    : notSettled(ids, outcome.reason, outcome);
}
