import { usdc, type Rule } from "./rule.ts";

export interface FloorFacts {
  requested: bigint;
  /** Only there when it refused: it is asked last. */
  floor?: bigint;
}

export const floor = {
  name: "floor",
  codes: ["amount_below_floor"],
  check: ({ requested, floor }) =>
    floor === undefined
      ? null
      : {
          refusal: requested < floor ? "amount_below_floor" : null,
          detail: `${usdc(requested)} asked, less than ${usdc(floor)} is not worth the gas.`,
        },
  // The operator's, and no time makes it fit.
  advise: () => ({ extra: { nextReleaseAt: null, availableAt: null } }),
} as const satisfies Rule<FloorFacts, "amount_below_floor">;
