import { formatAtomic } from "../../../core/money.ts";
import { usdc, type PolicyNumbers, type Rule } from "./rule.ts";

export interface DailyLimitFacts {
  requested: bigint;
  limit: bigint;
  /** The settled and the outstanding part of the rolling window. */
  spent: bigint;
  reserved: bigint;
}

/** A lowered limit below what is spent leaves nothing, not a negative sum. */
export function remainingOf(limit: bigint, used: bigint): bigint {
  return limit > used ? limit - used : 0n;
}

export const dailyLimit = {
  name: "daily_limit",
  codes: ["daily_limit_exceeded"],
  check: ({ requested, spent, reserved, limit }) => ({
    refusal: spent + reserved + requested > limit ? "daily_limit_exceeded" : null,
    detail: `${usdc(requested)} asked, ${usdc(spent + reserved)} of ${usdc(limit)} used in the last 24 hours.`,
  }),
  policy: ({ limit, spent, reserved }): PolicyNumbers => ({
    window: "24h",
    limit: formatAtomic(limit),
    spent: formatAtomic(spent),
    reserved: formatAtomic(reserved),
    remaining: formatAtomic(remainingOf(limit, spent + reserved)),
  }),
  advise: ({ limit }, { availableAt, nextReleaseAt }) => ({
    retryable: availableAt !== null,
    suggestion:
      availableAt === null
        ? `This amount is above the whole daily limit of ${usdc(limit)}: ask the owner to raise it. Do not split the payment.`
        : `Wait until ${availableAt.toISOString()}, pay less, or ask the owner to raise the limit. Do not split the payment.`,
    extra: {
      nextReleaseAt: nextReleaseAt?.toISOString() ?? null,
      availableAt: availableAt?.toISOString() ?? null,
    },
  }),
  field: { name: "dailyLimit", label: "Daily limit", help: "In any 24 hours, rolling" },
} as const satisfies Rule<DailyLimitFacts, "daily_limit_exceeded">;
