/** A ledger row as everybody reads it: the decision explained, the numbers as decimal strings. */
import { getAddress } from "viem";
import { readSnapshot } from "../../adapters/stores/reservations.ts";
import type { PaymentRow } from "../../adapters/stores/payments.ts";
import { ERRORS, type ErrorCode } from "../../errors.ts";
import type { Payment } from "../../schemas/payments.ts";
import { evaluate, policyOf } from "../guardrails/evaluate.ts";
import { formatAtomic } from "../money.ts";

export function presentPayment(row: PaymentRow, networkOf: (chainId: number) => string): Payment {
  const counterparty = row.counterparty === null ? null : getAddress(row.counterparty);
  const wallet = getAddress(row.walletAddress);
  const isIncoming = row.kind === "incoming";
  return {
    id: row.id,
    agentId: row.agentId,
    agentName: row.agentName,
    kind: row.kind,
    status: row.status,
    network: networkOf(Number(row.chainId)),
    asset: getAddress(row.asset),
    recipient: isIncoming ? wallet : counterparty,
    sender: isIncoming ? counterparty : wallet,
    amount: formatAtomic(row.amountAtomic),
    memo: row.memo,
    createdAt: row.createdAt.toISOString(),
    updatedAt: row.updatedAt.toISOString(),
    settledAt: row.settledAt?.toISOString() ?? null,
    txHash: row.txHash,
    blockNumber: row.blockNumber === null ? null : String(row.blockNumber),
    requestId: row.requestId,
    apiKey: row.apiKey,
    nonce: row.nonce,
    validBefore:
      row.validBefore === null ? null : new Date(Number(row.validBefore) * 1000).toISOString(),
    ...decision(row),
    x402:
      row.kind === "x402"
        ? {
            url: row.url,
            listingId: row.listingId,
            requirement: acceptedTerms(row.requirement),
            upstreamStatus: row.upstreamStatus,
            delivered: row.delivered,
          }
        : null,
    failure: row.failureCode === null ? null : { code: row.failureCode, detail: row.failureDetail },
  };
}

/** Stored with what a second showing of the proof needs; read, it is the seller's entry as received. */
const acceptedTerms = (stored: unknown): unknown =>
  typeof stored === "object" && stored !== null && "accepted" in stored ? stored.accepted : stored;

function decision(row: PaymentRow): Pick<Payment, "denial" | "trace"> {
  if (row.policy === null) return { denial: null, trace: [] };
  const snapshot = readSnapshot(row.policy);
  const evaluation = evaluate(snapshot);
  if (evaluation.allowed || row.denialCode === null)
    return { denial: null, trace: evaluation.trace };
  const time = (text: string | null | undefined): string | null =>
    text === null || text === undefined ? null : new Date(text).toISOString();
  return {
    trace: evaluation.trace,
    denial: {
      code: row.denialCode,
      suggestion: ERRORS[row.denialCode as ErrorCode].help,
      policy: policyOf(snapshot, evaluation.rule),
      availableAt: time(row.policy.availableAt),
      nextReleaseAt: time(row.policy.nextReleaseAt),
    },
  };
}
