/** What the facilitator does for payment channels: it reads their state, and sends deposits, claims, settles and refunds. */
import type { FacilitatorClient } from "@x402/core/server";
import { VerifyError, type PaymentRequirements, type SettleResponse } from "@x402/core/types";
import { asFault, refusalIn, UNKNOWN_OUTCOME } from "./answers.ts";
import type { Channel, ChannelState } from "./channel-store.ts";
import { payloadForFacilitator } from "./extensions.ts";
import { isRecord } from "./foreign-json.ts";
import type { PresentedPayment } from "./resource.ts";
import { CHANNEL_SCHEME, readUint128, type Address, type ChannelConfig } from "./voucher.ts";

type Verified = { state: ChannelState } | { reason: string };
/** Of these the payload and the terms are sent. */
type Presented = Pick<PresentedPayment, "payload" | "terms" | "required">;

export class ChannelFacilitator {
  readonly #client: FacilitatorClient;

  constructor(client: FacilitatorClient) {
    this.#client = client;
  }

  /** `payload` replaces the payer's. */
  verify(
    { payload, terms, required }: Presented,
    own?: Record<string, unknown>,
  ): Promise<Verified> {
    const sent = payloadForFacilitator(own ? { ...payload, payload: own } : payload, required);
    return this.#verify(sent, terms);
  }

  async settle(
    { payload, terms, required }: Presented,
    own?: Record<string, unknown>,
  ): Promise<SettleResponse> {
    const sent = payloadForFacilitator(own ? { ...payload, payload: own } : payload, required);
    return this.#settle(sent, terms);
  }

  /** The receiver's own orders: claim, settle. Their terms name little but the network. */
  order(
    payload: Record<string, unknown>,
    { network, receiver, token }: { network: string; receiver: Address; token: Address },
  ): Promise<SettleResponse> {
    const terms = {
      scheme: CHANNEL_SCHEME,
      network: network as PaymentRequirements["network"],
      asset: token,
      amount: "0",
      payTo: receiver,
      maxTimeoutSeconds: 0,
      extra: {},
    };
    return this.#settle({ x402Version: 2, accepted: terms, payload }, terms);
  }

  /**
   * The state of a channel with a voucher: without a node of the seller's, a verification is the way to read it. A refund
   * request is verified because it may be for what is claimed already.
   */
  stateOf({ id, network, config, voucher }: Channel & Required<Pick<Channel, "voucher">>) {
    const terms: PaymentRequirements = {
      scheme: CHANNEL_SCHEME,
      network: network as PaymentRequirements["network"],
      asset: config.token,
      amount: "0",
      payTo: config.receiver,
      maxTimeoutSeconds: 60,
      extra: { receiverAuthorizer: config.receiverAuthorizer, withdrawDelay: config.withdrawDelay },
    };
    const payload = voucherPayload("refund", { id, config, ...voucher });
    return this.#verify({ x402Version: 2, accepted: terms, payload }, terms);
  }

  async #verify(...sent: Parameters<FacilitatorClient["verify"]>): Promise<Verified> {
    try {
      const { isValid, invalidReason, extra } = await this.#client.verify(...sent);
      const state = isValid ? readState(extra) : undefined;
      if (state) return { state };
      if (!isValid) return { reason: invalidReason ?? "invalid_payload" };
    } catch (error) {
      if (error instanceof VerifyError && error.invalidReason !== undefined)
        return { reason: error.invalidReason };
      throw asFault(error, 503, "The facilitator cannot be reached to verify the payment.");
    }
    throw asFault(undefined, 503, "The facilitator does not report the state of the channel.");
  }

  async #settle(...sent: Parameters<FacilitatorClient["settle"]>): Promise<SettleResponse> {
    try {
      return await this.#client.settle(...sent);
    } catch (error) {
      const refusal = refusalIn(error);
      if (refusal) return refusal;
      throw asFault(error, 502, UNKNOWN_OUTCOME);
    }
  }
}

interface VoucherParts {
  id: string;
  config: ChannelConfig;
  ceiling: string | bigint;
  signature: string;
}

export const voucherPayload = (
  type: "voucher" | "refund",
  { id: channelId, config: channelConfig, ceiling, signature }: VoucherParts,
): Record<string, unknown> => ({
  type,
  channelConfig,
  voucher: { channelId, maxClaimableAmount: String(ceiling), signature },
});

/** From `extra` of a verification, or its `channelState` of a settlement. */
export function readState(extra: unknown): ChannelState | undefined {
  if (!isRecord(extra)) return undefined;
  const { balance, totalClaimed, withdrawRequestedAt, refundNonce } = extra;
  const nonce = String(refundNonce);
  const withdrawal = Number(withdrawRequestedAt);
  if (readUint128(balance) === undefined || readUint128(totalClaimed) === undefined)
    return undefined;
  if (!Number.isSafeInteger(withdrawal) || withdrawal < 0 || !/^[0-9]{1,78}$/.test(nonce))
    return undefined;
  return {
    balance: String(balance),
    totalClaimed: String(totalClaimed),
    withdrawRequestedAt: withdrawal,
    refundNonce: nonce,
  };
}
