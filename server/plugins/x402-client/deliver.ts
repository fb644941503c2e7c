/**
 * From a signed authorization to its end: sends it to the seller (and retries only where that cannot pay twice), then
 * confirms the payment on chain or recovers the funds.
 */
import { notePaid } from "./free-response.ts";
import type { Hex } from "viem";
import type { SignedAuthorization } from "../../core/authorization.ts";
import { isRecord } from "../../core/foreign-text.ts";
import type { IdempotencyRef } from "../guardrails/types.ts";
import { inProgress } from "../payments/idempotency.ts";
import type { Delivered, PaymentKey } from "../payments/payment-plan.ts";
import type { PaymentRow } from "../payments/store.ts";
import {
  deliveredMembers,
  neverPaidError,
  paidBody,
  unknownError,
  type PaidFacts,
} from "./answers.ts";
import { evidenceOf, keepEvidence } from "./evidence.ts";
import {
  isBrokenOff,
  keptForm,
  readReceipt,
  storedContent,
  type UpstreamContent,
} from "./content.ts";
import { acceptedAgain, type Offer, type OfferedTerms } from "./offer.ts";
import { paymentSchemeOf } from "../../schemes/index.ts";
import { cancel, endOf, recoverFunds, returningAt } from "./recover-funds.ts";
import { proofHeaders, sendAtMostTwice, sendProof, type ProofResponse } from "./proof.ts";
import {
  isSafe,
  type ClientDeps,
  type FetchCaller,
  type PaymentTerms,
  type TargetRequest,
} from "./request.ts";

export interface SignedJob {
  key: PaymentKey;
  target: TargetRequest;
  offer: Pick<Offer, "x402Version" | "resource" | "extensions">;
  accepted: OfferedTerms;
  /** The seller's signed offer for these terms, if any. */
  offered?: unknown;
  /** When the request that pays began. */
  fromMs: number;
  authorization: SignedAuthorization;
  facts: Omit<PaidFacts, "txHash">;
  remainingAtomic: bigint;
  /** Another request may need this response again. */
  idempotency: IdempotencyRef | undefined;
  /** The site grants access by signature after a payment (`sign-in-with-x`), as far as known. */
  signsIn: boolean;
  /** Stores the seller's response while the chain is read; awaited before the response is returned. */
  noted?: Promise<void> | undefined;
  /** Runs after a paid response; a failure here does not affect it. */
  paid?: (seen: UpstreamContent) => Promise<void>;
}

/** The second attempt to send an authorization gets less time than the first. */
const SECOND_TRY_MS = 10_000;
/** Beyond all the waits that a request makes after it reserved: then its process has died. */
const ABANDONED_AFTER_MS = 5_000;

export async function deliver(deps: ClientDeps, job: SignedJob): Promise<Delivered> {
  const proof = proofHeaders({
    offer: job.offer,
    terms: job.accepted,
    authorization: job.authorization,
    paymentId: job.key.paymentId,
  });
  const show = (target: TargetRequest) => sendProof((request) => deps.send(request), target, proof);
  const shown = await sendAtMostTwice(show, job.target, SECOND_TRY_MS);
  await deps.fault("answered");
  // A later run that finishes this payment continues with the seller's response, and requests no other.
  const noted =
    shown.seen &&
    deps.flow
      .note(job.idempotency, { shown: { ...shown, seen: keptForm(shown.seen) } })
      .catch(notNoted(deps, job));
  return conclude(deps, { ...job, noted }, shown);
}

const notNoted =
  (deps: ClientDeps, { key }: SignedJob) =>
  (err: unknown) =>
    deps.log.warn({ err, ...key }, "a seller's response was not recorded");

function conclude(deps: ClientDeps, job: SignedJob, shown: ProofResponse): Promise<Delivered> {
  if (shown.kind === "failed") return takeBack(deps, job, shown);
  return isBrokenOff(shown.seen)
    ? endBrokenOff(deps, job, shown.seen)
    : confirm(deps, job, shown.seen);
}

