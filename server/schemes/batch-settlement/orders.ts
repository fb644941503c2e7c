/**
 * What a facilitator sends for the receiver of channels, handled by the engine like a payment: a claim (accounting
 * only), a settle (the transfer of what was claimed) and a refund. Each may be sent by anybody, so the contract's state
 * decides whether it happened, no matter who sent it.
 */
import { addressTopic, type CallResult } from "../../core/abi.ts";
import type { AuthorizationRef, SchemeTerms } from "../../core/authorization.ts";
import { MEASURED_WITHDRAWAL_GAS, withMargin } from "../../core/channel-gas.ts";
import type { ExpectedTransfer, Reason, Relaying } from "../scheme.ts";
import {
  CHANNELS,
  channelCall,
  CLAIMED,
  claimCall,
  errorName,
  eventsOf,
  pairOf,
  receiverCall,
  beginWithdrawCall,
  finishWithdrawCall,
  pendingCall,
  REFUNDED,
  refundCall,
  refundNonceCall,
  SETTLED,
  settleCall,
  WITHDRAW_BEGUN,
  WITHDRAWN,
} from "./contract.ts";
import { termsOf } from "./deposit.ts";
import { zeroAddress, type Address } from "viem";

/** Upper bounds with plain keys. A row of a claim has about 600 bytes of calldata, which the engine adds. */
const CLAIM_GAS = 60_000n;
const ROW_GAS = 45_000n;
const SETTLE_GAS = 120_000n;
const REFUND_GAS = 120_000n;
const explained =
  (reason: Reason, what: string): Relaying["explainRevert"] =>
  (text) => {
    const name = errorName(text);
    return {
      reason,
      message: `The ${what} fails on chain.${name === undefined ? "" : ` (${name.slice(0, 200)})`}`,
      isOfState: name === "InvalidRefundNonce",
    };
  };

const lastWord = (result: CallResult | undefined): bigint | undefined => pairOf(result)?.[1];

/** No signature of it runs code of third parties: all its vouchers are of plain keys. */
const isOfPlainKeys = (claims: readonly { channel: { payerAuthorizer: Address } }[]): boolean =>
  claims.every(({ channel }) => channel.payerAuthorizer !== zeroAddress);

export const claim: Relaying = {
  planTransfer(order) {
    const { claims } = termsOf(order, "channel-claim");
    return {
      calls: () => [claimCall(claims, order.signature)],
      isPlainKey: isOfPlainKeys(claims),
      deployment: undefined,
      keyGas: CLAIM_GAS,
      moreGas: ROW_GAS * BigInt(claims.length),
    };
  },
  payeeOf: ({ from }) => from,
  stateCall: (ref) => channelCall(termsOf(ref, "channel-claim").lead.channelId),
  isEnded: (ref, answer) => atLeast(lastWord(answer), termsOf(ref, "channel-claim").lead.total),
  outcomeIn({ logs }, expected) {
    const { channelId, total } = termsOf(expected, "channel-claim").lead;
    const isClaimed = eventsOf(logs, CLAIMED, channelId).some(
      ({ words: [, newTotal] }) => atLeast(newTotal, total) === true,
    );
    return isClaimed ? "paid" : "untouched";
  },
  isNamedInLogs: true,
  traceOf: () => undefined,
  endFilter: (expected) => ({
    address: CHANNELS,
    topics: [[CLAIMED], termsOf(expected, "channel-claim").lead.channelId],
  }),
  isOrder: true,
  explainRevert: explained("invalid_batch_settlement_evm_claim_transaction_failed", "claim"),
  reasonUsed: "invalid_batch_settlement_evm_claim_transaction_failed",
  reasonExpired: "invalid_batch_settlement_evm_claim_transaction_failed",
};

const atLeast = (value: bigint | undefined, wanted: string): boolean | undefined =>
  value === undefined ? undefined : value >= BigInt(wanted);

const settledIn = (
  { logs }: Parameters<Relaying["outcomeIn"]>[0],
  { from, asset }: ExpectedTransfer,
): bigint | undefined =>
  eventsOf(logs, SETTLED, addressTopic(from)).find(
    ({ log }) => log.topics[2]?.toLowerCase() === addressTopic(asset),
  )?.words[0];

export const settle: Relaying = {
  planTransfer: ({ from, asset }) => ({
    calls: () => [settleCall(from, asset)],
    isPlainKey: true,
    deployment: undefined,
    keyGas: SETTLE_GAS,
  }),
  payeeOf: ({ from }) => from,
  stateCall: ({ from, asset }) => receiverCall(from, asset),
  isEnded: (ref, answer) => atLeast(lastWord(answer), termsOf(ref, "channel-settle").claimed),
  // A settle pays all that was claimed by then, so any later one has settled what was wanted.
  outcomeIn: (shown, expected) => (settledIn(shown, expected) === undefined ? "untouched" : "paid"),
  chargedIn: settledIn,
  isNamedInLogs: true,
  traceOf: ({ from, asset }) => `settle ${from} ${asset}`.toLowerCase(),
  endFilter: ({ from, asset }) => ({
    address: CHANNELS,
    topics: [[SETTLED], addressTopic(from), addressTopic(asset)],
  }),
  isOrder: true,
  explainRevert: explained("invalid_batch_settlement_evm_settle_transaction_failed", "settle"),
  reasonUsed: "invalid_batch_settlement_evm_settle_transaction_failed",
  reasonExpired: "invalid_batch_settlement_evm_settle_transaction_failed",
};

