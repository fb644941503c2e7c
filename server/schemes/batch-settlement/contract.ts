/**
 * The channel contract of x402's scheme `batch-settlement`: its addresses, calls and events, and what its users sign.
 * The digests of every request are encoded by hand; a test compares them with viem's.
 */
import {
  encodeAbiParameters,
  encodeFunctionData,
  getAbiItem,
  keccak256,
  parseAbi,
  parseAbiParameters,
  toBytes,
  toEventSelector,
  toFunctionSelector,
  type Address,
  type Hex,
} from "viem";
import {
  addressWord,
  selectorDigits,
  uintWord,
  type CallResult,
  type ContractCall,
  type RpcLog,
} from "../../core/abi.ts";
import type { ChannelConfig, ChannelClaim } from "../../core/authorization.ts";
import { keccak } from "../../core/keccak.ts";
import { separatorOf, type Domain } from "../../core/separators.ts";
import { LastKnown } from "../../core/shared-answers.ts";

export const CHANNELS: Address = "0x4020074e9dF2ce1deE5A9C1b5c3f541D02a10003";
export const EIP3009_COLLECTOR: Address = "0x4020806089470a89826cB9fB1f4059150b550004";
export const PERMIT2_COLLECTOR: Address = "0x4020425FAf3B746C082C2f942b4E5159887B0005";

/** Seconds, both included. */
export const MIN_WITHDRAW_DELAY = 900n;
export const MAX_WITHDRAW_DELAY = 2_592_000n;

export const ABI = parseAbi([
  "struct ChannelConfig { address payer; address payerAuthorizer; address receiver; address receiverAuthorizer; address token; uint40 withdrawDelay; bytes32 salt; }",
  "struct Voucher { ChannelConfig channel; uint128 maxClaimableAmount; }",
  "struct VoucherClaim { Voucher voucher; bytes signature; uint128 totalClaimed; }",
  "function deposit(ChannelConfig config, uint128 amount, address collector, bytes collectorData)",
  "function claimWithSignature(VoucherClaim[] claims, bytes authorizerSignature)",
  "function settle(address receiver, address token)",
  "function refundWithSignature(ChannelConfig config, uint128 amount, uint256 nonce, bytes authorizerSignature)",
  "function initiateWithdraw(ChannelConfig config, uint128 amount)",
  "function finalizeWithdraw(ChannelConfig config)",
  "function multicall(bytes[] data) returns (bytes[])",
  "event Deposited(bytes32 indexed channelId, address indexed sender, uint128 amount, uint128 newBalance)",
  "event Claimed(bytes32 indexed channelId, address indexed sender, uint128 amount, uint128 newTotalClaimed)",
  "event Settled(address indexed receiver, address indexed token, address indexed sender, uint128 amount)",
  "event Refunded(bytes32 indexed channelId, address indexed sender, uint128 amount)",
]);

export const DEPOSITED = toEventSelector("Deposited(bytes32,address,uint128,uint128)");
export const CLAIMED = toEventSelector("Claimed(bytes32,address,uint128,uint128)");
export const SETTLED = toEventSelector("Settled(address,address,address,uint128)");
export const WITHDRAW_BEGUN = toEventSelector("WithdrawInitiated(bytes32,uint128,uint40)");
export const WITHDRAWN = toEventSelector("WithdrawFinalized(bytes32,address,uint128)");
export const REFUNDED = toEventSelector("Refunded(bytes32,address,uint128)");

const hashed = (text: string): string => keccak256(toBytes(text)).slice(2);
const CONFIG_TYPE = hashed(
  "ChannelConfig(address payer,address payerAuthorizer,address receiver,address receiverAuthorizer,address token,uint40 withdrawDelay,bytes32 salt)",
);
const VOUCHER_TYPE = hashed("Voucher(bytes32 channelId,uint128 maxClaimableAmount)");
const REFUND_TYPE = hashed("Refund(bytes32 channelId,uint256 nonce,uint128 amount)");
const ENTRY = "ClaimEntry(bytes32 channelId,uint128 maxClaimableAmount,uint128 totalClaimed)";
const ENTRY_TYPE = hashed(ENTRY);
const BATCH_TYPE = hashed(`ClaimBatch(ClaimEntry[] claims)${ENTRY}`);
const RECEIVE_TYPE = hashed(
  "ReceiveWithAuthorization(address from,address to,uint256 value,uint256 validAfter,uint256 validBefore,bytes32 nonce)",
);
const WITNESS = "DepositWitness(bytes32 channelId)";
const PERMISSIONS = "TokenPermissions(address token,uint256 amount)";
const WITNESS_TYPE = hashed(WITNESS);
const PERMISSIONS_TYPE = hashed(PERMISSIONS);
const PERMIT_TYPE = hashed(
  `PermitWitnessTransferFrom(TokenPermissions permitted,address spender,uint256 nonce,uint256 deadline,DepositWitness witness)${WITNESS}${PERMISSIONS}`,
);

