/**
 * The payer's half of `batch-settlement`, for an agent's wallet: a seller's offer, what is signed for a request, the proof
 * that carries it, and what the seller reports about the channel. Pure.
 */
import { hexToBytes, zeroAddress, type Address, type Hex } from "viem";
import type { Authorization, ChannelConfig } from "../../core/authorization.ts";
import { isRecord, parseAddress, quoted } from "../../core/foreign-text.ts";
import { checksummedAddress } from "../../core/keccak.ts";
import { parseAtomic } from "../../core/money.ts";
import type { NetworkFacts } from "../../core/networks.ts";
import { signatureOfKey } from "../../core/signatures.ts";
import {
  channelIdOf,
  CHANNELS,
  depositNonce,
  MAX_WITHDRAW_DELAY,
  MIN_WITHDRAW_DELAY,
  receiveDigest,
  voucherDigest,
} from "./contract.ts";
import { isBytes, readUint128, SCHEME } from "./reading.ts";

export { channelIdOf as channelIdAt, isWithdrawCall } from "./contract.ts";

/** Has what a choice among offers needs of a scheme. A voucher cannot be canceled. */
export const channelScheme = { name: SCHEME, isMetered: true } as const;

/** What a seller requests of a channel. */
interface ChannelOffer {
  readonly receiverAuthorizer: Address;
  readonly withdrawDelay: number;
  /** The seller refuses smaller deposits. */
  readonly minDepositAtomic: bigint;
}

/** With the account that would sign the vouchers. */
export interface PayableChannel extends ChannelOffer {
  readonly signer: Address;
}

const DEFAULT_DELAY = Number(MIN_WITHDRAW_DELAY);

/** The offer in `extra`, or why it cannot be paid. */
export function readOffer(
  extra: Readonly<Record<string, unknown>>,
  { usdc }: Pick<NetworkFacts, "usdc">,
): ChannelOffer | string {
  const { receiverAuthorizer, withdrawDelay, minDeposit, assetTransferMethod } = extra;
  if (assetTransferMethod !== undefined && assetTransferMethod !== "eip3009")
    return `deposits by ${quoted(assetTransferMethod)} are not supported`;
  for (const name of ["name", "version"] as const)
    if (extra[name] !== usdc[name]) return `${name} ${quoted(extra[name])} is not that of USDC`;
  const authorizer = parseAddress(receiverAuthorizer);
  if (!authorizer.ok || authorizer.address === zeroAddress)
    return `receiverAuthorizer ${quoted(receiverAuthorizer)} is not an address`;
  const delay = withdrawDelay ?? DEFAULT_DELAY;
  if (
    typeof delay !== "number" ||
    !Number.isInteger(delay) ||
    delay < MIN_WITHDRAW_DELAY ||
    delay > MAX_WITHDRAW_DELAY
  )
    return `withdrawDelay ${quoted(withdrawDelay)} is outside what the contract allows`;
  return {
    receiverAuthorizer: authorizer.address,
    withdrawDelay: delay,
    minDepositAtomic: readUint128(minDeposit) ?? 0n,
  };
}

/** What is signed for one request: the voucher, and a deposit if the channel has too little. */
export interface ChannelOrder {
  readonly chainId: number;
  readonly config: ChannelConfig;
  readonly ceiling: bigint;
  /** The highest ceiling signed before, with its voucher. Missing for the first. */
  readonly before?: { readonly ceiling: bigint; readonly voucher: Hex } | undefined;
  readonly deposit?:
    | { readonly amount: bigint; readonly validBefore: bigint; readonly salt: Hex }
    | undefined;
}

export interface ChannelSignatures {
  readonly voucher: Hex;
  readonly deposit: Hex | null;
}

