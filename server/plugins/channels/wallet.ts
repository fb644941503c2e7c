/**
 * The channels of agents' wallets: what happens to a voucher between its reservation and the end of its request. A process
 * may die between any two of these steps:
 * - signed, not stored: the signature was given to nobody; the reservation is released;
 * - the deposit stored, its voucher not: the deposit was given to nobody, and expires;
 * - stored: the ceiling counts as signed. The next request with the key shows the same voucher, or another request uses the
 *   channel when its time is over, and learns from the seller what was charged.
 */
import { randomBytes } from "node:crypto";
import type { Address, Hex } from "viem";
import type { SignedAuthorization } from "../../core/authorization.ts";
import { newId } from "../../core/ids.ts";
import {
  channelIdAt,
  configOf,
  depositIn,
  depositOf,
  ownVoucher,
  type PayableChannel,
  type ChannelOrder,
  type ChannelSignatures,
  type Correction,
} from "../../schemes/batch-settlement/paying.ts";
import type { ChannelWanted } from "../guardrails/types.ts";
import type { SettlementRow } from "../settlement/types.ts";
import type { PaymentKey } from "../payments/idempotency.ts";
import type { ChannelStates } from "./states.ts";
import type { StoredVoucher } from "./wallet-store.ts";

interface Deps {
  sign(agentId: string, order: ChannelOrder, site: string): Promise<ChannelSignatures>;
  signers(): Promise<Address[]>;
  /** Lets the engine watch a deposit that the seller will send. */
  watch(request: PaymentKey & { authorization: SignedAuthorization }): Promise<void>;
  /** Looks for the end of a deposit on the chain, for as long as a payment is waited for. */
  follow(id: string, txHash: Hex | undefined): Promise<unknown>;
  findSettlement(id: string): Promise<SettlementRow | undefined>;
  states(chainId: number): Pick<ChannelStates, "newest"> | undefined;
  store: {
    signed(voucher: PaymentKey & { voucher: Hex }): Promise<void>;
    again(key: PaymentKey & { seconds: number }): Promise<boolean>;
    corrected(
      correction: PaymentKey & {
        total: bigint;
        ceiling: bigint;
        voucher: Hex | null;
        wasShown: boolean;
      },
    ): Promise<void>;
    find(key: PaymentKey): Promise<StoredVoucher | undefined>;
  };
  log: { warn(fields: object, message: string): void };
}

/** What is shown to the seller, and what its report is compared with. */
export interface ThroughChannel {
  id: Hex;
  order: ChannelOrder;
  signed: ChannelSignatures;
  /** What the seller had charged before. */
  chargedBefore: bigint;
  /** In escrow, with this payment's deposit. */
  balanceAtomic: bigint;
  priceAtomic: bigint;
  depositId: string | undefined;
  /** An earlier request with the key has shown the voucher. */
  wasShown?: true;
}

/** What became of the request that a voucher paid for. */
export interface VoucherEnd {
  /** Null: not known. */
  chargedAtomic: bigint | null;
  /** The seller refused the request, so it charged nothing by its own word. */
  isRefused: boolean;
  /** Why the channel is used no more. */
  reason: "seller_broke_rules" | null;
}

/** A voucher that was signed before, ready to be shown again. */
interface ShownBefore extends Omit<StoredVoucher, "order"> {
  id: Hex;
  order: ChannelOrder;
  signed: ChannelSignatures;
  wasShown: true;
}

export class WalletChannels {
  readonly #deps: Deps;
  #signers: readonly Address[] | undefined;

  constructor(deps: Deps) {
    this.#deps = deps;
  }

  newSalt(): Hex {
    return `0x${randomBytes(32).toString("hex")}`;
  }

