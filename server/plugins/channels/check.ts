/**
 * Checks what a payer signs for its channel: a voucher (or a request for a refund, which has one), alone or with a
 * deposit. In the order of the reference implementation, so that the reason codes agree.
 */
import { hexToBytes, zeroAddress, type Hex } from "viem";
import type { NetworkFacts } from "../../core/networks.ts";
import { isKeySignature, signatureOfKey } from "../../core/signatures.ts";
import {
  isBytes,
  voucherDigest,
  type ChannelState,
  readDeposit,
  type DepositPayment,
  readVoucher,
  type Voucher,
} from "../../schemes/batch-settlement/index.ts";
import { refuse, type Payment, type Reason, type Refusal } from "../../schemes/scheme.ts";
import type { ChainPaymentReads } from "../facilitator/chain-reads.ts";
import type { CheckResult, PaymentResult } from "../facilitator/verify.ts";
import type { Screening } from "../screening/screening.ts";
import type { ChannelStates } from "./states.ts";

export interface CheckDeps {
  networks: readonly NetworkFacts[];
  states(network: NetworkFacts): ChannelStates;
  reads(network: NetworkFacts): Pick<ChainPaymentReads, "hasCode" | "acceptsSignature">;
  checkPayment(payment: Payment): Promise<PaymentResult>;
  /** Undefined: addresses are not screened. */
  screening?: Pick<Screening, "refusalOfPayment"> | undefined;
  /** The block of the newest deposit into this channel that we settled just now. */
  depositBlock(network: NetworkFacts, channel: Voucher["channel"]): Promise<bigint | undefined>;
}

/** The state of a channel in the protocol's words. */
export const snapshot = (id: Hex, state: ChannelState): Record<string, unknown> => ({
  channelId: id,
  balance: state.balance.toString(),
  totalClaimed: state.totalClaimed.toString(),
  withdrawRequestedAt: Number(state.withdrawRequestedAt),
  refundNonce: state.refundNonce.toString(),
});

const wrong = ({ channel }: Voucher, reason: Reason): Refusal => refuse(reason, channel.payer);

export class VoucherChecker {
  readonly #deps: CheckDeps;

  constructor(deps: CheckDeps) {
    this.#deps = deps;
  }

  async check(body: unknown): Promise<CheckResult> {
    const voucher = readVoucher(body, this.#deps.networks);
    if ("reason" in voucher) return voucher;
    if (voucher.type !== "deposit") return this.#checkVoucher(voucher);
    const deposit = readDeposit(voucher);
    return "reason" in deposit ? deposit : this.checkDeposit(deposit);
  }

  async #checkVoucher(voucher: Voucher): Promise<CheckResult> {
    const { channel, required } = voucher;
    if (!(await this.isSigned(voucher)))
      return wrong(voucher, "invalid_batch_settlement_evm_voucher_signature");
    const state = await this.#stateFor(voucher, 0n);
    if (!state) return wrong(voucher, "invalid_batch_settlement_evm_rpc_read_failed");
    if (state.balance === 0n)
      return wrong(voucher, "invalid_batch_settlement_evm_channel_not_found");
    return (
      whyNotCovered(voucher, state, 0n) ??
      (await this.#screened(voucher)) ?? {
        isValid: true,
        payment: {
          payer: channel.payer,
          amountAtomic: required.amountAtomic,
          payTo: required.payTo,
          network: voucher.network,
        },
        ...(voucher.type === "refund" && { isReturn: true as const }),
        extra: snapshot(channel.id, state),
      }
    );
  }

  /** A voucher that asks for a refund gets the payer its own money back. */
  async #screened(voucher: Voucher): Promise<Refusal | undefined> {
    const { payer, receiver } = voucher.channel.config;
    if (voucher.type === "refund") return undefined;
    const reason = await this.#deps.screening?.refusalOfPayment([payer, receiver]);
    return reason && wrong(voucher, reason);
  }

  async checkDeposit(deposit: DepositPayment): Promise<PaymentResult> {
    const { voucher, amountAtomic } = deposit;
    const { channel } = voucher;
    const [checked, isSigned, state] = await Promise.all([
      this.#deps.checkPayment(deposit),
      this.isSigned(voucher),
      this.#stateFor(voucher, amountAtomic),
    ]);
    // What the contract would refuse, and a missing balance, come after the voucher.
    if (!checked.isValid && !LAST.has(checked.reason)) return checked;
    if (!isSigned) return wrong(voucher, "invalid_batch_settlement_evm_voucher_signature");
    if (!state) return wrong(voucher, "invalid_batch_settlement_evm_rpc_read_failed");
    if (!checked.isValid && checked.reason.endsWith("insufficient_balance")) return checked;
    const uncovered = whyNotCovered(voucher, state, amountAtomic);
    if (uncovered) return uncovered;
    return checked.isValid ? { ...checked, extra: snapshot(channel.id, state) } : checked;
  }

  /**
   * As of the newest block, or of that of our own deposit where the endpoint does not show it yet. The later state is not
   * taken if the other may be from after it.
   */
  async #stateFor(voucher: Voucher, deposit: bigint): Promise<ChannelState | undefined> {
    const { channel, network, ceiling } = voucher;
    const states = this.#deps.states(network);
    const newest = await states.newest(channel.id);
    if (!newest || ceiling <= newest.balance + deposit) return newest;
    const block = await this.#deps.depositBlock(network, channel);
    const then = block === undefined ? undefined : await states.at(channel.id, block);
    return then && mayBeBefore(newest, then) ? then : newest;
  }

  /**
   * By the payer's authorizer, which is a plain key; without one by the payer, as its code or its key decides. Exactly as
   * the contract checks it at a claim, which gets these bytes: a short form or an envelope would never be paid.
   */
  async isSigned({ channel, network, ceiling, signature }: Voucher): Promise<boolean> {
    const { payer, payerAuthorizer } = channel.config;
    const digest = voucherDigest(network.chainId, channel.id, ceiling);
    if (!isBytes(signature)) return false;
    const isBy = (key: typeof payer): boolean =>
      isKeySignature(signature) && signatureOfKey(hexToBytes(digest), signature, key) !== undefined;
    if (payerAuthorizer !== zeroAddress) return isBy(payerAuthorizer);
    const reads = this.#deps.reads(network);
    if (!(await reads.hasCode(payer))) return isBy(payer);
    return reads.acceptsSignature(payer, digest, signature);
  }
}

/** A balance falls only by a refund, which counts its nonce, and by a withdrawal that was pending for 15 minutes at least. */
const mayBeBefore = (state: ChannelState, later: ChannelState): boolean =>
  state.refundNonce <= later.refundNonce &&
  (later.withdrawRequestedAt === 0n || state.withdrawRequestedAt === later.withdrawRequestedAt);

const LAST = new Set<Reason>([
  "invalid_batch_settlement_evm_insufficient_balance",
  "invalid_batch_settlement_evm_deposit_simulation_failed",
]);

/** A refund asks for no new charge, so its ceiling may be what was claimed. */
function whyNotCovered(
  voucher: Voucher,
  { balance, totalClaimed }: ChannelState,
  deposit: bigint,
): Refusal | undefined {
  const { ceiling, type } = voucher;
  if (ceiling > balance + deposit)
    return wrong(voucher, "invalid_batch_settlement_evm_cumulative_exceeds_balance");
  const isBelow = type === "refund" ? ceiling < totalClaimed : ceiling <= totalClaimed;
  return isBelow
    ? wrong(voucher, "invalid_batch_settlement_evm_cumulative_below_claimed")
    : undefined;
}
