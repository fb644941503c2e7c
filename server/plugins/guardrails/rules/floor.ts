import { usdc, type Rule } from "./rule.ts";

export interface FloorFacts {
  requested: bigint;
  /** Missing where an earlier rule refused, because it is checked after them. */
  floor?: bigint | null;
}

export const floor = {
  name: "floor",
  codes: ["amount_below_floor"],
  check: ({ requested, floor }) =>
    floor === undefined || floor === null
      ? null
      : {
          refusal: requested < floor ? "amount_below_floor" : null,
          detail: `${usdc(requested)} requested; the smallest payment is ${usdc(floor)}.`,
        },
  // The operator's, and no time makes it fit.
  advise: () => ({ extra: { nextReleaseAt: null, availableAt: null } }),
} as const satisfies Rule<FloorFacts, "amount_below_floor">;
