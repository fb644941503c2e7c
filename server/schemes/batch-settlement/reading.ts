/**
 * Reads what is posted for payment channels: a deposit, a voucher or a refund of a payer, and a claim, settle or refund
 * of a receiver. Pure, in the reference implementation's order, so that the reason codes agree.
 */
import type { Address, Hex } from "viem";
import { zeroAddress } from "viem";
import type { ChannelClaim, ChannelConfig } from "../../core/authorization.ts";
import { isRecord, parseAddress, plainText } from "../../core/foreign-text.ts";
import { checksummedAddress } from "../../core/keccak.ts";
import { parseAtomic } from "../../core/money.ts";
import type { NetworkFacts } from "../../core/networks.ts";
import {
  checksummed,
  invalid,
  readNetwork,
  readSellerTerms,
  refuse,
  splitPayload,
  type PresentedParts,
  type Refusal,
  type SellerTerms,
} from "../scheme.ts";
import { channelIdOf, MAX_WITHDRAW_DELAY, MIN_WITHDRAW_DELAY } from "./contract.ts";

export const SCHEME = "batch-settlement";

export interface Channel {
  /** Lower case. */
  readonly id: Hex;
  readonly config: ChannelConfig;
  /** Checksummed, for the response. */
  readonly payer: Address;
}

interface Common {
  readonly network: NetworkFacts;
  readonly networkName: string;
}

/** What a payer signs for each request: the most that the receiver may claim from the channel in all. */
export interface Voucher extends Common {
  readonly type: "deposit" | "voucher" | "refund";
  readonly channel: Channel;
  readonly ceiling: bigint;
  readonly signature: string;
  readonly required: SellerTerms;
  readonly parts: PresentedParts;
}

export interface Claim extends Common {
  readonly type: "claim";
  readonly claims: readonly [ChannelClaim, ...ChannelClaim[]];
  /** The receiver's authorizer signed all of them. Undefined: we are to sign. */
  readonly signature: Hex | undefined;
}

export interface SettleOrder extends Common {
  readonly type: "settle";
  readonly receiver: Address;
  readonly token: Address;
}

export interface Refund extends Common {
  readonly type: "completed refund";
  readonly channel: Channel;
  readonly amount: bigint;
  readonly nonce: bigint;
  readonly claims: readonly ChannelClaim[];
  readonly claimSignature: Hex | undefined;
  /** Undefined: we are to sign. */
  readonly signature: Hex | undefined;
}

type Read<Request> = Request | Refusal;

/** A request is for channels if the seller names the scheme. */
export const isForChannels = (body: unknown): boolean =>
  isRecord(body) &&
  isRecord(body["paymentRequirements"]) &&
  body["paymentRequirements"]["scheme"] === SCHEME;

const MAX_CLAIMS = 100;
const UINT128 = 2n ** 128n;

/** The payer of the payload, as far as it is readable. */
function payerOfChannel({ payload }: Pick<PresentedParts, "payload">): Address | undefined {
  const { channelConfig } = payload;
  return isRecord(channelConfig) ? checksummed(channelConfig["payer"]) : undefined;
}

function readCommon(
  body: unknown,
  networks: readonly NetworkFacts[],
): Read<Common & { parts: PresentedParts }> {
  const parts = splitPayload(body);
  if ("reason" in parts) return parts;
  if (parts.version !== 2) return refuse("unsupported_scheme");
  if (parts.accepted["scheme"] !== SCHEME) return refuse("invalid_batch_settlement_evm_scheme");
  const reasonMismatch = "invalid_batch_settlement_evm_network_mismatch";
  const agreed = readNetwork(parts, networks, { payer: undefined, reasonMismatch });
  return "reason" in agreed ? agreed : { ...agreed, parts };
}

/** What a verify checks: everything that a payer signs. */
export function readVoucher(body: unknown, networks: readonly NetworkFacts[]): Read<Voucher> {
  const common = readCommon(body, networks);
  if ("reason" in common) return common;
  const { parts, network, networkName } = common;
  const { type } = parts.payload;
  if (type !== "deposit" && type !== "voucher" && type !== "refund")
    return refuse("invalid_batch_settlement_evm_payload_type");
  const payer = payerOfChannel(parts);
  const config = readConfig(parts.payload["channelConfig"]);
  if (typeof config === "string") return invalid(`payload.channelConfig${config}`, payer);
  const { voucher } = parts.payload;
  if (!isRecord(voucher)) return invalid("payload.voucher must be an object.", payer);
  const ceiling = readUint128(voucher["maxClaimableAmount"]);
  if (ceiling === undefined)
    return invalid("voucher.maxClaimableAmount must be a decimal string of a uint128.", payer);
  const { signature } = voucher;
  if (typeof signature !== "string") return invalid("voucher.signature must be a string.", payer);
  const required = readSellerTerms(parts, payer, true);
  if ("reason" in required) return required;
  const channel = channelOf(network, config);
  const refused = checkConfig(parts, channel, { id: voucher["channelId"], required });
  return refused ?? { type, network, networkName, channel, ceiling, signature, required, parts };
}

