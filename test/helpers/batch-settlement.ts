// Payment channels (x402's scheme batch-settlement) as the published client, server and facilitator use them on chain.
import { randomBytes } from "node:crypto";
import {
  BATCH_SETTLEMENT_ADDRESS,
  BATCH_SETTLEMENT_DOMAIN,
  claimBatchTypes,
  ERC3009_DEPOSIT_COLLECTOR_ADDRESS,
  refundTypes,
  voucherTypes,
} from "@x402/evm";
import { computeChannelId } from "@x402/evm/batch-settlement/client";
import {
  encodeAbiParameters,
  keccak256,
  parseAbi,
  parseAbiParameters,
  toHex,
  type Address,
  type Hex,
  type TypedDataDefinition,
} from "viem";
import { STAND_INS } from "../../server/local/chain-contracts.ts";
import type { TestChain } from "./chain.ts";
import { PERMIT2 } from "./permit2.ts";

export const CHANNELS = BATCH_SETTLEMENT_ADDRESS;
export const ERC3009_COLLECTOR = ERC3009_DEPOSIT_COLLECTOR_ADDRESS;
/** The package does not export it; its client signs it as the spender. */
export const PERMIT2_COLLECTOR = STAND_INS.LocalPermit2DepositCollector;

/** What is published of the contract: the package has the functions, the source also events and errors. */
export const CHANNELS_ABI = parseAbi([
  "struct ChannelConfig { address payer; address payerAuthorizer; address receiver; address receiverAuthorizer; address token; uint40 withdrawDelay; bytes32 salt; }",
  "struct Voucher { ChannelConfig channel; uint128 maxClaimableAmount; }",
  "struct VoucherClaim { Voucher voucher; bytes signature; uint128 totalClaimed; }",
  "function deposit(ChannelConfig config, uint128 amount, address collector, bytes collectorData)",
  "function claim(VoucherClaim[] voucherClaims)",
  "function claimWithSignature(VoucherClaim[] voucherClaims, bytes authorizerSignature)",
  "function settle(address receiver, address token)",
  "function initiateWithdraw(ChannelConfig config, uint128 amount)",
  "function finalizeWithdraw(ChannelConfig config)",
  "function refund(ChannelConfig config, uint128 amount)",
  "function refundWithSignature(ChannelConfig config, uint128 amount, uint256 nonce, bytes receiverAuthorizerSignature)",
  "function multicall(bytes[] data) returns (bytes[] results)",
  "function channels(bytes32 channelId) view returns (uint128 balance, uint128 totalClaimed)",
  "function pendingWithdrawals(bytes32 channelId) view returns (uint128 amount, uint40 initiatedAt)",
  "function refundNonce(bytes32 channelId) view returns (uint256)",
  "function receivers(address receiver, address token) view returns (uint128 totalClaimed, uint128 totalSettled)",
  "function getChannelId(ChannelConfig config) view returns (bytes32)",
  "function getVoucherDigest(bytes32 channelId, uint128 maxClaimableAmount) view returns (bytes32)",
  "function getRefundDigest(bytes32 channelId, uint256 nonce, uint128 amount) view returns (bytes32)",
  "function getClaimBatchDigest(VoucherClaim[] voucherClaims) view returns (bytes32)",
  "function CHANNEL_CONFIG_TYPEHASH() view returns (bytes32)",
  "function VOUCHER_TYPEHASH() view returns (bytes32)",
  "function REFUND_TYPEHASH() view returns (bytes32)",
  "function CLAIM_ENTRY_TYPEHASH() view returns (bytes32)",
  "function CLAIM_BATCH_TYPEHASH() view returns (bytes32)",
  "function MIN_WITHDRAW_DELAY() view returns (uint40)",
  "function MAX_WITHDRAW_DELAY() view returns (uint40)",
  "function eip712Domain() view returns (bytes1 fields, string name, string version, uint256 chainId, address verifyingContract, bytes32 salt, uint256[] extensions)",
  "event ChannelCreated(bytes32 indexed channelId, ChannelConfig config)",
  "event ChannelClosed(bytes32 indexed channelId, ChannelConfig config)",
  "event Deposited(bytes32 indexed channelId, address indexed sender, uint128 amount, uint128 newBalance)",
  "event Claimed(bytes32 indexed channelId, address indexed sender, uint128 claimAmount, uint128 newTotalClaimed)",
  "event Settled(address indexed receiver, address indexed token, address indexed sender, uint128 amount)",
  "event Refunded(bytes32 indexed channelId, address indexed sender, uint128 amount)",
  "event WithdrawInitiated(bytes32 indexed channelId, uint128 amount, uint40 finalizeAfter)",
  "event WithdrawFinalized(bytes32 indexed channelId, address indexed sender, uint128 amount)",
  "error InvalidChannel()",
  "error ZeroDeposit()",
  "error DepositOverflow()",
  "error InvalidSignature()",
  "error NotReceiverAuthorizer()",
  "error NotAuthorizedToClaim()",
  "error NotAuthorizedToRefund()",
  "error ClaimExceedsCeiling()",
  "error ClaimExceedsBalance()",
  "error WithdrawalAlreadyPending()",
  "error WithdrawalNotPending()",
  "error NotAuthorizedToFinalizeWithdraw()",
  "error WithdrawDelayNotElapsed()",
  "error NothingToWithdraw()",
  "error WithdrawAmountExceedsAvailable()",
  "error WithdrawDelayOutOfRange()",
  "error EmptyBatch()",
  "error DepositCollectionFailed()",
  "error InvalidCollector()",
  "error InvalidRefundNonce()",
  "error ZeroRefund()",
  "error ReentrancyGuardReentrantCall()",
  "error ECDSAInvalidSignature()",
  "error ECDSAInvalidSignatureLength(uint256 length)",
  "error ECDSAInvalidSignatureS(bytes32 s)",
]);

