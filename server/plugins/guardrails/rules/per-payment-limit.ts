import { formatAtomic } from "../../../core/money.ts";
import { usdc, type Rule } from "./rule.ts";

export interface PerPaymentLimitFacts {
  requested: bigint;
  perPaymentLimit: bigint | null;
}

export const perPaymentLimit = {
  name: "per_payment_limit",
  codes: ["per_payment_limit_exceeded"],
  check: ({ requested, perPaymentLimit }) =>
    perPaymentLimit === null
      ? null
      : {
          refusal: requested > perPaymentLimit ? "per_payment_limit_exceeded" : null,
          detail: `${usdc(requested)} requested; the per-payment limit is ${usdc(perPaymentLimit)}.`,
        },
  most: ({ perPaymentLimit }) => perPaymentLimit,
  policy: ({ perPaymentLimit }) => {
    if (perPaymentLimit === null) return null;
    const limit = formatAtomic(perPaymentLimit);
    return { window: "payment", limit, spent: "0", reserved: "0", remaining: limit };
  },
  // Waiting does not help.
  advise: () => ({ extra: { nextReleaseAt: null, availableAt: null } }),
  liftable: true,
  field: { name: "perPaymentLimit", label: "Limit per payment", help: "Optional" },
} as const satisfies Rule<PerPaymentLimitFacts, "per_payment_limit_exceeded">;
