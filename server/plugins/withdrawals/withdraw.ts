/**
 * Withdrawals: an owner prepares an order, signs it in the wallet, and executes it once (`execute` shows the whole
 * request; payments/steps.ts says what happens if the process dies in between).
 * They work on every configured network: a wallet has the same address on all of them, so it may have received
 * money on any.
 */
import { randomBytes } from "node:crypto";
import { getAddress, type Address, type Hex } from "viem";
import { isPasskeySignature } from "../../core/passkeys.ts";
import { ApiError } from "../../errors.ts";
import type { WithdrawalRequest, WithdrawalReservation } from "./store.ts";
import type { ExecuteWithdrawal, PrepareWithdrawal } from "../../schemas/withdrawals.ts";
import { newId } from "../../core/ids.ts";
import { formatAtomic, parsePayable } from "../../core/money.ts";
import { findNetwork, type NetworkFacts } from "../../core/networks.ts";
import type { ChannelMoney } from "../agents/channel-money.ts";
import { refuseField } from "../../core/refuse-field.ts";
import { clocksApart, keyInUse } from "../guardrails/decide.ts";
import type { IdempotencyRef, KeyInUse } from "../guardrails/types.ts";
import { notKept, type Answer, type Calls } from "../payments/idempotency.ts";
import type { WalletBalance } from "../payments/reserve.ts";
import { readPayee } from "../payments/spend.ts";
import {
  longestRelayedMs,
  MAX_VALID_SECONDS,
  resultOf,
  type PaymentSteps,
  type Reserved,
  type Settled,
} from "../payments/steps.ts";
import { gasExhausted } from "../settlement/gas-store.ts";
import type { Settlement } from "../settlement/types.ts";
import { type Form, FORMS, REQUESTED_FORM, typedDataOf } from "../../core/orders.ts";
import {
  assertMayTake,
  orderHash,
  orderOnWire,
  orderProof,
  readOrder,
  signerOf,
  type Signer,
  type Order,
  type Taker,
} from "./order.ts";
import { orderNotSigned, orderSeconds, spanOf, type SignedOrder } from "../orders/orders.ts";
import type { Checked } from "../orders/signatures.ts";
import { hasNoWallet } from "../../core/teams.ts";

interface WithdrawalsDeps {
  calls: Calls;
  steps: PaymentSteps;
  settleWaitMs: number;
  /** The CAIP-2 id of a chain in the ledger. */
  networkOf(chainId: bigint): string;
  settlement: Pick<Settlement, "assertAvailable" | "gasHold">;
  readBalance(chainId: number, wallet: { walletAddress: Address }): Promise<WalletBalance>;
  outstanding(args: { agentId: string; chainId: number; balanceBlock: bigint }): Promise<bigint>;
  inChannels(agentId: string): Promise<ChannelMoney[]>;
  reserve(request: WithdrawalRequest): Promise<WithdrawalReservation>;
  /** Seconds of the database clock: a wrong process clock must not change an order's validity. */
  now(): Promise<bigint>;
  log: { error(fields: object, message: string): void };
  /** The configured networks, in their order. */
  networks: readonly NetworkFacts[];
  /** A smart account's signature is verified on its own chain, whatever network the order is for. */
  checkSignature(signer: Signer, signed: { hash: Hex; signature: Hex }): Promise<Checked>;
  /** Keeps the request of a team until enough members have signed. Returns the answer. */
  wait(owner: WithdrawalContext["owner"], signed: SignedOrder): Promise<ApiError>;
  endWaiting(nonce: Hex): Promise<void>;
  /** Throws if a passkey signed and counted back. */
  countSignature(owner: { id: string }, signed: { hash: Hex; signature: Hex }): Promise<void>;
  /** The owner's own address; undefined for an owner without a wallet who has not named one. */
  homeOf(owner: { address: Address; chainId: number }): Promise<Address | undefined>;
}

export interface WithdrawalContext {
  agent: { id: string; walletAddress: Address; network: string };
  owner: { id: string } & Taker;
  requestId: string;
}

/** A withdrawal that the engine has accepted, now or for an earlier request. */
interface Accepted {
  paymentId: string;
  to: Address;
  amountAtomic: bigint;
  network: string;
}