export const COLLECTOR_ABI = parseAbi([
  "function x402BatchSettlement() view returns (address)",
  "function collect(address payer, address token, uint256 amount, bytes32 channelId, bytes collectorData)",
  "error OnlyX402BatchSettlement()",
]);
export const PERMIT2_COLLECTOR_ABI = parseAbi([
  "function PERMIT2() view returns (address)",
  "function DEPOSIT_WITNESS_TYPE_STRING() view returns (string)",
  "function DEPOSIT_WITNESS_TYPEHASH() view returns (bytes32)",
  "event EIP2612PermitFailedWithReason(address indexed token, address indexed owner, string reason)",
  "event EIP2612PermitFailedWithPanic(address indexed token, address indexed owner, uint256 errorCode)",
  "event EIP2612PermitFailedWithData(address indexed token, address indexed owner, bytes data)",
  "error Permit2612AmountMismatch()",
]);

export const RECEIVE_TYPES = {
  ReceiveWithAuthorization: [
    { name: "from", type: "address" },
    { name: "to", type: "address" },
    { name: "value", type: "uint256" },
    { name: "validAfter", type: "uint256" },
    { name: "validBefore", type: "uint256" },
    { name: "nonce", type: "bytes32" },
  ],
} as const;
export const PERMIT2_TYPES = {
  PermitWitnessTransferFrom: [
    { name: "permitted", type: "TokenPermissions" },
    { name: "spender", type: "address" },
    { name: "nonce", type: "uint256" },
    { name: "deadline", type: "uint256" },
    { name: "witness", type: "DepositWitness" },
  ],
  TokenPermissions: [
    { name: "token", type: "address" },
    { name: "amount", type: "uint256" },
  ],
  DepositWitness: [{ name: "channelId", type: "bytes32" }],
} as const;
/** Longer than any test's chain lives, however far its clock is set forward. */
const FAR = 2n ** 40n;

export type ChannelConfig = Parameters<typeof computeChannelId>[0];
type Signer = { signTypedData: (data: TypedDataDefinition) => Promise<Hex> };
type OnChain = Pick<TestChain, "chainId">;

export const channelIdOf = (chain: OnChain, config: ChannelConfig): Hex =>
  computeChannelId(config, chain.chainId);

export const randomSalt = (): Hex => toHex(randomBytes(32));

export const channelsDomain = (chain: OnChain) => ({
  ...BATCH_SETTLEMENT_DOMAIN,
  chainId: chain.chainId,
  verifyingContract: CHANNELS,
});

