/**
 * A fetch that is paid through a payment channel: the voucher that is signed for it, and what the seller's answer means.
 * No transaction is waited for. What counts as spent is the growth of the signed ceiling, which was reserved; the seller's
 * report within the rules of the scheme says what it charged of that.
 */
import { formatAtomic } from "../../core/money.ts";
import { siteOf } from "../../core/site.ts";
import { ApiError, type ErrorCode } from "../../errors.ts";
import {
  configOf,
  readReport,
  type PayableChannel,
  type ChannelOrder,
} from "../../schemes/batch-settlement/paying.ts";
import type { ThroughChannel } from "../channels/wallet.ts";
import { inProgress, type Call, type PaymentResult } from "../payments/idempotency.ts";
import type { ChannelReservation } from "../payments/reserve.ts";
import { neverPaidError, paidBody, unknownError } from "./answers.ts";
import type { ChosenTerms } from "./choose.ts";
import { isBrokenOff, readReceipt, sellersAnswer, type UpstreamContent } from "./content.ts";
import type { ProofResponse } from "./deliver.ts";
import type { Confirmed, Job, SignedPayment } from "./job.ts";
import { busySecondsOf } from "./request.ts";

export type ChannelPayment = Extract<SignedPayment, { through: ThroughChannel }>;
type Failure = Extract<ProofResponse, { kind: "failed" }>;

/** Signs what was reserved, and stores it: from then on the seller may have it. */
export async function signForChannel(
  job: Job,
  call: Call,
  offer: PayableChannel,
  { reserved, chosen }: { reserved: ChannelReservation; chosen: ChosenTerms },
): Promise<ThroughChannel> {
  const { caller, target, deps } = job;
  const { agentId, paymentId, channel, validBeforeSeconds } = reserved;
  const { receiverAuthorizer, withdrawDelay, signer } = offer;
  const terms = { receiverAuthorizer, withdrawDelay, signer, salt: channel.salt };
  const ends = { receiver: chosen.payTo, token: chosen.asset };
  const order: ChannelOrder = {
    chainId: chosen.network.chainId,
    config: configOf(caller.walletAddress, { ...ends, ...terms }),
    ceiling: BigInt(channel.ceiling),
    ...(channel.voucher && {
      before: { ceiling: BigInt(channel.before), voucher: channel.voucher },
    }),
    ...(channel.deposit !== undefined && {
      deposit: {
        amount: BigInt(channel.deposit),
        validBefore: validBeforeSeconds,
        salt: deps.channels.newSalt(),
      },
    }),
  };
  const key = { agentId, paymentId };
  const signed = await deps.steps.signOrRelease(key, call, () =>
    deps.channels.sign(agentId, order, siteOf(target.url)),
  );
  const { depositId, openDepositId } = channel;
  await deps.steps.storeOrRelease(key, () =>
    deps.channels.accept(key, { order, signed, depositId }),
  );
  const unmade = order.deposit
    ? undefined
    : await deps.channels.unmadeDeposit(openDepositId, order);
  return {
    id: channel.id,
    order: unmade ? { ...order, deposit: unmade.deposit } : order,
    signed: unmade ? { ...signed, deposit: unmade.signature } : signed,
    chargedBefore: BigInt(channel.charged),
    balanceAtomic: BigInt(channel.balance) + BigInt(channel.deposit ?? "0"),
    priceAtomic: chosen.amountAtomic,
    depositId: depositId ?? (unmade && openDepositId),
  };
}

/**
 * The voucher of an earlier request with the key, whose answer was lost: the same voucher is shown again, so it pays once.
 * Throws if its outcome became known meanwhile, or another request uses the channel now.
 */
export async function shownBefore(
  job: Job,
  paymentId: string,
  wasDelivered: boolean,
): Promise<ThroughChannel | undefined> {
  const { channels } = job.deps;
  const key = { agentId: job.caller.id, paymentId };
  const found = await channels.find(key);
  if (!found) return undefined;
  const { chargedAtomic, undecided, closing, ...through } = found;
  if (undecided !== undefined)
    throw chargeNotKnown(paymentId, `${undecided} This may be one of them.`);
  // The response is stored, and only its answer is missing.
  if (chargedAtomic !== null && wasDelivered) return through;
  if (chargedAtomic === 0n) throw neverPaidError(paymentId);
  if (chargedAtomic !== null) throw answerLost(paymentId, chargedAtomic);
  if (closing) throw channelClosing(paymentId, closing.returnsAt);
  if (!(await channels.again(key, busySecondsOf(job.input, job.deps.settleWaitMs))))
    throw inProgress(paymentId);
  return through;
}

/** Undefined: the seller's total was ahead of ours, and we follow it. The request is to be made again. */
export async function confirmThroughChannel(
  job: Job,
  payment: ChannelPayment,
  response: ProofResponse,
): Promise<Confirmed | undefined> {
  const { depositId } = payment.through;
  const { channels } = job.deps;
  // The seller's side makes the deposit, whatever came of the request.
  if (depositId !== undefined)
    channels.followDeposit(depositId, response.seen && readReceipt(response.seen).txHash);
  if (response.kind === "delivered" && !isBrokenOff(response.seen))
    return delivered(job, payment, response.seen);
  const failure: Failure =
    response.kind === "failed"
      ? response
      : {
          kind: "failed",
          how: "broken",
          seen: response.seen,
          why: "The target broke off its response",
        };
  const { correction } = failure;
  if (correction && !job.hasCorrected) {
    job.hasCorrected = true;
    const { order, wasShown = false } = payment.through;
    if (await channels.correct(payment.key, { order, correction, wasShown })) return undefined;
  }
  return failed(payment, failure);
}