const channelOf = (network: NetworkFacts, config: ChannelConfig): Channel => ({
  id: channelIdOf(network.chainId, config),
  config,
  payer: checksummedAddress(config.payer),
});

function checkConfig(
  { requirements }: PresentedParts,
  { id, config, payer }: Channel,
  { id: named, required }: { id: unknown; required: SellerTerms },
): Refusal | undefined {
  const wrong = (what: Wrong): Refusal => refuse(`invalid_batch_settlement_evm_${what}`, payer);
  if (!isSame(named, id)) return wrong("channel_id_mismatch");
  if (config.receiver !== required.payTo) return wrong("receiver_mismatch");
  const extra = isRecord(requirements["extra"]) ? requirements["extra"] : {};
  const { receiverAuthorizer: authorizer, withdrawDelay } = extra;
  if (config.receiverAuthorizer === zeroAddress || !isSame(authorizer, config.receiverAuthorizer))
    return wrong("receiver_authorizer_mismatch");
  if (config.token !== required.asset) return wrong("token_mismatch");
  if (withdrawDelay !== undefined && plainText(withdrawDelay) !== String(config.withdrawDelay))
    return wrong("withdraw_delay_mismatch");
  const delay = BigInt(config.withdrawDelay);
  return delay < MIN_WITHDRAW_DELAY || delay > MAX_WITHDRAW_DELAY
    ? wrong("withdraw_delay_out_of_range")
    : undefined;
}
type Wrong =
  | "channel_id_mismatch"
  | "receiver_mismatch"
  | "receiver_authorizer_mismatch"
  | "token_mismatch"
  | "withdraw_delay_mismatch"
  | "withdraw_delay_out_of_range";

const isSame = (one: unknown, other: string): boolean =>
  typeof one === "string" && one.toLowerCase() === other;

/** What a receiver has settled, beside the deposits of payers. Its requirements name only network and scheme. */
export function readOrder(
  body: unknown,
  networks: readonly NetworkFacts[],
): Read<Claim | SettleOrder | Refund> {
  const common = readCommon(body, networks);
  if ("reason" in common) return common;
  const { parts, network, networkName } = common;
  const { payload } = parts;
  const own = { network, networkName };
  if (payload["type"] === "claim") {
    const { claims } = payload;
    const read = readClaims(claims);
    if (typeof read === "string") return invalid(`payload.claims${read}`);
    const [first, ...rest] = read;
    if (!first) return invalid("payload.claims must not be empty.");
    const signature = readBytes(payload["claimAuthorizerSignature"]);
    if (signature === "wrong") return invalid("payload.claimAuthorizerSignature must be hex.");
    return { type: "claim", ...own, claims: [first, ...rest], signature };
  }
  if (payload["type"] === "settle") {
    const receiver = parseAddress(payload["receiver"]);
    if (!receiver.ok) return invalid(`payload.receiver ${receiver.reason}.`);
    const token = parseAddress(payload["token"]);
    if (!token.ok) return invalid(`payload.token ${token.reason}.`);
    return { type: "settle", ...own, receiver: receiver.address, token: token.address };
  }
  const { voucher } = payload;
  const isCompleted =
    ["amount", "refundNonce", "claims"].every((name) => name in payload) &&
    isRecord(voucher) &&
    ["channelId", "maxClaimableAmount", "signature"].every((name) => name in voucher);
  if (payload["type"] !== "refund" || !isCompleted)
    return refuse("invalid_batch_settlement_evm_payload_type", payerOfChannel(parts));
  return readRefund(parts, own);
}

