/** From a signed authorization to its end: show it to the seller, confirm it on chain, or take it back. */
import type { SignedAuthorization } from "../../core/authorization.ts";
import { inProgress } from "../payments/idempotency.ts";
import type { Delivered, PaymentKey } from "../payments/pay.ts";
import type { PaymentRow } from "../payments/store.ts";
import {
  contentMembers,
  neverPaidError,
  paidBody,
  unknownError,
  untrusted,
  type PaidFacts,
} from "./answers.ts";
import { readTerms, type Offer, type OfferedTerms } from "./offer.ts";
import { proofHeaders, readReceipt, showProof, type Shown } from "./proof.ts";
import type { ClientDeps, FetchCaller, PaymentTerms, TargetRequest } from "./request.ts";
import { ApiError, type ErrorCode } from "../../errors.ts";
import { formatAtomic } from "../../core/money.ts";
import type { CancelOutcome } from "../settlement/types.ts";

interface SignedJob {
  key: PaymentKey;
  target: TargetRequest;
  offer: Pick<Offer, "x402Version" | "resource" | "extensions">;
  accepted: OfferedTerms;
  authorization: SignedAuthorization;
  facts: Omit<PaidFacts, "txHash">;
  remainingAtomic: bigint;
  /** Another request may ask for this answer again. */
  hasKey: boolean;
  listingId: string | undefined;
}

/** The second showing of one authorization gets less time than the first. */
const SECOND_TRY_MS = 10_000;
/** Beyond all the waits a request may make after it reserved: then its process has died. */
const ABANDONED_AFTER_MS = 5_000;

export async function deliver(deps: ClientDeps, job: SignedJob): Promise<Delivered> {
  const proof = proofHeaders({
    offer: job.offer,
    terms: job.accepted,
    authorization: job.authorization,
    paymentId: job.key.paymentId,
  });
  const show = (target: TargetRequest) => showProof((request) => deps.ask(request), target, proof);
  let shown = await show(job.target);
  // The same authorization cannot pay twice, so showing it again is safe; a clear no is not asked again.
  if (shown.kind === "failed" && (shown.how === "timeout" || shown.how === "broken"))
    shown = await show({
      ...job.target,
      timeoutMs: Math.min(job.target.timeoutMs, SECOND_TRY_MS),
    });
  await deps.fault("answered");
  return shown.kind === "delivered"
    ? confirm(deps, job, shown.response)
    : takeBack(deps, job, shown);
}

/** A payment that an earlier request signed: the same proof is shown once more. */
export async function resumeDelivery(
  deps: ClientDeps,
  args: { target: TargetRequest; caller: FetchCaller; payment: PaymentRow },
): Promise<Delivered> {
  const { target, caller, payment } = args;
  const { id: paymentId, amountAtomic, counterparty: payTo } = payment;
  if (payment.status === "voided") return { kind: "failed", error: neverPaidError(paymentId) };
  const terms = payment.requirement as PaymentTerms;
  const settlement = await deps.settlement.find(paymentId);
  const accepted = readTerms(terms.accepted, terms.x402Version);
  if (!settlement || !accepted || payTo === null) throw inProgress(paymentId);
  return deliver(deps, {
    key: { agentId: caller.id, paymentId },
    target,
    offer: { ...terms, resource: terms.resource, extensions: undefined },
    accepted,
    authorization: settlement.authorization,
    facts: { network: deps.networkOf(Number(payment.chainId)), payTo, amountAtomic, paymentId },
    remainingAtomic: await deps.remainingOf(caller.id),
    hasKey: true,
    listingId: undefined,
  });
}

/**
 * Whether the request that made this payment has ended without an answer to keep. What the target did
 * is written after the answer is kept, or after "unknown" was its end; without it only time can tell.
 */
export function isOver(
  payment: Pick<PaymentRow, "delivered" | "ageSeconds">,
  target: Pick<TargetRequest, "timeoutMs">,
  settleWaitMs: number,
): boolean {
  const longestMs =
    target.timeoutMs +
    Math.min(target.timeoutMs, SECOND_TRY_MS) +
    settleWaitMs +
    ABANDONED_AFTER_MS;
  return payment.delivered !== null || payment.ageSeconds * 1000 > longestMs;
}

/** What the seller says about the payment only tells where to look: the chain decides. */
async function confirm(
  deps: ClientDeps,
  job: SignedJob,
  response: Extract<Shown, { kind: "delivered" }>["response"],
): Promise<Delivered> {
  const { key, target, hasKey, listingId } = job;
  const seen = { upstreamStatus: response.status, delivered: true };
  const record = (): Promise<void> => deps.recordDelivery(key, seen);
  const [outcome] = await Promise.all([
    // The receipt only says where to look.
    deps.settlement.wait(key.paymentId, deps.settleWaitMs, {
      look: true,
      txHash: readReceipt(response.headers).txHash,
    }),
    // With a key it is written last: see isOver.
    hasKey ? undefined : record(),
  ]);
  await deps.fault("confirmed");
  const recordLast = async (): Promise<void> => {
    if (hasKey) await record();
  };
  if (outcome.status === "pending")
    return {
      kind: "unknown",
      error: unknownError(
        key.paymentId,
        "The target delivered, but has not collected its payment",
        {
          delivered: true,
          ...contentMembers(target, response),
        },
      ),
      afterwards: recordLast,
    };
  // Failed or expired: the target delivered, and provably cannot collect any more.
  const txHash = outcome.status === "settled" ? outcome.txHash : null;
  return {
    kind: "done",
    body: paidBody(target, response, { ...job.facts, txHash }, job.remainingAtomic),
    afterwards: async () => {
      await recordLast();
      if (listingId !== undefined) countUse(deps, listingId);
    },
  };
}

