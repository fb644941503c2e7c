import { formatGas } from "../../../core/gas.ts";
import type { Rule } from "./rule.ts";

/**
 * The facts are missing if an earlier rule refused, because gas is checked last. Amounts in units of
 * core/gas.ts.
 */
export interface GasFacts {
  /** Whose budget is used up: the owner's own, or the one that all agents share. */
  gasShort?: string;
  gasLimit?: bigint;
  gasLeft?: bigint;
  gasHeld?: bigint;
  gasHold?: bigint;
  gasAvailableAt?: string | null;
}

const WHOSE: Record<string, string> = {
  owner: "of this owner's agents",
  agents: "that all agents share",
};

export const gas = {
  name: "gas",
  codes: ["gas_budget_exhausted"],
  check: ({ gasShort, gasLimit = 0n, gasLeft = 0n, gasHold }) => {
    if (gasShort !== undefined)
      return {
        refusal: "gas_budget_exhausted",
        detail: `The gas budget ${WHOSE[gasShort] ?? gasShort} is used up: ${formatGas(gasLeft)} of ${formatGas(gasLimit)} USDC a day left.`,
      };
    if (gasHold === undefined) return null;
    return {
      refusal: null,
      detail: `The gas for it costs about ${formatGas(gasHold)} USDC, which is available.`,
    };
  },
  policy: ({ gasShort, gasLimit = 0n, gasLeft = 0n, gasHeld = 0n }) => {
    if (gasShort === undefined) return null;
    const used = gasLimit - gasLeft;
    return {
      window: "24h",
      limit: formatGas(gasLimit),
      spent: formatGas(used > gasHeld ? used - gasHeld : 0n),
      reserved: formatGas(gasHeld),
      remaining: formatGas(gasLeft),
    };
  },
  advise: ({ gasHold = 0n, gasAvailableAt = null }) => ({
    retryable: gasAvailableAt !== null,
    suggestion:
      gasAvailableAt === null
        ? `The gas for this payment costs ${formatGas(gasHold)} USDC, more than the whole daily budget. Ask the operator.`
        : `Wait until ${gasAvailableAt}: the budget refills during the day. Fewer, larger payments need less gas.`,
    extra: { nextReleaseAt: null, availableAt: gasAvailableAt, gas: formatGas(gasHold) },
  }),
} as const satisfies Rule<GasFacts, "gas_budget_exhausted">;
