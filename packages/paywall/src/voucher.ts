/**
 * What a payer sends to pay through a channel (x402's scheme `batch-settlement`): a voucher, alone or with a deposit, or
 * the request for a refund. Only its form and its signature are judged here.
 */
import type { PaymentRequirements } from "@x402/core/types";
import {
  BATCH_SETTLEMENT_ADDRESS,
  BATCH_SETTLEMENT_DOMAIN,
  BATCH_SETTLEMENT_SCHEME,
  claimBatchTypes,
  refundTypes,
  voucherTypes,
} from "@x402/evm";
import { computeChannelId } from "@x402/evm/batch-settlement/client";
import { hashTypedData, recoverAddress } from "viem";
import { isRecord } from "./foreign-json.ts";

export type Hex = `0x${string}`;
/** An account. */
export type Address = Hex;

export const CHANNEL_SCHEME: string = BATCH_SETTLEMENT_SCHEME;
export const NO_ADDRESS: Address = "0x0000000000000000000000000000000000000000";

/** The channel's terms, which its id is the hash of. */
export interface ChannelConfig {
  payer: Address;
  /** Signs vouchers; zero: the payer itself does, as its code or its key decides. */
  payerAuthorizer: Address;
  receiver: Address;
  receiverAuthorizer: Address;
  token: Address;
  /** Seconds. */
  withdrawDelay: number;
  salt: Hex;
}

export interface Voucher {
  type: "deposit" | "voucher" | "refund";
  /** Lower case. */
  id: Hex;
  config: ChannelConfig;
  /** The most that the receiver may claim from the channel in all. */
  ceiling: bigint;
  signature: Hex;
  /** Of a refund: undefined for all that is left. */
  amount: unknown;
  /** Atomic units that come with it. */
  deposited: bigint;
}

/** The protocol's reason codes. */
export const reason = (name: string): string => `invalid_batch_settlement_evm_${name}`;

const ADDRESS = /^0x[0-9a-fA-F]{40}$/;
const WORD = /^0x[0-9a-fA-F]{64}$/;
/** Signatures of contract accounts may be longer than 65 bytes. */
const SIGNATURE = /^0x(?:[0-9a-fA-F]{2}){65,4096}$/;
const UINT = /^(0|[1-9][0-9]{0,38})$/;
const UINT128 = 2n ** 128n;

export const isAddress = (text: unknown): text is Address =>
  typeof text === "string" && ADDRESS.test(text);

/** Undefined where it is no amount of a channel. */
export function readUint128(text: unknown): bigint | undefined {
  if (typeof text !== "string" || !UINT.test(text)) return undefined;
  const value = BigInt(text);
  return value < UINT128 ? value : undefined;
}

/** The payload of a payment; or the reason why it is none. */
export function readVoucher(payload: Record<string, unknown>): Voucher | string {
  const { type, channelConfig, voucher, amount, deposit } = payload;
  if (type !== "deposit" && type !== "voucher" && type !== "refund") return reason("payload_type");
  if (!isRecord(voucher) || !isConfig(channelConfig)) return "invalid_payload";
  const { channelId, maxClaimableAmount, signature } = voucher;
  const ceiling = readUint128(maxClaimableAmount);
  const deposited = type === "deposit" && isRecord(deposit) ? readUint128(deposit["amount"]) : 0n;
  if (typeof channelId !== "string" || !WORD.test(channelId)) return reason("channel_id_invalid");
  if (ceiling === undefined || deposited === undefined) return "invalid_payload";
  if (typeof signature !== "string" || !SIGNATURE.test(signature))
    return reason("voucher_signature");
  const { payer, payerAuthorizer, receiver, receiverAuthorizer, token, withdrawDelay, salt } =
    channelConfig;
  const config = {
    payer,
    payerAuthorizer,
    receiver,
    receiverAuthorizer,
    token,
    withdrawDelay,
    salt,
  };
  return {
    type,
    id: channelId.toLowerCase() as Hex,
    config,
    ceiling,
    signature: signature.toLowerCase() as Hex,
    amount,
    deposited,
  };
}