const hashOfWords = (words: string): string =>
  Buffer.from(keccak(Buffer.from(words, "hex"))).toString("hex");

/** The EIP-712 digest of a struct that is given as the words of its hash. */
const digestOf = (domain: Domain, words: string): Hex =>
  `0x${hashOfWords(`1901${separatorOf(domain).slice(2)}${hashOfWords(words)}`)}`;

const domainOf = (chainId: number): Domain => ({
  name: "x402 Batch Settlement",
  version: "1",
  chainId,
  verifyingContract: CHANNELS,
});

const configWords = (config: ChannelConfig): string =>
  addressWord(config.payer) +
  addressWord(config.payerAuthorizer) +
  addressWord(config.receiver) +
  addressWord(config.receiverAuthorizer) +
  addressWord(config.token) +
  uintWord(config.withdrawDelay) +
  config.salt.slice(2);

/** A cache: a channel's id is needed for each of its vouchers. */
const ids = new LastKnown<Hex>(4_096);

/** Lower case. It names the chain and the contract, too. */
export function channelIdOf(chainId: number, config: ChannelConfig): Hex {
  const words = configWords(config);
  const key = `${chainId} ${words}`;
  return ids.get(key) ?? ids.keep(key, digestOf(domainOf(chainId), CONFIG_TYPE + words));
}

export const voucherDigest = (chainId: number, channelId: Hex, ceiling: bigint): Hex =>
  digestOf(domainOf(chainId), VOUCHER_TYPE + channelId.slice(2) + uintWord(ceiling));

export const refundDigest = (
  chainId: number,
  { channelId, nonce, amount }: { channelId: Hex; nonce: bigint; amount: bigint },
): Hex =>
  digestOf(
    domainOf(chainId),
    REFUND_TYPE + channelId.slice(2) + uintWord(nonce) + uintWord(amount),
  );

export function claimDigest(chainId: number, claims: readonly ChannelClaim[]): Hex {
  const entries = claims.map((claim) =>
    hashOfWords(
      ENTRY_TYPE +
        channelIdOf(chainId, claim.channel).slice(2) +
        uintWord(BigInt(claim.ceiling)) +
        uintWord(BigInt(claim.total)),
    ),
  );
  return digestOf(domainOf(chainId), BATCH_TYPE + hashOfWords(entries.join("")));
}

// Deposits. Both kinds name the channel in what the payer signs, so the money can go nowhere else.

interface ReceiveTerms {
  readonly domain: Domain;
  readonly from: Address;
  readonly value: bigint;
  readonly validAfter: bigint;
  readonly validBefore: bigint;
  readonly nonce: Hex;
}

export const receiveDigest = (terms: ReceiveTerms): Hex =>
  digestOf(
    terms.domain,
    RECEIVE_TYPE +
      addressWord(terms.from) +
      addressWord(EIP3009_COLLECTOR) +
      uintWord(terms.value) +
      uintWord(terms.validAfter) +
      uintWord(terms.validBefore) +
      terms.nonce.slice(2),
  );

/** The token's nonce of a deposit over EIP-3009. */
export const depositNonce = (channelId: Hex, salt: Hex): Hex =>
  `0x${hashOfWords(channelId.slice(2) + salt.slice(2))}`;

export const permitDigest = (
  domain: Domain,
  terms: { channelId: Hex; token: Address; amount: bigint; nonce: bigint; deadline: bigint },
): Hex =>
  digestOf(
    domain,
    PERMIT_TYPE +
      hashOfWords(PERMISSIONS_TYPE + addressWord(terms.token) + uintWord(terms.amount)) +
      addressWord(PERMIT2_COLLECTOR) +
      uintWord(terms.nonce) +
      uintWord(terms.deadline) +
      hashOfWords(WITNESS_TYPE + terms.channelId.slice(2)),
  );

/** How the contract takes the money of a deposit. */
export interface Collector {
  readonly address: Address;
  readonly data: Hex;
}