/** With the network from which to withdraw. */
type OnNetwork = WithdrawalContext & { network: NetworkFacts };

interface CheckedOrder {
  order: Order;
  form: Form;
  signature: Hex;
  members: number | undefined;
}

export class Withdrawals {
  readonly #deps: WithdrawalsDeps;

  constructor(deps: WithdrawalsDeps) {
    this.#deps = deps;
  }

  async prepare(request: WithdrawalContext, body: PrepareWithdrawal) {
    const network = this.#networkOf(request.agent, body.network);
    const context = { ...request, network };
    if (body.to === undefined) assertOwnerIsThere(context);
    const home = await this.#deps.homeOf(context.owner);
    if (home === undefined) throw new ApiError("payout_address_missing");
    const to = readPayee(body.to ?? home, "body.to", {
      walletAddress: request.agent.walletAddress,
      asset: network.usdc.address,
    });
    assertMayTake(context.owner, to, { home, isByPasskey: false });
    const wanted = body.amount === "max" ? undefined : parsePayable(body.amount);
    if (wanted?.ok === false) throw refuseField("invalid_amount", "body.amount", wanted.reason);
    const available = await this.#available(context);
    const amountAtomic = wanted?.atomic ?? available;
    if (amountAtomic === 0n || amountAtomic > available)
      throw insufficient(context, amountAtomic, available);
    const order = orderOnWire({
      wallet: request.agent.walletAddress,
      to,
      asset: network.usdc.address,
      amountAtomic,
      nonce: `0x${randomBytes(32).toString("hex")}`,
      deadlineSeconds: (await this.#deps.now()) + BigInt(orderSeconds(request.owner)),
    });
    return {
      order,
      typedData: typedDataOf("Withdraw", order, network.chainId, REQUESTED_FORM),
      ...(body.amount === "max" && { inChannels: await this.#inChannels(context) }),
    };
  }

  async #inChannels({ agent, network }: OnNetwork): Promise<{ held: string; channels: number }> {
    const all = await this.#deps.inChannels(agent.id);
    const here = all.find(({ chainId }) => chainId === network.chainId);
    return { held: formatAtomic(here?.heldAtomic ?? 0n), channels: here?.channels ?? 0 };
  }

  async execute(
    context: WithdrawalContext,
    body: ExecuteWithdrawal,
    idempotency: IdempotencyRef | undefined,
  ): Promise<Answer> {
    const { calls, steps, settleWaitMs } = this.#deps;
    const agentId = context.agent.id;
    const limits = { agentId, longestMs: longestRelayedMs(settleWaitMs) };
    const begun = await calls.begin(idempotency, limits);
    if (begun.kind === "answered") return begun.answer;
    if (begun.kind === "free") throw notKept(begun.freeResponse);
    const { call } = begun;

    let paid: Accepted;
    if (begun.kind === "signed") {
      // An earlier request signed it: only its outcome is missing.
      const { payment } = begun;
      const { id: paymentId, amountAtomic } = payment;
      const to = payment.counterparty ?? context.owner.address;
      paid = { paymentId, to, amountAtomic, network: this.#deps.networkOf(payment.chainId) };
    } else {
      const { network, ...checked } = await this.#checkOrder(context, body);
      const { order } = checked;
      const reserved = await this.#reserve({ ...context, network }, { ...checked, idempotency });
      if (reserved.kind !== "reserved")
        return call.notReserved(reserved) ?? this.execute(context, body, idempotency);
      if (context.owner.member) await this.#deps.endWaiting(order.nonce);
      const authorization = await steps.sign(reserved, call);
      await steps.accept(reserved, { kind: "withdrawal", relay: true, authorization });
      const { paymentId } = reserved;
      paid = { paymentId, to: order.to, amountAtomic: order.amountAtomic, network: network.id };
    }

    const outcome = await steps.wait(paid.paymentId);
    const result = resultOf(paid.paymentId, outcome, (proof) => answerBody(paid, proof));
    return call.answer(await call.keep({ agentId, paymentId: paid.paymentId }, result));
  }

  /** Checks that the owner recently signed exactly this order, for this wallet, network and token. */
  async #checkOrder(
    context: WithdrawalContext,
    body: ExecuteWithdrawal,
  ): Promise<CheckedOrder & { network: NetworkFacts }> {
    const { agent } = context;
    const order = readOrder(body.order);
    if (!order) throw refuseField("validation_failed", "body.order", "has a number out of range");
    const found = await this.#signedFor(context, order, body.signature as Hex);
    const { network, form, signature, members, missing } = found;
    const home = await this.#deps.homeOf(context.owner);
    assertMayTake(context.owner, order.to, { home, isByPasskey: isPasskeySignature(signature) });
    const hash = orderHash(order, network.chainId, form);
    await this.#deps.countSignature(context.owner, { hash, signature });
    if (order.wallet !== agent.walletAddress.toLowerCase())
      throw orderNotSigned("The order is for a different wallet.");
    if (order.asset !== network.usdc.address.toLowerCase())
      throw orderNotSigned("The order is for a different token.");
    const now = await this.#deps.now();
    if (order.deadlineSeconds <= now) throw new ApiError("signature_expired");
    const seconds = orderSeconds(context.owner);
    if (order.deadlineSeconds > now + BigInt(seconds))
      throw refuseField(
        "validation_failed",
        "body.order.deadline",
        `is more than ${spanOf(seconds)} away`,
      );
    if (order.amountAtomic === 0n)
      throw refuseField("invalid_amount", "body.order.amount", "must be greater than zero");
    readPayee(order.to, "body.order.to", {
      walletAddress: agent.walletAddress,
      asset: network.usdc.address,
    });
    if (missing) {
      const { chainId } = network;
      const { network: _network, ...rest } = found;
      const signed = { kind: "Withdraw" as const, order: orderOnWire(order), digest: hash };
      throw await this.#deps.wait(context.owner, { ...rest, ...signed, chainId });
    }
    return { order, network, form, signature, members };
  }

  /** Finds the network of the order by its signature: the signed domain contains the chain id. */
  async #signedFor(
    context: WithdrawalContext,
    order: Order,
    signature: Hex,
  ): Promise<{ network: NetworkFacts; form: Form } & Omit<Checked, "verdict">> {
    const { agent } = context;
    const signer = signerOf(context.owner);
    // Several networks may have USDC at the same address; the agent's own network is tried first.
    const own = this.#deps.networks.filter(({ id }) => id === agent.network);
    const others = this.#deps.networks.filter(
      ({ id, usdc }) => id !== agent.network && usdc.address.toLowerCase() === order.asset,
    );
    let isUnavailable = false;
    for (const network of [...own, ...others])
      for (const form of FORMS) {
        const hash = orderHash(order, network.chainId, form);
        const { verdict, ...checked } = await this.#deps.checkSignature(signer, {
          hash,
          signature,
        });
        if (verdict === "valid") return { network, form, ...checked };
        isUnavailable ||= verdict === "unavailable";
      }
    if (isUnavailable)
      throw new ApiError("chain_unavailable", {
        detail: "The owner's contract could not be read to check this signature.",
      });
    throw orderNotSigned("The owner did not sign this order for a supported network and token.");
  }

  #networkOf(agent: { network: string }, requested: string | undefined): NetworkFacts {
    const network = findNetwork(requested ?? agent.network, this.#deps.networks);
    if (network) return network;
    if (requested !== undefined)
      throw refuseField(
        "validation_failed",
        "body.network",
        `must be one of ${this.#deps.networks.map(({ id }) => id).join(", ")}`,
      );
    throw new ApiError("chain_unavailable", {
      detail: `The network ${agent.network} is no longer configured on this service.`,
    });
  }

  async #reserve(
    context: OnNetwork,
    args: CheckedOrder & { idempotency: IdempotencyRef | undefined },
  ): Promise<({ kind: "reserved" } & Reserved) | KeyInUse> {
    const { agent, network } = context;
    const { order } = args;
    const [balance, gasHold] = await Promise.all([
      this.#deps.readBalance(network.chainId, agent),
      this.#deps.settlement.gasHold(network.chainId),
      this.#deps.settlement.assertAvailable(network.chainId, { kind: "withdrawal" }),
    ]);
    const row = await this.#deps.reserve({
      agentId: agent.id,
      paymentId: newId("pay"),
      chainId: network.chainId,
      asset: order.asset,
      to: order.to,
      amountAtomic: order.amountAtomic,
      nonce: order.nonce,
      deadlineSeconds: order.deadlineSeconds,
      signature: args.signature,
      members: args.members,
      proof: orderProof(order, network.chainId, {
        ...signerOf(context.owner),
        signature: args.signature,
        form: args.form,
      }),
      validForSeconds: MAX_VALID_SECONDS,
      balance,
      gasHold,
      requestId: context.requestId,
      idempotency: args.idempotency,
    });
    switch (row.outcome) {
      case "reserved":
        return { kind: "reserved", ...reservedAs(context, order, row) };
      case "replay":
      case "running":
      case "key_reused":
        return keyInUse(row.outcome, row);
      case "replayed":
        throw new ApiError("withdrawal_replayed");
      case "expired":
        throw new ApiError("signature_expired");
      case "gas": {
        const { gasShort, gasAvailableAt } = JSON.parse(row.response ?? "{}") as {
          gasShort: string;
          gasAvailableAt: string | null;
        };
        throw gasExhausted({
          short: gasShort,
          availableAt: gasAvailableAt === null ? null : new Date(gasAvailableAt),
        });
      }
      case "members_changed":
        throw orderNotSigned(
          "The members of the team changed meanwhile. Nothing was paid: ask for the withdrawal again.",
        );
      case "given_up":
        throw new ApiError("withdrawal_replayed", {
          detail: "This withdrawal was given up before it was carried out. Ask for it again.",
        });
      case "clock_apart":
        throw clocksApart(this.#deps.log, { agentId: agent.id, chainId: network.chainId });
      case "insufficient":
        throw insufficient(context, order.amountAtomic, row.availableAtomic ?? 0n);
      default:
        throw new ApiError("not_found");
    }
  }

  async #available({ agent, network }: OnNetwork): Promise<bigint> {
    const { chainId } = network;
    const { atomic, blockNumber } = await this.#deps.readBalance(chainId, agent);
    const outstanding = await this.#deps.outstanding({
      agentId: agent.id,
      chainId,
      balanceBlock: blockNumber,
    });
    return atomic > outstanding ? atomic - outstanding : 0n;
  }
}