/**
 * Finishes a payment that an earlier request signed. If that request stored the seller's response, it is used.
 * Without one, the same proof is sent once more if a repetition has no effect. A request that may have had an
 * effect is not sent again, and the chain decides the rest.
 */
export async function resumeDelivery(
  deps: ClientDeps,
  args: {
    target: TargetRequest;
    caller: FetchCaller;
    payment: PaymentRow;
    storedNote: unknown;
    /** The key of the request that made the payment, which may differ from the caller's. */
    idempotency: IdempotencyRef | undefined;
  },
): Promise<Delivered> {
  const { target, caller, payment, idempotency } = args;
  const { id: paymentId, amountAtomic, counterparty: payTo } = payment;
  const earlier = isRecord(args.storedNote)
    ? (args.storedNote["shown"] as ProofResponse | undefined)
    : undefined;
  if (payment.status === "voided" && !earlier)
    return { kind: "failed", error: neverPaidError(paymentId) };
  const terms = payment.requirement as PaymentTerms;
  const settlement = await deps.settlement.find(paymentId);
  const accepted = acceptedAgain(terms);
  if (!settlement || !accepted || payTo === null) throw inProgress(paymentId);
  const job: SignedJob = {
    key: { agentId: caller.id, paymentId },
    target,
    offer: { ...terms, resource: terms.resource, extensions: undefined },
    accepted,
    offered: terms.offered,
    // The first offer's extensions are not stored. The record of paid sites is only used where a seller offers
    // sign-in again.
    signsIn: !target.mcp,
    fromMs: payment.createdAt.getTime(),
    authorization: settlement.authorization,
    facts: { network: deps.networkOf(Number(payment.chainId)), payTo, amountAtomic, paymentId },
    remainingAtomic: await deps.remainingOf(caller.id),
    idempotency,
  };
  if (earlier)
    return conclude(
      deps,
      job,
      earlier.seen ? { ...earlier, seen: storedContent(earlier.seen) } : earlier,
    );
  if (isSafe(target)) return deliver(deps, job);
  return takeBack(deps, job, {
    kind: "failed",
    how: "broken",
    why: `The ${target.method} may have reached the target, but its response was lost. It is not sent again`,
  });
}

/**
 * Whether the request that made this payment has ended without storing a response. `delivered` is written after
 * the response is stored, or after the outcome "unknown"; without it only the elapsed time can show it.
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

/** The seller's report about the payment is only a hint: the chain decides. */
async function confirm(
  deps: ClientDeps,
  job: SignedJob,
  seen: UpstreamContent,
): Promise<Delivered> {
  const { key, idempotency } = job;
  const receipt = readReceipt(seen);
  const isForNothing = receipt.charged === 0n && paymentSchemeOf(job.authorization).isMetered;
  const [outcome] = await Promise.all([
    // The receipt only hints where to look, or that there is nothing to wait for.
    deps.settlement.wait(key.paymentId, isForNothing ? 0 : deps.settleWaitMs, {
      look: true,
      txHash: receipt.txHash,
    }),
    // With a key it is written last: see isOver.
    idempotency ? undefined : recordDelivered(deps, job, seen),
    job.noted,
  ]);
  await deps.fault("confirmed");
  if (outcome.status === "pending" && isForNothing) return handedOver(deps, job, seen, "uncharged");
  if (outcome.status === "pending")
    return undecided(deps, job, seen, "The target delivered but has not collected its payment");
  // Failed or expired: the target delivered, and provably cannot collect any more.
  return handedOver(deps, job, seen, outcome.status === "settled" ? outcome : null);
}

/**
 * An incomplete response is returned. If its payment is not collected yet, it is canceled so that it cannot be
 * collected later.
 */