export const eip3009Collector = (signed: {
  validAfter: bigint;
  validBefore: bigint;
  salt: Hex;
  signature: Hex;
}): Collector => ({
  address: EIP3009_COLLECTOR,
  data: encodeAbiParameters(parseAbiParameters("uint256, uint256, uint256, bytes"), [
    signed.validAfter,
    signed.validBefore,
    BigInt(signed.salt),
    signed.signature,
  ]),
});

export const permit2Collector = (signed: {
  nonce: bigint;
  deadline: bigint;
  signature: Hex;
  permit: { amount: string; deadline: string; signature: Hex } | undefined;
}): Collector => ({
  address: PERMIT2_COLLECTOR,
  data: encodeAbiParameters(parseAbiParameters("uint256, uint256, bytes, bytes"), [
    signed.nonce,
    signed.deadline,
    signed.signature,
    signed.permit ? permitData(signed.permit) : "0x",
  ]),
});

const permitData = (permit: { amount: string; deadline: string; signature: Hex }): Hex =>
  encodeAbiParameters(parseAbiParameters("uint256, uint256, uint8, bytes32, bytes32"), [
    BigInt(permit.amount),
    BigInt(permit.deadline),
    Number.parseInt(permit.signature.slice(130), 16),
    permit.signature.slice(0, 66) as Hex,
    `0x${permit.signature.slice(66, 130)}`,
  ]);

// Calls.

const callOf = (data: Hex): ContractCall => ({ target: CHANNELS.toLowerCase(), data });

export const depositCall = (
  config: ChannelConfig,
  amount: bigint,
  collector: Collector,
): ContractCall =>
  callOf(
    encodeFunctionData({
      abi: ABI,
      functionName: "deposit",
      args: [config, amount, collector.address, collector.data],
    }),
  );

const claimData = (claims: readonly ChannelClaim[], signature: Hex): Hex =>
  encodeFunctionData({
    abi: ABI,
    functionName: "claimWithSignature",
    args: [
      claims.map(({ channel, ceiling, total, signature: voucher }) => ({
        voucher: { channel: channel, maxClaimableAmount: BigInt(ceiling) },
        signature: voucher,
        totalClaimed: BigInt(total),
      })),
      signature,
    ],
  });

export const claimCall = (claims: readonly ChannelClaim[], signature: Hex): ContractCall =>
  callOf(claimData(claims, signature));

export const settleCall = (receiver: Address, token: Address): ContractCall =>
  callOf(encodeFunctionData({ abi: ABI, functionName: "settle", args: [receiver, token] }));

/** With claims, both happen or neither. */
export function refundCall(refund: {
  config: ChannelConfig;
  amount: bigint;
  nonce: bigint;
  signature: Hex;
  claims: readonly ChannelClaim[];
  claimSignature: Hex | undefined;
}): ContractCall {
  const { config, amount, nonce, signature, claims, claimSignature } = refund;
  const data = encodeFunctionData({
    abi: ABI,
    functionName: "refundWithSignature",
    args: [config, amount, nonce, signature],
  });
  if (claims.length === 0 || claimSignature === undefined) return callOf(data);
  return callOf(
    encodeFunctionData({
      abi: ABI,
      functionName: "multicall",
      args: [[claimData(claims, claimSignature), data]],
    }),
  );
}

export const beginWithdrawCall = (config: ChannelConfig, amount: bigint): ContractCall =>
  callOf(
    encodeFunctionData({ abi: ABI, functionName: "initiateWithdraw", args: [config, amount] }),
  );

export const finishWithdrawCall = (config: ChannelConfig): ContractCall =>
  callOf(encodeFunctionData({ abi: ABI, functionName: "finalizeWithdraw", args: [config] }));

const WITHDRAW_SELECTORS = ["initiateWithdraw", "finalizeWithdraw"].map((name) =>
  toFunctionSelector(getAbiItem({ abi: ABI, name: name as "finalizeWithdraw" })),
);

/** A call of the payer's side that moves money only to the payer. */
export const isWithdrawCall = ({ to, data }: { to: string; data: Hex }): boolean =>
  to.toLowerCase() === CHANNELS.toLowerCase() &&
  WITHDRAW_SELECTORS.some((selector) => data.startsWith(selector));

// State.

const CHANNEL = selectorDigits("channels(bytes32)");
const PENDING = selectorDigits("pendingWithdrawals(bytes32)");
const REFUND_NONCE = selectorDigits("refundNonce(bytes32)");
const RECEIVER = selectorDigits("receivers(address,address)");