function readRefund(parts: PresentedParts, own: Common): Read<Refund> {
  const { payload } = parts;
  const payer = payerOfChannel(parts);
  const config = readConfig(payload["channelConfig"]);
  if (typeof config === "string") return invalid(`payload.channelConfig${config}`, payer);
  const channel = channelOf(own.network, config);
  const { voucher } = payload;
  if (isRecord(voucher) && !isSame(voucher["channelId"], channel.id))
    return refuse("invalid_batch_settlement_evm_channel_id_mismatch", payer);
  const amount = readUint128(payload["amount"]);
  const nonce = parseAtomic(payload["refundNonce"]);
  if (amount === undefined || amount === 0n || nonce === undefined)
    return invalid(
      "payload.amount and refundNonce must be decimal strings; the amount above zero.",
      payer,
    );
  const claims = readClaims(payload["claims"]);
  if (typeof claims === "string") return invalid(`payload.claims${claims}`, payer);
  const signature = readBytes(payload["refundAuthorizerSignature"]);
  const claimSignature = readBytes(payload["claimAuthorizerSignature"]);
  if (signature === "wrong" || claimSignature === "wrong")
    return invalid("The authorizer's signatures must be hex.", payer);
  return {
    type: "completed refund",
    ...own,
    channel,
    amount,
    nonce,
    claims,
    claimSignature,
    signature,
  };
}

/** A text says what is wrong, to be written behind the field's name. */
function readConfig(fields: unknown): ChannelConfig | string {
  if (!isRecord(fields)) return " must be an object.";
  const addresses: Partial<Record<string, Address>> = {};
  for (const name of ADDRESSES) {
    const parsed = parseAddress(fields[name]);
    // Zero is a choice of the payer (it signs the vouchers itself), and has its own code where it is none.
    const isZero = name.endsWith("Authorizer") && fields[name] === zeroAddress;
    if (!parsed.ok && !isZero) return `.${name} ${parsed.reason}.`;
    addresses[name] = parsed.ok ? parsed.address : zeroAddress;
  }
  const { withdrawDelay, salt } = fields;
  if (!isWithdrawDelay(withdrawDelay)) return ".withdrawDelay must be a number of seconds.";
  if (!isWord(salt)) return ".salt must be 0x and 64 hexadecimal digits.";
  return {
    ...(addresses as Record<(typeof ADDRESSES)[number], Address>),
    withdrawDelay,
    salt: salt.toLowerCase() as Hex,
  };
}
const ADDRESSES = ["payer", "payerAuthorizer", "receiver", "receiverAuthorizer", "token"] as const;

const UINT40 = 2 ** 40;
const isWithdrawDelay = (value: unknown): value is number =>
  typeof value === "number" && Number.isInteger(value) && value >= 0 && value < UINT40;

export const isWord = (value: unknown): value is Hex =>
  typeof value === "string" && /^0x[0-9a-fA-F]{64}$/.test(value);

function readClaims(list: unknown): ChannelClaim[] | string {
  if (!Array.isArray(list)) return " must be a list.";
  if (list.length > MAX_CLAIMS) return ` must be at most ${MAX_CLAIMS}.`;
  const claims: ChannelClaim[] = [];
  for (const [index, row] of list.entries()) {
    const at = `[${index}]`;
    if (!isRecord(row) || !isRecord(row["voucher"])) return `${at} must have a voucher.`;
    const channel = readConfig(row["voucher"]["channel"]);
    if (typeof channel === "string") return `${at}.voucher.channel${channel}`;
    const ceiling = readUint128(row["voucher"]["maxClaimableAmount"]);
    const total = readUint128(row["totalClaimed"]);
    const signature = readBytes(row["signature"]);
    if (ceiling === undefined || total === undefined)
      return `${at} must have its amounts as decimal strings of a uint128.`;
    if (signature === undefined || signature === "wrong") return `${at}.signature must be hex.`;
    claims.push({ channel, ceiling: `${ceiling}`, total: `${total}`, signature });
  }
  return claims;
}

/** Amounts of the contract. */
export function readUint128(value: unknown): bigint | undefined {
  const read = parseAtomic(value);
  return read !== undefined && read < UINT128 ? read : undefined;
}

/** Bounded: a wallet's own signature may be long. */
const MAX_SIGNATURE_CHARS = 8_000;

/** A signature that a claim can carry. */
export const isBytes = (value: unknown): value is Hex =>
  typeof value === "string" &&
  value.length <= MAX_SIGNATURE_CHARS &&
  /^0x([0-9a-fA-F]{2})+$/.test(value);

function readBytes(value: unknown): Hex | "wrong" | undefined {
  if (value === undefined || value === "0x") return undefined;
  return isBytes(value) ? (value.toLowerCase() as Hex) : "wrong";
}