async function endBrokenOff(
  deps: ClientDeps,
  job: SignedJob,
  seen: UpstreamContent,
): Promise<Delivered> {
  const [outcome] = await Promise.all([cancel(deps, job), job.noted]);
  await deps.fault("confirmed");
  switch (outcome.status) {
    case "settled":
      return handedOver(deps, job, seen, outcome);
    case "canceled":
    case "expired":
      return handedOver(deps, job, seen, null);
    default:
      return undecided(
        deps,
        job,
        seen,
        "The target closed the connection and may have collected its payment",
      );
  }
}

const recordDelivered = (
  deps: ClientDeps,
  { key }: SignedJob,
  { status }: UpstreamContent,
): Promise<void> => deps.recordDelivery(key, { upstreamStatus: status, delivered: true });

/** Unless it was written while waiting for the proof. */
const recordLast = async (
  deps: ClientDeps,
  job: SignedJob,
  seen: UpstreamContent,
): Promise<void> => {
  if (job.idempotency || isBrokenOff(seen)) await recordDelivered(deps, job, seen);
};

/**
 * null: proven not paid. "uncharged": the seller reports that it charges nothing of the maximum, but it still
 * could.
 */
async function handedOver(
  deps: ClientDeps,
  job: SignedJob,
  seen: UpstreamContent,
  collected: { txHash: Hex; amountAtomic: bigint } | "uncharged" | null,
): Promise<Delivered> {
  const { authorization, key } = job;
  const isPaid = collected !== null && collected !== "uncharged";
  const txHash = isPaid ? collected.txHash : null;
  const evidence = await evidenceOf(deps, job, seen, txHash);
  const scheme = paymentSchemeOf(authorization);
  const maximumAtomic = scheme.mostOf?.(authorization);
  const facts: PaidFacts = {
    ...job.facts,
    txHash,
    ...(isPaid && { amountAtomic: collected.amountAtomic }),
    ...(maximumAtomic !== undefined && { most: { scheme: scheme.name, maximumAtomic } }),
    ...(collected === "uncharged" && { chargeableUntil: endOf(authorization) }),
    ...(evidence && { evidence }),
  };
  // The uncharged part of a maximum is free again.
  const remaining =
    maximumAtomic === undefined ? job.remainingAtomic : await deps.remainingOf(key.agentId);
  return {
    kind: "done",
    body: paidBody(job.target, seen, facts, remaining),
    afterwards: async () => {
      await recordLast(deps, job, seen);
      await keepEvidence(deps, job, evidence);
      if (isPaid) await notePaid(deps, job, { isSettled: true });
      if (isPaid)
        await job
          .paid?.(seen)
          .catch((err: unknown) =>
            deps.log.warn({ err, ...job.key }, "later use of a payment was not recorded"),
          );
    },
  };
}

const undecided = (
  deps: ClientDeps,
  job: SignedJob,
  seen: UpstreamContent,
  why: string,
): Delivered => ({
  kind: "unknown",
  error: unknownError(job.key.paymentId, why, {
    ...deliveredMembers(job.target, seen),
    ...returningAt(job.authorization),
  }),
  afterwards: async () => {
    await recordLast(deps, job, seen);
    await notePaid(deps, job, { isSettled: false });
  },
});

async function takeBack(
  deps: ClientDeps,
  job: SignedJob,
  failure: Extract<ProofResponse, { kind: "failed" }>,
): Promise<Delivered> {
  const { key, authorization, facts, noted } = job;
  const [recovered] = await Promise.all([
    recoverFunds(deps, { key, authorization, facts, failure }),
    noted,
  ]);
  await deps.fault("confirmed");
  // Paid without delivery: the seller's signed documents matter most here.
  const { txHash } = recovered.error.extra;
  const evidence = await evidenceOf(deps, job, failure.seen, txHash);
  const seen = { upstreamStatus: failure.seen?.status ?? null, delivered: false };
  return {
    ...recovered,
    afterwards: async () => {
      await deps.recordDelivery(key, seen);
      await keepEvidence(deps, job, evidence);
    },
  };
}