function isConfig(value: unknown): value is ChannelConfig {
  if (!isRecord(value)) return false;
  const { withdrawDelay, salt } = value;
  const addresses = ["payer", "payerAuthorizer", "receiver", "receiverAuthorizer", "token"];
  return (
    addresses.every((name) => isAddress(value[name])) &&
    typeof withdrawDelay === "number" &&
    Number.isInteger(withdrawDelay) &&
    withdrawDelay >= 0 &&
    withdrawDelay < 2 ** 40 &&
    typeof salt === "string" &&
    WORD.test(salt)
  );
}

const isSame = (one: unknown, other: unknown): boolean =>
  String(one).toLowerCase() === String(other).toLowerCase();

/** `known`: the config that is stored for this id, which saves the hash. */
export function whyNotForTerms(
  { id, config }: Voucher,
  { network, payTo, asset, extra }: PaymentRequirements,
  known: ChannelConfig | undefined,
): string | undefined {
  const isBound = known
    ? Object.entries(known).every(([name, value]) =>
        isSame(config[name as keyof typeof config], value),
      )
    : computeChannelId(config, network).toLowerCase() === id;
  if (!isBound) return reason("channel_id_mismatch");
  if (!isSame(config.receiver, payTo)) return reason("receiver_mismatch");
  if (!isSame(config.receiverAuthorizer, extra["receiverAuthorizer"]))
    return reason("receiver_authorizer_mismatch");
  if (!isSame(config.token, asset)) return reason("token_mismatch");
  return config.withdrawDelay === extra["withdrawDelay"]
    ? undefined
    : reason("withdraw_delay_mismatch");
}

const domainOf = (network: string) =>
  ({
    ...BATCH_SETTLEMENT_DOMAIN,
    chainId: Number(network.replace("eip155:", "")),
    verifyingContract: BATCH_SETTLEMENT_ADDRESS,
  }) as const;

const HALF_ORDER = 0x7fffffffffffffffffffffffffffffff5d576e7357a4501ddfe92f46681b20a0n;

/** The contract takes 65 bytes with a low `s` and no other recovery id; another form could never be claimed. */
const isClaimable = (signature: Hex): boolean =>
  signature.length === 132 &&
  BigInt(`0x${signature.slice(66, 130)}`) <= HALF_ORDER &&
  /1[bc]$/.test(signature);

/** Whether a plain key signed it. Only for channels with a payer's authorizer. */
export async function isSigned(
  { id, config, ceiling, signature }: Voucher,
  network: string,
): Promise<boolean> {
  if (!isClaimable(signature)) return false;
  const hash = hashTypedData({
    domain: domainOf(network),
    types: voucherTypes,
    primaryType: "Voucher",
    message: { channelId: id, maxClaimableAmount: ceiling },
  });
  const signer = await recoverAddress({ hash, signature }).catch(() => undefined);
  return signer !== undefined && isSame(signer, config.payerAuthorizer);
}

export interface ClaimRow {
  id: Hex;
  ceiling: string;
  /** What is claimed of it, with what was claimed before. */
  total: string;
}

/** What a receiver's authorizer signs to claim vouchers. */
export const claimBatchOf = (network: string, rows: readonly ClaimRow[]) =>
  ({
    domain: domainOf(network),
    types: claimBatchTypes,
    primaryType: "ClaimBatch",
    message: {
      claims: rows.map(({ id, ceiling, total }) => ({
        channelId: id,
        maxClaimableAmount: BigInt(ceiling),
        totalClaimed: BigInt(total),
      })),
    },
  }) as const;

/** What a receiver's authorizer signs to give money back. */
export const refundOf = (network: string, id: Hex, nonce: string, amount: bigint) =>
  ({
    domain: domainOf(network),
    types: refundTypes,
    primaryType: "Refund",
    message: { channelId: id, nonce: BigInt(nonce), amount },
  }) as const;
