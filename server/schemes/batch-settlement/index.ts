/**
 * Scheme `batch-settlement`, for the channels module: what is posted, what is signed, and what the contract does. Its
 * authorizations reach the engine like all others, by `schemes/index.ts`.
 */
export {
  channelCall,
  channelIdOf,
  CHANNELS,
  claimCall,
  claimDigest,
  errorName,
  pairOf,
  payoutsIn,
  readState,
  receiverCall,
  refundCall,
  refundDigest,
  settleCall,
  stateCalls,
  voucherDigest,
  type ChannelState,
} from "./contract.ts";
export { readDeposit, type DepositPayment } from "./deposit.ts";
export {
  isBytes,
  isForChannels,
  readOrder,
  readVoucher,
  SCHEME,
  type Claim,
  type Refund,
  type SettleOrder,
  type Voucher,
} from "./reading.ts";