export const signVoucher = (
  chain: OnChain,
  signer: Signer,
  channelId: Hex,
  maxClaimableAmount: bigint,
): Promise<Hex> =>
  signer.signTypedData({
    domain: channelsDomain(chain),
    types: voucherTypes,
    primaryType: "Voucher",
    message: { channelId, maxClaimableAmount },
  });

export interface VoucherClaim {
  voucher: { channel: ChannelConfig; maxClaimableAmount: bigint };
  signature: Hex;
  totalClaimed: bigint;
}

export const signClaims = (
  chain: OnChain,
  authorizer: Signer,
  claims: readonly VoucherClaim[],
): Promise<Hex> =>
  authorizer.signTypedData({
    domain: channelsDomain(chain),
    types: claimBatchTypes,
    primaryType: "ClaimBatch",
    message: {
      claims: claims.map(({ voucher, totalClaimed }) => ({
        channelId: channelIdOf(chain, voucher.channel),
        maxClaimableAmount: voucher.maxClaimableAmount,
        totalClaimed,
      })),
    },
  });

export const signRefund = (
  chain: OnChain,
  authorizer: Signer,
  refund: { channelId: Hex; nonce: bigint; amount: bigint },
): Promise<Hex> =>
  authorizer.signTypedData({
    domain: channelsDomain(chain),
    types: refundTypes,
    primaryType: "Refund",
    message: refund,
  });

/** A signed deposit as arguments of `deposit`; what is `sent` may differ from what was signed. */
interface DepositOptions {
  salt?: Hex;
  validAfter?: bigint;
  validBefore?: bigint;
  sent?: { amount?: bigint; config?: ChannelConfig; salt?: Hex };
}
export type DepositArguments = readonly [ChannelConfig, bigint, Address, Hex];

export async function erc3009Deposit(
  chain: OnChain,
  owner: Signer,
  config: ChannelConfig,
  amount: bigint,
  options: DepositOptions = {},
): Promise<DepositArguments> {
  const { salt = randomSalt(), validAfter = 0n, validBefore = FAR, sent = {} } = options;
  const nonce = keccak256(
    encodeAbiParameters(parseAbiParameters("bytes32, uint256"), [
      channelIdOf(chain, config),
      BigInt(salt),
    ]),
  );
  const signature = await owner.signTypedData({
    domain: { name: "USDC", version: "2", chainId: chain.chainId, verifyingContract: config.token },
    types: RECEIVE_TYPES,
    primaryType: "ReceiveWithAuthorization",
    message: {
      from: config.payer,
      to: ERC3009_COLLECTOR,
      value: amount,
      validAfter,
      validBefore,
      nonce,
    },
  });
  const data = encodeAbiParameters(parseAbiParameters("uint256, uint256, uint256, bytes"), [
    validAfter,
    validBefore,
    BigInt(sent.salt ?? salt),
    signature,
  ]);
  return [sent.config ?? config, sent.amount ?? amount, ERC3009_COLLECTOR, data];
}

export async function permit2Deposit(
  chain: OnChain,
  owner: Signer,
  config: ChannelConfig,
  amount: bigint,
  { permit2612 = "0x", sent = {} }: Pick<DepositOptions, "sent"> & { permit2612?: Hex } = {},
): Promise<DepositArguments> {
  const nonce = BigInt(randomSalt());
  const signature = await owner.signTypedData({
    domain: { name: "Permit2", chainId: chain.chainId, verifyingContract: PERMIT2 },
    types: PERMIT2_TYPES,
    primaryType: "PermitWitnessTransferFrom",
    message: {
      permitted: { token: config.token, amount },
      spender: PERMIT2_COLLECTOR,
      nonce,
      deadline: FAR,
      witness: { channelId: channelIdOf(chain, config) },
    },
  });
  const data = encodeAbiParameters(parseAbiParameters("uint256, uint256, bytes, bytes"), [
    nonce,
    FAR,
    signature,
    permit2612,
  ]);
  return [sent.config ?? config, sent.amount ?? amount, PERMIT2_COLLECTOR, data];
}