function delivered(job: Job, payment: ChannelPayment, seen: UpstreamContent): Confirmed {
  const { through, facts, key } = payment;
  const { id: channelId, chargedBefore, priceAtomic } = through;
  const report = readReport(seen.paymentResponse, { channelId, priceAtomic, chargedBefore });
  // Without a report the whole price counts as charged. A report that breaks the rules counts for nothing.
  const chargedAtomic = report.kind === "charged" ? report.amount : priceAtomic;
  const reason = report.kind === "broken" ? ("seller_broke_rules" as const) : null;
  if (report.kind === "broken")
    job.deps.log.warn({ ...key, channelId, why: report.why }, "a seller broke a channel's rules");
  const paid = {
    ...facts,
    task: job.input.task,
    amountAtomic: chargedAtomic,
    txHash: null,
    channel: members(through, chargedAtomic),
  };
  return {
    result: { kind: "done", body: paidBody(job.target, seen, paid, payment.remainingAtomic) },
    delivery: { upstreamStatus: seen.status, delivered: true },
    voucher: { chargedAtomic, isRefused: false, reason },
    payment: chargedAtomic > 0n ? "settled" : "none",
    seen,
  };
}

/**
 * A seller that refuses a request charges nothing for it. It keeps the voucher, so the ceiling stays spent; the next request
 * through the channel uses the same ceiling again.
 */
function failed(payment: ChannelPayment, failure: Failure): Confirmed {
  const { key, facts, through } = payment;
  const upstreamStatus = failure.seen?.status ?? null;
  const delivery = { upstreamStatus, delivered: false };
  const extra = {
    paymentId: key.paymentId,
    network: facts.network,
    payTo: facts.payTo,
    delivered: false,
    upstreamStatus,
    channel: members(through, 0n),
    ...sellersAnswer(failure.seen),
  };
  const result = failedResult(payment, failure, extra);
  // A refusal of a voucher that was shown before is about this showing: the first one may have been charged.
  const isRefused = result.kind === "failed" && through.wasShown !== true;
  const voucher = { chargedAtomic: null, isRefused, reason: null };
  return { result, delivery, voucher, payment: "none" };
}

function failedResult(
  { key, facts, through }: ChannelPayment,
  { how, why }: Failure,
  extra: Record<string, unknown>,
): PaymentResult {
  const price = formatAtomic(facts.amountAtomic);
  // It may have done the work, and charged it.
  if (how === "timeout" || how === "broken")
    return { kind: "unknown", error: unknownError(key.paymentId, why, extra) };
  if (through.wasShown === true)
    return { kind: "failed", error: chargeNotKnown(key.paymentId, `${why}. ${FIRST_LOST}`, extra) };
  const code: ErrorCode = how === "refused" ? "settlement_failed" : "upstream_error";
  const detail = `${why}. It charged nothing, but keeps a voucher for up to ${price} USDC: your next payment through this channel uses the same amount again.`;
  return {
    kind: "failed",
    error: new ApiError(code, {
      detail,
      extra: { ...extra, paid: false, amountPaid: "0", txHash: null, suggestion: KEPT },
    }),
  };
}

/** Unlike an authorization, a voucher cannot be canceled. */
const KEPT =
  "Nothing was charged, but what the voucher allows still counts as spent. `thirdParty` may say why the seller refused; retry with a new Idempotency-Key, or choose another seller.";

const FIRST_LOST =
  "The same voucher was shown to it before, that response was lost, and nothing shows whether it charged the request.";

/** The later answers of the seller showed that it charged a request whose answer was lost. */
const answerLost = (paymentId: string, chargedAtomic: bigint): ApiError =>
  new ApiError("paid_upstream_failed", {
    detail: `The response to this request was lost, and the seller has charged ${formatAtomic(chargedAtomic)} USDC for it. Do not pay again; contact the seller.`,
    extra: {
      paymentId,
      paid: true,
      amountPaid: formatAtomic(chargedAtomic),
      txHash: null,
      delivered: false,
      upstreamStatus: null,
    },
  });

/** Nobody can know whether the seller charged a request whose response was lost. */
const chargeNotKnown = (
  paymentId: string,
  why: string,
  extra: Record<string, unknown> = { delivered: false, upstreamStatus: null },
): ApiError =>
  new ApiError("charge_not_known", {
    detail: `${why} Do not pay again; contact the seller.`,
    extra: { ...extra, paymentId, txHash: null },
  });

/** The chain shows what was charged when the channel is closed, which the service looks at each minute. */
const LOOK_SECONDS = 60;
function channelClosing(paymentId: string, returnsAt: Date | null): ApiError {
  const waitSeconds = Math.ceil(((returnsAt?.getTime() ?? 0) - Date.now()) / 1_000);
  return new ApiError("idempotency_in_progress", {
    detail: `The payment channel of this request is being closed. Whether the seller charged the request is known when it is closed${returnsAt ? `, which is not before ${returnsAt.toISOString()}` : ""}. Retry with the same key then.`,
    headers: { "retry-after": String(Math.max(waitSeconds, 0) + LOOK_SECONDS) },
    extra: { paymentId },
  });
}

export const channelBusy = (paymentId: string | null): ApiError =>
  new ApiError("channel_busy", {
    headers: { "retry-after": "1" },
    extra: { channelBusyWith: paymentId },
  });

const members = ({ id, balanceAtomic, chargedBefore }: ThroughChannel, charged: bigint) => ({
  id,
  balance: formatAtomic(balanceAtomic),
  charged: formatAtomic(chargedBefore + charged),
});
