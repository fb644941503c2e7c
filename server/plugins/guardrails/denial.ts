/** Turns a refusal into the error an agent can act on: why, by which numbers, and when to try again. */
import { getAddress, type Address } from "viem";
import { ApiError, ERRORS } from "../../errors.ts";
import { formatAtomic } from "../../core/money.ts";
import { policyOf } from "./explain.ts";
import type { DenialCode, RuleName, Snapshot } from "./types.ts";

export interface Denial {
  code: DenialCode;
  rule: RuleName;
  snapshot: Snapshot;
  paymentId: string | null;
  nextReleaseAt: Date | null;
  availableAt: Date | null;
  walletAddress: Address;
  /** The sentence of the rule that refused. */
  detail: string;
}

export function denialError(denial: Denial): ApiError {
  const { code, rule, snapshot } = denial;
  return new ApiError(code, {
    detail: denial.detail,
    extra: {
      blocked: true,
      retryable: isRetryable(denial),
      suggestion: suggestionFor(denial),
      paymentId: denial.paymentId,
      policy: policyOf(snapshot, rule),
      ...(code === "daily_limit_exceeded" || code === "per_payment_limit_exceeded"
        ? {
            // Above the limit per payment no time makes it fit: both are null.
            nextReleaseAt: denial.nextReleaseAt?.toISOString() ?? null,
            availableAt: denial.availableAt?.toISOString() ?? null,
          }
        : {}),
      ...(code === "insufficient_funds"
        ? {
            balance: formatAtomic(snapshot.balance),
            outstanding: formatAtomic(snapshot.outstanding),
            required: formatAtomic(snapshot.requested),
            fundingAddress: getAddress(denial.walletAddress),
          }
        : {}),
    },
  });
}

function isRetryable({ code, availableAt }: Denial): boolean {
  if (code === "daily_limit_exceeded") return availableAt !== null;
  return ERRORS[code].retryable;
}

function suggestionFor({ code, availableAt, snapshot }: Denial): string {
  if (code !== "daily_limit_exceeded") return ERRORS[code].help;
  if (availableAt === null)
    return `This amount is above the whole daily limit of ${formatAtomic(snapshot.limit)} USDC: ask the owner to raise it. Do not split the payment.`;
  return `Wait until ${availableAt.toISOString()}, pay less, or ask the owner to raise the limit. Do not split the payment.`;
}