const refundedIn = (
  { logs }: Parameters<Relaying["outcomeIn"]>[0],
  expected: ExpectedTransfer,
): bigint | undefined =>
  eventsOf(logs, REFUNDED, termsOf(expected, "channel-refund").channelId)[0]?.words[0];

export const refund: Relaying = {
  planTransfer(order) {
    const terms = termsOf(order, "channel-refund");
    const { config, claims, claimSignature } = terms;
    const nonce = BigInt(terms.refundNonce);
    return {
      calls: () => [
        refundCall({
          config,
          amount: order.value,
          nonce,
          signature: order.signature,
          claims,
          claimSignature,
        }),
      ],
      isPlainKey: isOfPlainKeys(claims),
      deployment: undefined,
      keyGas: REFUND_GAS,
      moreGas: ROW_GAS * BigInt(claims.length),
    };
  },
  payeeOf: (order) => termsOf(order, "channel-refund").config.receiver,
  stateCall: (ref) => refundNonceCall(termsOf(ref, "channel-refund").channelId),
  isEnded: (ref, answer) =>
    answer.success && answer.data.length === 66
      ? BigInt(answer.data) > BigInt(termsOf(ref, "channel-refund").refundNonce)
      : undefined,
  outcomeIn: (shown, expected) =>
    refundedIn(shown, expected) === undefined ? "untouched" : "paid",
  chargedIn: refundedIn,
  // A refund that moved nothing leaves no log: the state shows in which block it was.
  isNamedInLogs: false,
  traceOf: (ref: AuthorizationRef) => `refund ${termsOf(ref, "channel-refund").channelId}`,
  endFilter: (expected) => ({
    address: CHANNELS,
    topics: [[REFUNDED], termsOf(expected, "channel-refund").channelId],
  }),
  isOrder: true,
  explainRevert: explained("invalid_batch_settlement_evm_refund_transaction_failed", "refund"),
  reasonUsed: "invalid_batch_settlement_evm_refund_transaction_failed",
  reasonExpired: "invalid_batch_settlement_evm_refund_transaction_failed",
};

type Withdrawal = Extract<SchemeTerms, { scheme: "channel-withdraw" }>;
const withdrawalOf = (of: { terms?: SchemeTerms | null | undefined }): Withdrawal =>
  termsOf(of, "channel-withdraw");

const withdrawnIn = (
  { logs }: Parameters<Relaying["outcomeIn"]>[0],
  expected: ExpectedTransfer,
): bigint | undefined => {
  const { step, channelId } = withdrawalOf(expected);
  return eventsOf(logs, step === "begin" ? WITHDRAW_BEGUN : WITHDRAWN, channelId)[0]?.words[0];
};

/** Of the payer's side. It begins a withdrawal, and finishes it when the channel's delay is over. */
export const withdraw: Relaying = {
  isOrder: true,
  planTransfer(order) {
    const { step, config, facilitator } = withdrawalOf(order);
    return {
      calls: () => [
        step === "begin" ? beginWithdrawCall(config, order.value) : finishWithdrawCall(config),
      ],
      isPlainKey: true,
      deployment: undefined,
      keyGas: withMargin(MEASURED_WITHDRAWAL_GAS[step]),
      sender: facilitator,
    };
  },
  payeeOf: ({ from }) => from,
  stateCall: (ref) => pendingCall(withdrawalOf(ref).channelId),
  isEnded: (ref, answer) => {
    const begunAt = lastWord(answer);
    if (begunAt === undefined) return undefined;
    return (withdrawalOf(ref).step === "begin") === (begunAt !== 0n);
  },
  outcomeIn: (shown, expected) =>
    withdrawnIn(shown, expected) === undefined ? "untouched" : "paid",
  chargedIn: withdrawnIn,
  isNamedInLogs: true,
  traceOf: () => undefined,
  endFilter: (expected) => {
    const { step, channelId } = withdrawalOf(expected);
    return {
      address: CHANNELS,
      topics: [[step === "begin" ? WITHDRAW_BEGUN : WITHDRAWN], channelId],
    };
  },
  explainRevert: (text) => {
    const name = errorName(text);
    return {
      reason: "unexpected_settle_error",
      message: `The withdrawal fails on chain.${name === undefined ? "" : ` (${name.slice(0, 200)})`}`,
      isOfState: true,
    };
  },
  reasonUsed: "unexpected_settle_error",
  reasonExpired: "unexpected_settle_error",
};
