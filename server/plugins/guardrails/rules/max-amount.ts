import { usdc, type Rule } from "./rule.ts";

export interface MaxAmountFacts {
  requested: bigint;
  /** The agent's own limit for this call. */
  maxAmount: bigint | null;
}

export const maxAmount = {
  name: "max_amount",
  codes: ["price_exceeds_max"],
  check: ({ requested, maxAmount }) =>
    maxAmount === null
      ? null
      : {
          refusal: requested > maxAmount ? "price_exceeds_max" : null,
          detail: `${usdc(requested)} requested; maxAmount is ${usdc(maxAmount)}.`,
        },
} as const satisfies Rule<MaxAmountFacts, "price_exceeds_max">;