/** A plain key signs the vouchers: the seller needs no chain to check them. */
export const configOf = (
  wallet: Address,
  payment: { receiver: Address; token: Address; signer: Address; salt: Hex } & Pick<
    ChannelOffer,
    "receiverAuthorizer" | "withdrawDelay"
  >,
): ChannelConfig => {
  return {
    payer: wallet.toLowerCase() as Address,
    payerAuthorizer: payment.signer,
    receiver: payment.receiver,
    receiverAuthorizer: payment.receiverAuthorizer,
    token: payment.token,
    withdrawDelay: payment.withdrawDelay,
    salt: payment.salt,
  };
};

const voucherBytes = (chainId: number, channelId: Hex, ceiling: bigint): Uint8Array =>
  hexToBytes(voucherDigest(chainId, channelId, ceiling));

export const voucherDigestOf = ({ chainId, config, ceiling }: ChannelOrder): Uint8Array =>
  voucherBytes(chainId, channelIdOf(chainId, config), ceiling);

/** The voucher in its canonical form, if the channel's own key signed this ceiling. */
export const ownVoucher = (
  { chainId, config }: Pick<ChannelOrder, "chainId" | "config">,
  { ceiling, voucher }: { ceiling: bigint; voucher: string },
): Hex | undefined =>
  signatureOfKey(
    voucherBytes(chainId, channelIdOf(chainId, config), ceiling),
    voucher,
    config.payerAuthorizer,
  );

/** How much more the seller may claim with this voucher than before. */
export function growthOf({ ceiling, before }: ChannelOrder): bigint {
  const from = before?.ceiling ?? 0n;
  return ceiling > from ? ceiling - from : 0n;
}

/** The deposit as the engine watches it. */
export function depositOf({ chainId, config, deposit }: ChannelOrder): Authorization | undefined {
  if (!deposit) return undefined;
  const channelId = channelIdOf(chainId, config);
  return {
    chainId,
    asset: config.token,
    from: config.payer,
    to: CHANNELS.toLowerCase() as Address,
    value: deposit.amount,
    validAfter: 0n,
    validBefore: deposit.validBefore,
    nonce: `channel:${depositNonce(channelId, deposit.salt)}`,
    terms: { scheme: "channel-eip3009", channelId, config, salt: deposit.salt },
  };
}

/** The deposit that the engine watches, as it was ordered. */
export const depositIn = ({ value, validBefore, terms }: Authorization): ChannelOrder["deposit"] =>
  terms?.scheme === "channel-eip3009"
    ? { amount: value, validBefore, salt: terms.salt }
    : undefined;

/** The digest with the token's domain from our own table. */
export const depositDigestOf = (
  { usdc, chainId }: Pick<NetworkFacts, "usdc" | "chainId">,
  { from, value, validAfter, validBefore, nonce }: Authorization,
): Uint8Array =>
  hexToBytes(
    receiveDigest({
      domain: {
        name: usdc.name,
        version: usdc.version,
        chainId,
        verifyingContract: usdc.address,
      },
      from,
      value,
      validAfter,
      validBefore,
      nonce: nonce.slice(-66) as Hex,
    }),
  );

const partsOf = ({ chainId, config, ceiling }: ChannelOrder, signature: Hex) => ({
  channelConfig: {
    ...config,
    payer: checksummedAddress(config.payer),
    payerAuthorizer: checksummedAddress(config.payerAuthorizer),
    receiver: checksummedAddress(config.receiver),
    receiverAuthorizer: checksummedAddress(config.receiverAuthorizer),
    token: checksummedAddress(config.token),
  },
  voucher: {
    channelId: channelIdOf(chainId, config),
    maxClaimableAmount: String(ceiling),
    signature,
  },
});

/** Asks for all that is left; the ceiling is what the seller has charged. */
export const refundPayload = (order: ChannelOrder, voucher: Hex): object => ({
  type: "refund",
  ...partsOf(order, voucher),
});

