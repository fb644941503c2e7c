/** Limits that an owner may set for one payee. */
import { formatAtomic } from "../../../core/money.ts";
import { usdc, type Rule } from "./rule.ts";
import { usedIf, windowRule } from "./windows.ts";

export interface PayeeExpiryFacts {
  /** Missing if the payee's entry does not expire. */
  payeeExpired?: boolean;
}

export const payeeExpiry = {
  name: "payee_expiry",
  codes: ["payee_expired"],
  check: ({ payeeExpired }) =>
    payeeExpired === undefined
      ? null
      : payeeExpired
        ? {
            refusal: "payee_expired",
            detail: "The recipient's entry on the allowlist has expired.",
          }
        : { refusal: null, detail: "The recipient's entry on the allowlist has not expired." },
  liftable: true,
  field: {
    name: "expiresAt",
    of: "payee",
    label: "Until",
    help: "Optional. This payee cannot be paid after this time",
  },
} as const satisfies Rule<PayeeExpiryFacts, "payee_expired">;

export interface PayeePerPaymentLimitFacts {
  requested: bigint;
  payeePerPaymentLimit?: bigint;
}

export const payeePerPaymentLimit = {
  name: "payee_per_payment_limit",
  codes: ["payee_per_payment_limit_exceeded"],
  check: ({ requested, payeePerPaymentLimit: limit }) =>
    limit === undefined
      ? null
      : {
          refusal: requested > limit ? "payee_per_payment_limit_exceeded" : null,
          detail: `${usdc(requested)} requested; the limit for one payment to this recipient is ${usdc(limit)}.`,
        },
  policy: ({ payeePerPaymentLimit }) => {
    if (payeePerPaymentLimit === undefined) return null;
    const limit = formatAtomic(payeePerPaymentLimit);
    return { window: "payment", limit, spent: "0", reserved: "0", remaining: limit };
  },
  // Waiting does not help.
  advise: () => ({ extra: { nextReleaseAt: null, availableAt: null } }),
  liftable: true,
  field: {
    name: "perPaymentLimit",
    of: "payee",
    label: "Limit per payment",
    help: "Optional. For one payment to this payee",
  },
} as const satisfies Rule<PayeePerPaymentLimitFacts, "payee_per_payment_limit_exceeded">;

export interface PayeeLimitFacts {
  requested: bigint;
  payeeLimit?: bigint;
  payeeSpent?: bigint;
  payeeReserved?: bigint;
}

export const payeeLimit = windowRule({
  name: "payee_limit",
  code: "payee_limit_exceeded",
  window: "24h",
  during: "the last 24 hours for this recipient",
  called: "daily limit of this recipient",
  used: (facts: PayeeLimitFacts) => usedIf(facts.payeeLimit, facts.payeeSpent, facts.payeeReserved),
  field: {
    name: "dailyLimit",
    of: "payee",
    label: "Daily limit",
    help: "Optional. For this payee, in any 24 hours, rolling",
  },
});