export const channelCall = (channelId: Hex): ContractCall =>
  callOf(`0x${CHANNEL}${channelId.slice(2)}`);
export const refundNonceCall = (channelId: Hex): ContractCall =>
  callOf(`0x${REFUND_NONCE}${channelId.slice(2)}`);
export const receiverCall = (receiver: string, token: string): ContractCall =>
  callOf(`0x${RECEIVER}${addressWord(receiver)}${addressWord(token)}`);

/** What the chain says about a channel. */
export interface ChannelState {
  readonly balance: bigint;
  readonly totalClaimed: bigint;
  /** In seconds; 0 while no withdrawal is pending. */
  readonly withdrawRequestedAt: bigint;
  readonly refundNonce: bigint;
}

/** The amount of a withdrawal that was begun, and when; zeros if there is none. */
export const pendingCall = (channelId: Hex): ContractCall =>
  callOf(`0x${PENDING}${channelId.slice(2)}`);

export const stateCalls = (channelId: Hex): ContractCall[] => [
  channelCall(channelId),
  pendingCall(channelId),
  refundNonceCall(channelId),
];

/** Two words; undefined if the contract did not answer so, for example where it is not deployed. */
export function pairOf(result: CallResult | undefined): readonly [bigint, bigint] | undefined {
  if (result?.success !== true || !/^0x[0-9a-f]{128}$/i.test(result.data)) return undefined;
  return [BigInt(result.data.slice(0, 66)), BigInt(`0x${result.data.slice(66)}`)];
}

export function readState(results: readonly CallResult[]): ChannelState | undefined {
  const channel = pairOf(results[0]);
  const pending = pairOf(results[1]);
  const nonce = results[2];
  if (!channel || !pending || nonce?.success !== true || nonce.data.length !== 66) return undefined;
  return {
    balance: channel[0],
    totalClaimed: channel[1],
    withdrawRequestedAt: pending[1],
    refundNonce: BigInt(nonce.data),
  };
}

// Events.

const isOfContract = (log: RpcLog): boolean => log.address.toLowerCase() === CHANNELS.toLowerCase();

/** The events of one kind whose first argument is this, with their data words. */
export function eventsOf(
  logs: readonly RpcLog[],
  event: Hex,
  first: string,
): { log: RpcLog; words: bigint[] }[] {
  return logs.flatMap((log) => {
    if (!isOfContract(log) || log.topics[0] !== event) return [];
    if (log.topics[1]?.toLowerCase() !== first.toLowerCase()) return [];
    const words = (log.data.slice(2).match(/.{64}/g) ?? []).map((word) => BigInt(`0x${word}`));
    return [{ log, words }];
  });
}

/** What a transaction paid out of channels to their payers, by channel. */
export function payoutsIn(logs: readonly RpcLog[]): Map<string, bigint> {
  const payouts = new Map<string, bigint>();
  for (const log of logs) {
    const [event, id] = log.topics;
    if (!isOfContract(log) || (event !== REFUNDED && event !== WITHDRAWN) || !id) continue;
    const channelId = id.toLowerCase();
    payouts.set(channelId, (payouts.get(channelId) ?? 0n) + BigInt(log.data));
  }
  return payouts;
}

/** The contract's errors, as `infra/chain/errors.ts` shows them. */
const custom = (signature: string): string => `custom error ${toFunctionSelector(signature)}`;
const ERRORS = new Map(
  [
    "InvalidChannel()",
    "ZeroDeposit()",
    "DepositOverflow()",
    "InvalidSignature()",
    "NotReceiverAuthorizer()",
    "ClaimExceedsCeiling()",
    "ClaimExceedsBalance()",
    "WithdrawDelayOutOfRange()",
    "EmptyBatch()",
    "DepositCollectionFailed()",
    "InvalidCollector()",
    "InvalidRefundNonce()",
    "ZeroRefund()",
    "OnlyX402BatchSettlement()",
    "Permit2612AmountMismatch()",
    "ECDSAInvalidSignature()",
    "InvalidNonce()",
    "InvalidSigner()",
    "NothingToWithdraw()",
    "WithdrawalAlreadyPending()",
    "WithdrawAmountExceedsAvailable()",
    "WithdrawalNotPending()",
    "WithdrawDelayNotElapsed()",
  ].map((signature) => [custom(signature), signature.slice(0, -2)]),
);

/** The name of the contract's error, where it is one of them. */
export const errorName = (text: string | undefined): string | undefined =>
  text === undefined ? undefined : (ERRORS.get(text) ?? text);