/** The `payload` of the proof for a seller. */
export function payloadOf(order: ChannelOrder, signed: ChannelSignatures): object {
  const { deposit } = order;
  const parts = partsOf(order, signed.voucher);
  if (!deposit || !signed.deposit) return { type: "voucher", ...parts };
  const erc3009Authorization = {
    validAfter: "0",
    validBefore: String(deposit.validBefore),
    salt: deposit.salt,
    signature: signed.deposit,
  };
  return {
    type: "deposit",
    ...parts,
    deposit: { amount: String(deposit.amount), authorization: { erc3009Authorization } },
  };
}

/** What the seller reports after a request: its charge, or why its report breaks the rules. */
export type Report =
  | { readonly kind: "charged"; readonly amount: bigint }
  | { readonly kind: "broken"; readonly why: string }
  /** The report says that the payment failed, or there is none. */
  | { readonly kind: "none" };

/**
 * A report counts only within the rules: at most the price, for this channel, and a total that is ours plus the charge.
 * `paymentResponse` is what the seller wrote.
 */
export function readReport(
  paymentResponse: unknown,
  {
    channelId,
    priceAtomic,
    chargedBefore,
  }: {
    channelId: Hex;
    priceAtomic: bigint;
    chargedBefore: bigint;
  },
): Report {
  if (!isRecord(paymentResponse) || paymentResponse["success"] !== true) return { kind: "none" };
  const extra = isRecord(paymentResponse["extra"]) ? paymentResponse["extra"] : {};
  const state = isRecord(extra["channelState"]) ? extra["channelState"] : {};
  const broken = (why: string): Report => ({ kind: "broken", why });
  const { channelId: named, chargedCumulativeAmount: total } = state;
  if (named !== undefined && (typeof named !== "string" || named.toLowerCase() !== channelId))
    return broken("it names another channel");
  if (extra["chargedAmount"] === undefined && total === undefined) return { kind: "none" };
  const amount =
    extra["chargedAmount"] === undefined
      ? (parseAtomic(total) ?? -1n) - chargedBefore
      : parseAtomic(extra["chargedAmount"]);
  if (amount === undefined || amount < 0n) return broken("the charge is not an amount");
  if (amount > priceAtomic) return broken("the charge is above the price");
  if (total !== undefined && parseAtomic(total) !== chargedBefore + amount)
    return broken("the total is not the sum of the charges");
  return { kind: "charged", amount };
}

/**
 * A seller's statement of a channel, in a 402 that refuses a voucher because the totals differ. Amounts are decimal strings,
 * because it is stored as JSON.
 */
export interface Correction {
  readonly total: string;
  /** The voucher that it shows as the evidence. */
  readonly signed?: { readonly ceiling: string; readonly voucher: string };
}

const CORRECTIONS = new Set([
  "invalid_batch_settlement_evm_cumulative_amount_mismatch",
  "invalid_batch_settlement_evm_cumulative_below_claimed",
]);

/** Undefined if the refusal is about something else, or says nothing of this channel. */
export function readCorrection(
  offer: {
    error: string | undefined;
    accepts: readonly { scheme: string; extra: Readonly<Record<string, unknown>> }[];
  },
  channelId: Hex,
): Correction | undefined {
  if (offer.error === undefined || !CORRECTIONS.has(offer.error)) return undefined;
  for (const { scheme, extra } of offer.accepts) {
    const { channelState: state, voucherState } = extra;
    if (scheme !== SCHEME || !isRecord(state)) continue;
    const { channelId: named, chargedCumulativeAmount, totalClaimed } = state;
    if (typeof named !== "string" || named.toLowerCase() !== channelId) continue;
    const total = readUint128(chargedCumulativeAmount ?? totalClaimed);
    if (total === undefined) continue;
    const shown = isRecord(voucherState) ? voucherState : {};
    const ceiling = readUint128(shown["signedMaxClaimable"]);
    const voucher = shown["signature"];
    return {
      total: String(total),
      ...(ceiling !== undefined &&
        isBytes(voucher) && { signed: { ceiling: String(ceiling), voucher } }),
    };
  }
  return undefined;
}