async function takeBack(
  deps: ClientDeps,
  { key, authorization, facts }: SignedJob,
  failure: Extract<Shown, { kind: "failed" }>,
): Promise<Delivered> {
  const recovered = await recover(deps, { key, authorization, facts, failure });
  await deps.fault("confirmed");
  const seen = { upstreamStatus: failure.response?.status ?? null, delivered: false };
  return { ...recovered, afterwards: () => deps.recordDelivery(key, seen) };
}

/** Beside the answer: a counter is worth no waiting and no failure. */
function countUse(deps: ClientDeps, listingId: string): void {
  deps.listings
    .countUse(listingId)
    .catch((error: unknown) =>
      deps.log.warn({ err: error, listingId }, "use of a listing not counted"),
    );
}

/**
 * The seller failed after the proof went out. Whether it was paid is the chain's to say: if the
 * authorization is unused it is canceled there, so that the budget returns and the seller cannot
 * collect later; if it was used, the agent hears that it paid for nothing.
 */

interface FailedPayment {
  key: PaymentKey;
  authorization: SignedAuthorization;
  facts: Omit<PaidFacts, "txHash">;
  failure: Extract<Shown, { kind: "failed" }>;
}

export async function recover(
  deps: Pick<ClientDeps, "settlement" | "signCancel" | "settleWaitMs" | "log">,
  failed: FailedPayment,
): Promise<Exclude<Delivered, { kind: "done" }>> {
  const { key, failure } = failed;
  const outcome = await cancel(deps, failed);
  switch (outcome.status) {
    case "settled":
      return { kind: "failed", error: paidForNothing(failed, outcome.txHash) };
    case "canceled":
    case "expired":
      return { kind: "failed", error: nothingPaid(failed) };
    case "lapsing":
      return {
        kind: "unknown",
        error: unknownError(
          key.paymentId,
          `${failure.why}. Its payee has let several payments of yours lapse, so this one is not canceled either: the budget returns by itself once the authorization has run out`,
          { budgetReturnsAt: outcome.until.toISOString() },
        ),
      };
    default:
      return { kind: "unknown", error: unknownError(key.paymentId, failure.why) };
  }
}

async function cancel(
  deps: Pick<ClientDeps, "settlement" | "signCancel" | "settleWaitMs" | "log">,
  { key, authorization }: FailedPayment,
): Promise<CancelOutcome> {
  const { chainId, asset, from, nonce } = authorization;
  try {
    const cancelSignature = await deps.signCancel(key.agentId, { chainId, asset, nonce });
    return await deps.settlement.requestCancel({
      key: { chainId, asset, from, nonce },
      cancelSignature,
      timeoutMs: deps.settleWaitMs,
    });
  } catch (error) {
    // Not canceled now; the authorization expires soon, and the engine watches it until then.
    deps.log.warn({ err: error, ...key }, "authorization not canceled");
    return { status: "pending" };
  }
}

function paidForNothing({ facts, failure }: FailedPayment, txHash: string): ApiError {
  const amountPaid = formatAtomic(facts.amountAtomic);
  return new ApiError("paid_upstream_failed", {
    detail: `${failure.why}, but the payment of ${amountPaid} USDC settled. Do not pay again; contact the seller with the transaction hash.`,
    extra: { ...outline({ facts, failure }), paid: true, amountPaid, txHash },
  });
}

function nothingPaid({ facts, failure }: FailedPayment): ApiError {
  const codes: Record<typeof failure.how, ErrorCode> = {
    refused: "settlement_failed",
    timeout: "upstream_timeout",
    rejected: "upstream_error",
    broken: "upstream_error",
  };
  const reason = failure.response && readReceipt(failure.response.headers).reason;
  return new ApiError(codes[failure.how], {
    detail: `${failure.why}. Nothing was paid: the authorization was never used and is worthless now, and the budget is free again.`,
    extra: {
      ...outline({ facts, failure }),
      paid: false,
      amountPaid: "0",
      txHash: null,
      ...(reason === undefined ? {} : untrusted({ reason })),
    },
  });
}

const outline = ({ facts, failure }: Pick<FailedPayment, "facts" | "failure">) => ({
  paymentId: facts.paymentId,
  network: facts.network,
  payTo: facts.payTo,
  delivered: false,
  upstreamStatus: failure.response?.status ?? null,
});
