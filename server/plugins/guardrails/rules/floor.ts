import { usdc, type Rule } from "./rule.ts";

export interface FloorFacts {
  requested: bigint;
  /** Missing if an earlier rule refused, because the floor is checked after them. */
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
  // The operator sets the floor, so waiting does not help.
  advise: () => ({ extra: { nextReleaseAt: null, availableAt: null } }),
} as const satisfies Rule<FloorFacts, "amount_below_floor">;