  /** Signs the vouchers of new channels. Undefined: there are none, or it is not known now. */
  async signer(): Promise<Address | undefined> {
    this.#signers ??= await this.#deps.signers().catch((err: unknown) => {
      this.#deps.log.warn({ err }, "the accounts that sign vouchers were not read");
      return undefined;
    });
    return this.#signers?.[0];
  }

  /** The terms of a payment, with a new channel for the case that none is open. */
  wanted(
    wallet: Address,
    payment: { chainId: number; receiver: Address; token: Address; offer: PayableChannel },
    busySeconds: number,
  ): ChannelWanted {
    const { chainId, offer, ...ends } = payment;
    const salt = this.newSalt();
    const { receiverAuthorizer, withdrawDelay, minDepositAtomic, signer } = offer;
    const config = configOf(wallet, { ...ends, receiverAuthorizer, withdrawDelay, signer, salt });
    return {
      id: channelIdAt(chainId, config),
      salt,
      signer,
      receiverAuthorizer,
      withdrawDelay,
      minDepositAtomic,
      depositId: newId("pay"),
      busySeconds,
    };
  }

  sign(agentId: string, order: ChannelOrder, site: string): Promise<ChannelSignatures> {
    return this.#deps.sign(agentId, order, site);
  }

  /** Stores what was signed, before anybody gets it. */
  async accept(
    key: PaymentKey,
    {
      order,
      signed,
      depositId,
    }: {
      order: ChannelOrder;
      signed: ChannelSignatures;
      depositId: string | undefined;
    },
  ): Promise<void> {
    const deposit = depositOf(order);
    if (deposit && signed.deposit && depositId !== undefined) {
      const authorization = { ...deposit, signature: signed.deposit };
      await this.#deps.watch({ agentId: key.agentId, paymentId: depositId, authorization });
    }
    await this.#deps.store.signed({ ...key, voucher: signed.voucher });
  }

  /** Not awaited: the engine finds it later anyway. */
  followDeposit(id: string, txHash: Hex | undefined): void {
    this.#deps
      .follow(id, txHash)
      .catch((err: unknown) => this.#deps.log.warn({ err, id }, "a deposit was not followed"));
  }

  /**
   * Accepts a seller's total only with a voucher of this wallet, or if the chain shows that total. True if it was accepted:
   * then the request can be made again. `wasShown`: an earlier request with the key showed its voucher.
   */
  async correct(
    key: PaymentKey,
    {
      order,
      correction,
      wasShown,
    }: { order: ChannelOrder; correction: Correction; wasShown: boolean },
  ): Promise<boolean> {
    const total = BigInt(correction.total);
    const signed = ownVoucherIn(order, correction);
    const ceiling = signed?.ceiling ?? 0n;
    const known = [order.ceiling, order.before?.ceiling ?? 0n].some((one) => total <= one);
    // Beyond what we know as signed, the chain is not enough: the next voucher needs the one before it as its evidence.
    if (total > ceiling && !(known && (await this.#isOnChain(order, total)))) return false;
    const voucher = signed?.voucher ?? null;
    await this.#deps.store.corrected({ ...key, total, ceiling, voucher, wasShown });
    return true;
  }

  async #isOnChain(order: ChannelOrder, total: bigint): Promise<boolean> {
    return (await this.#stateOf(order))?.totalClaimed === total;
  }

  async #stateOf({ chainId, config }: Pick<ChannelOrder, "chainId" | "config">) {
    return this.#deps
      .states(chainId)
      ?.newest(channelIdAt(chainId, config))
      .catch((err: unknown) => {
        this.#deps.log.warn({ err }, "a channel was not read");
        return undefined;
      });
  }

  /** The voucher of an earlier request with the key, with its deposit if that was not made. */
  async find(key: PaymentKey): Promise<ShownBefore | undefined> {
    const stored = await this.#deps.store.find(key);
    if (!stored) return undefined;
    const { depositId, order, voucher } = stored;
    const unmade = await this.unmadeDeposit(depositId, order);
    return {
      ...stored,
      id: channelIdAt(order.chainId, order.config),
      wasShown: true,
      order: { ...order, ...(unmade && { deposit: unmade.deposit }) },
      signed: { voucher, deposit: unmade?.signature ?? null },
    };
  }

  /**
   * A deposit that was signed for an earlier request, if the channel on the chain lacks it: then it is shown again, because
   * the seller may never have made it.
   */
  async unmadeDeposit(
    id: string | undefined,
    { chainId, config, ceiling }: ChannelOrder,
  ): Promise<{ deposit: ChannelOrder["deposit"]; signature: Hex } | undefined> {
    const row = id === undefined ? undefined : await this.#deps.findSettlement(id);
    if (row?.status !== "queued" && row?.status !== "submitted") return undefined;
    const state = await this.#stateOf({ chainId, config });
    if (!state || state.balance >= ceiling) return undefined;
    const { authorization } = row;
    return { deposit: depositIn(authorization), signature: authorization.signature };
  }

  /** Takes the channel once more for such a voucher; false if another payment has it. */
  again(key: PaymentKey, seconds: number): Promise<boolean> {
    return this.#deps.store.again({ ...key, seconds });
  }
}

/** The voucher that the seller shows, if this wallet signed it. */
function ownVoucherIn(
  order: ChannelOrder,
  { signed }: Correction,
): { ceiling: bigint; voucher: Hex } | undefined {
  if (!signed) return undefined;
  const ceiling = BigInt(signed.ceiling);
  const voucher = ownVoucher(order, { ceiling, voucher: signed.voucher });
  return voucher && { ceiling, voucher };
}