function reservedAs(
  { agent, network }: OnNetwork,
  order: Order,
  { paymentId, validBefore }: WithdrawalReservation,
): Reserved {
  if (paymentId === null || validBefore === null) throw new Error("no reservation");
  return {
    agentId: agent.id,
    paymentId,
    authorization: {
      chainId: network.chainId,
      asset: order.asset,
      from: agent.walletAddress,
      to: order.to,
      value: order.amountAtomic,
      validAfter: 0n,
      validBefore,
      // Uses the order's nonce, so that the order can be used only once on chain, as in the database.
      nonce: order.nonce,
    },
    cover: { kind: "withdrawal", orderNonce: order.nonce },
  };
}

const answerBody = (paid: Accepted, proof: Settled): Record<string, unknown> => ({
  success: true,
  txHash: proof.txHash,
  paymentId: paid.paymentId,
  recipient: getAddress(paid.to),
  amount: formatAtomic(paid.amountAtomic),
  network: paid.network,
  settledAt: proof.settledAt.toISOString(),
});

function insufficient(context: OnNetwork, required: bigint, available: bigint): ApiError {
  const held = available === 0n ? "nothing" : `${formatAtomic(available)} USDC`;
  return new ApiError("insufficient_funds", {
    detail: `The wallet has ${held} on ${context.network.name} that can be withdrawn.`,
    extra: {
      suggestion:
        available === 0n
          ? "Payments and withdrawals that are not settled yet keep their amount. Withdraw when they are."
          : "Withdraw less, or everything that is available. Payments and withdrawals that are not settled yet keep their amount.",
      balance: formatAtomic(available),
      required: formatAtomic(required),
      fundingAddress: getAddress(context.agent.walletAddress),
    },
  });
}

/**
 * On another network, a smart account's address may have no contract or someone else's: the owner must name the
 * payee.
 */
function assertOwnerIsThere({ owner, network }: OnNetwork): void {
  if (hasNoWallet(owner.chainId) || [0, network.chainId].includes(owner.chainId)) return;
  throw refuseField(
    "validation_failed",
    "body.to",
    `is required: your account is a contract on a different network from ${network.name}`,
  );
}
